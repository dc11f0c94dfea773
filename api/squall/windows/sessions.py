"""Session windows: what came for one key without a pause of `gap_ms`.

    a tuple at t        is the session [t, t + gap)
    two sessions        that overlap are one; if one begins exactly where the other ends, they stay
                        two
    a session           fires when the time (the watermark, or the clock) reaches its end
    a late tuple        is one whose session, after merging, ended `lateness_ms` or more before the
                        watermark
    allowed lateness    a session stays open for it after it has fired; each tuple that joins it
                        meanwhile fires it again, with all it holds

What a session holds is made by a `Contents`: its tuples, or an aggregate of them.
"""

from __future__ import annotations

import heapq
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol


class Contents(Protocol):
    """What windows hold, and how it grows. Contents that need no look at each tuple also have
    `of_all(items)`, those of a window that holds these tuples, and `extend(contents, items)`, those
    with these tuples more, which may change `contents`."""

    def of(self, item: Any) -> Any:
        """The contents of a window that holds one tuple."""
        ...

    def add(self, contents: Any, item: Any) -> Any:
        """The contents with one tuple more. May change `contents`."""
        ...

    def merge(self, first: Any, second: Any) -> Any:
        """The contents of two windows together. Changes neither."""
        ...


@dataclass(slots=True, eq=False)
class Session:
    """A session of one key: [start_ms, end_ms)."""

    key: Hashable
    start_ms: int
    end_ms: int
    contents: Any
    fired: bool = False
    closed: bool = False  # merged into another, or dropped


class SessionWindows:
    """The open sessions of one task."""

    def __init__(self, contents: Contents, gap_ms: int, lateness_ms: int = 0) -> None:
        self._contents = contents
        self._gap_ms = gap_ms
        self._lateness_ms = lateness_ms
        self._open: dict[Hashable, list[Session]] = {}
        self._due: list[tuple[int, int, Session]] = []  # a heap
        self._serial = 0
        self._now_ms: int | None = None  # up to which sessions have fired

    def __len__(self) -> int:
        """How many sessions are open."""
        return sum(map(len, self._open.values()))

    @property
    def keys(self) -> int:
        """How many keys have one."""
        return len(self._open)

    @property
    def sessions(self) -> list[Session]:
        """All open sessions."""
        return [session for some in self._open.values() for session in some]

    def add(self, key: Hashable, timestamp_ms: int, item: Any) -> tuple[bool, Session | None]:
        """Add a tuple. Returns whether it was accepted (otherwise it is late), and the session that
        fires because of it. Raises what `Contents` raises; the tuple is then in no session."""
        start_ms, end_ms = timestamp_ms, timestamp_ms + self._gap_ms
        mine = self._open.get(key, [])
        touching = [one for one in mine if one.start_ms < end_ms and start_ms < one.end_ms]
        last_ms = max([end_ms, *[one.end_ms for one in touching]]) if touching else end_ms
        if self._now_ms is not None and last_ms + self._lateness_ms <= self._now_ms:
            return False, None
        waits_for_end = False
        if not touching:
            session = Session(key, start_ms, end_ms, self._contents.of(item))
            self._open.setdefault(key, []).append(session)
        else:
            session = touching[0]
            contents = session.contents
            for other in touching[1:]:
                contents = self._contents.merge(contents, other.contents)
            session.contents = self._contents.add(
                contents, item
            )  # nothing has changed if it raises
            waits_for_end = not session.fired
            for other in touching[1:]:
                session.start_ms = min(session.start_ms, other.start_ms)
                other.closed = True
                mine.remove(other)
            session.start_ms = min(session.start_ms, start_ms)
        session.end_ms = last_ms
        if self._now_ms is not None and last_ms <= self._now_ms:
            session.fired = True  # within the allowed lateness
            if not touching:
                self._wait_for(session, last_ms)
            return True, session
        session.fired = False
        if not waits_for_end:
            self._wait_for(session, last_ms)
        return True, None

    def prolong(self, key: Hashable, events: Sequence[tuple[int, Any]]) -> bool:
        """Add tuples, with their timestamps, if all that they do is to prolong the only session of
        their key, which has not fired. False: they have to be added one after the other."""
        extend = getattr(self._contents, "extend", None)
        mine = self._open.get(key, ())
        if extend is None or len(mine) != 1 or mine[0].fired:
            return False
        (session,) = mine
        start_ms, end_ms, gap_ms = session.start_ms, session.end_ms, self._gap_ms
        for at_ms, _ in events:
            if not start_ms <= at_ms < end_ms:
                return False
            if at_ms + gap_ms > end_ms:
                end_ms = at_ms + gap_ms
        session.contents = extend(session.contents, [item for _, item in events])
        session.end_ms = end_ms
        return True

    def advance(self, now_ms: int) -> Iterator[tuple[Session, bool]]:
        """Sessions that fire (False) or leave (True) because the time has come, by their end. A
        session that fires and has no lateness left does both, in this order."""
        self._now_ms = now_ms if self._now_ms is None else max(self._now_ms, now_ms)
        while self._due and self._due[0][0] <= now_ms:
            at_ms, _, session = heapq.heappop(self._due)
            if session.closed:
                continue
            if not session.fired:
                if session.end_ms > at_ms:  # it has grown
                    self._wait_for(session, session.end_ms)
                    continue
                session.fired = True
                yield session, False
                if session.closed:  # its tuples have failed
                    continue
            if session.end_ms + self._lateness_ms <= now_ms:
                self.close(session)
                yield session, True
            else:
                self._wait_for(session, session.end_ms + self._lateness_ms)

    def sessions_of(self, key: Hashable) -> list[Session]:
        """The open sessions of a key."""
        return self._open.get(key, [])

    def close(self, session: Session) -> None:
        """Forget a session."""
        session.closed = True
        mine = self._open[session.key]
        mine.remove(session)
        if not mine:
            del self._open[session.key]

    @property
    def next_ms(self) -> int | None:
        """When the first session may fire or leave."""
        while self._due and self._due[0][2].closed:
            heapq.heappop(self._due)
        return self._due[0][0] if self._due else None

    def _wait_for(self, session: Session, at_ms: int) -> None:
        """Look at a session at this time. (There is one entry for each, seldom two: a session that
        grows is looked at again when the entry for its old end is due.)"""
        self._serial += 1
        heapq.heappush(self._due, (at_ms, self._serial, session))
