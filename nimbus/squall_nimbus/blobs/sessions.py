"""Client sessions: an unguessable id for something that is open until it is closed or idle."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from squall_common.errors import SquallError

T = TypeVar("T")

_SHARES = 4


@dataclass(slots=True)
class _Session(Generic[T]):
    value: T
    used_at: float
    peer: str
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)


class Sessions(Generic[T]):
    """Open sessions by id. Calls on one session are carried out one after the other.

    `close(value)` is called for each value that expires. With `limit` sessions open, new ones are
    refused; one peer may have a quarter of them, so that it cannot take all the places.
    """

    def __init__(
        self,
        what: str,
        *,
        idle_secs: float,
        limit: int,
        clock: Callable[[], float],
        close: Callable[[T], None],
    ) -> None:
        self._what = what
        self._idle_secs = idle_secs
        self._limit = limit
        self._clock = clock
        self._close = close
        self._open: dict[str, _Session[T]] = {}

    def __len__(self) -> int:
        return len(self._open)

    def values(self) -> list[T]:
        """What is open."""
        return [entry.value for entry in self._open.values()]

    def count(self, peer: str) -> int:
        """How many sessions a peer has open."""
        return sum(entry.peer == peer for entry in self._open.values())

    def check_room(self, peer: str = "") -> None:
        """Raise SquallError if no further session may be opened, at all or by this peer."""
        share = max(1, self._limit // _SHARES)
        if peer and self.count(peer) >= share:
            raise SquallError(
                f"{peer} has {share} {self._what}s open, the limit for one client",
                hint="Finish or cancel some; idle ones expire.",
            )
        if len(self._open) >= self._limit:
            raise SquallError(
                f"Nimbus has {self._limit} {self._what}s open, which is its limit",
                hint="Try again when some have finished.",
            )

    def add(self, value: T, *, peer: str = "", session: str | None = None) -> str:
        """Open a session for a peer and return its id."""
        session = session or str(uuid.uuid4())
        self._open[session] = _Session(value, self._clock(), peer)
        return session

    @asynccontextmanager
    async def use(self, session: str) -> AsyncIterator[T]:
        """Lend the session's value to one call at a time. Raises SquallError if there is no such
        session."""
        entry = self._open.get(session)
        if entry is not None:
            async with entry.lock:
                if self._open.get(session) is entry:
                    entry.used_at = self._clock()
                    yield entry.value
                    entry.used_at = self._clock()
                    return
        raise SquallError(
            f"there is no {self._what} {session!r}: it was finished, cancelled, "
            f"or idle for {self._idle_secs:g} s"
        )

    def remove(self, session: str) -> None:
        """End a session; its value stays open."""
        self._open.pop(session, None)

    def expire(self) -> list[str]:
        """Close sessions that have been idle for too long; return their ids."""
        oldest = self._clock() - self._idle_secs
        ids = [
            session
            for session, entry in self._open.items()
            if entry.used_at <= oldest and not entry.lock.locked()
        ]
        for session in ids:
            self._close(self._open.pop(session).value)
        return ids

    def close_all(self) -> None:
        """Close every session."""
        for entry in self._open.values():
            self._close(entry.value)
        self._open.clear()
