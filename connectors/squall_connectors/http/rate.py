"""A limit on how often something is done."""

from __future__ import annotations


class RateLimit:
    """At most `per_sec` a second on average, and no more than a second's worth at once. Pure: the
    time comes in as `now`."""

    def __init__(self, per_sec: float) -> None:
        if per_sec <= 0:
            raise ValueError(f"a rate must be positive, not {per_sec}")
        self._secs_each = 1.0 / per_sec
        self._next = 0.0  # when the next one would be due if they came evenly

    def wait_secs(self, now: float) -> float:
        """Take the next turn; return how long it is until then."""
        self._next = max(self._next, now - 1.0) + self._secs_each
        return max(0.0, self._next - now)
