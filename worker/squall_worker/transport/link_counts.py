"""Counts of what happened on links."""

from __future__ import annotations

from dataclasses import dataclass, fields


@dataclass(slots=True)
class LinkCounts:
    """Counts of what happened on a link, for logs and metrics."""

    frames_sent: int = 0
    frames_resent: int = 0
    frames_received: int = 0
    dropped_replaced: int = 0  # from a session that a newer one has replaced
    dropped_unconfirmed: int = 0  # from a session beyond the assignment that was read last
    dropped_misaddressed: int = 0  # for another session than ours
    dropped_repeat: int = 0
    dropped_gap: int = 0  # beyond the next sequence: asked for again
    dropped_invalid: int = 0  # acknowledges what was never sent
    dropped_overflow: int = 0  # sections refused because the backlog was full

    def add(self, other: LinkCounts) -> None:
        """Add the counts of another link."""
        for name in _COUNTS:
            setattr(self, name, getattr(self, name) + getattr(other, name))


_COUNTS = tuple(field.name for field in fields(LinkCounts))
