"""Whether this Nimbus leads, and which one does if not."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from squall_common.cluster.leader import LeaderElection, Leadership
from squall_common.cluster.state import ClusterState
from squall_common.cluster.store import ConnectionLostError, ConnectionState
from squall_common.daemon.clock import Clock
from squall_common.errors import SquallError

# How long a call waits while an election is in progress.
_ELECTION_PATIENCE_SECS = 3.0
_LOOK_AGAIN_SECS = 0.05
# How long a call waits for ZooKeeper to say who leads, and for a broken connection to come back. A
# person may be waiting for the answer; but ZooKeeper answers a session in order, so that a slow
# disk, which holds up what this Nimbus has written, holds up the answer as well.
_ANSWER_PATIENCE_SECS = 2.5
_CONNECTION_PATIENCE_SECS = 0.75


class NotTheLeaderError(SquallError):
    """A call that only the leader may serve reached another Nimbus."""


class LeaderElector:
    """This Nimbus' part in the election. `participant` is its `host:port`."""

    def __init__(
        self,
        state: ClusterState,
        participant: str,
        *,
        clock: Clock,
    ) -> None:
        self.participant = participant
        self._store = state.store
        self._clock = clock
        self._gained = asyncio.Event()

        self._on_gained: Callable[[Leadership], None] | None = None
        self._on_lost: Callable[[], None] | None = None
        self._election = LeaderElection(
            state.store,
            participant,
            on_gained=self._election_won,
            on_lost=self._election_lost,
            clock=clock,
        )

    async def start(
        self, on_gained: Callable[[Leadership], None], on_lost: Callable[[], None]
    ) -> None:
        """Stand for election. The two functions are called when a term begins and ends."""
        self._on_gained = on_gained
        self._on_lost = on_lost
        await self._election.start()

    def _election_won(self, leadership: Leadership) -> None:
        assert self._on_gained is not None  # `start` begins the election
        self._on_gained(leadership)
        self._gained.set()

    def _election_lost(self) -> None:
        assert self._on_lost is not None
        self._gained.clear()
        self._on_lost()

    async def close(self) -> None:
        """Step down, so that another Nimbus can lead at once."""
        await self._election.close()

    @property
    def leading(self) -> bool:
        """Whether this Nimbus may act as the leader now."""
        leadership = self._election.leadership
        return leadership is not None and leadership.active(self._clock.monotonic())

    def leadership(self) -> Leadership | None:
        """The current term, or None."""
        return self._election.leadership if self.leading else None

    async def leader(self, *, wait: bool = False) -> tuple[str, int] | None:
        """Return host and port of the leader, or None if there is none. With `wait`, waits a moment
        while an election is in progress. Raises the store's errors, and ConnectionLostError after a
        moment without an answer: the caller can ask another Nimbus, or try again."""
        connected = self._store.state is ConnectionState.CONNECTED
        patience_secs = _ANSWER_PATIENCE_SECS if connected else _CONNECTION_PATIENCE_SECS
        try:
            async with asyncio.timeout(patience_secs):
                participant = await self._election.leader()
        except TimeoutError:
            raise ConnectionLostError(
                f"it did not answer within {patience_secs:g} s" if connected else "no connection"
            ) from None
        if participant is None and wait:
            attempts = round(_ELECTION_PATIENCE_SECS / _LOOK_AGAIN_SECS)
            for _ in range(attempts):
                await asyncio.sleep(_LOOK_AGAIN_SECS)
                participant = await self._election.leader()
                if participant is not None:
                    break
        if participant is None:
            return None
        host, _, port = participant.rpartition(":")
        return host, int(port)

    async def require(self) -> Leadership:
        """Return the current term. While no other Nimbus leads, waits a moment for it: at the start
        others can see that we are first before we have opened our term. Raises NotTheLeaderError,
        which names the leader."""
        leadership = self.leadership()
        if leadership is not None:
            return leadership
        leader = await self._election.leader()
        if leader is None or leader == self.participant:
            try:
                async with asyncio.timeout(_ELECTION_PATIENCE_SECS):
                    await self._gained.wait()
            except TimeoutError:
                pass
            leadership = self.leadership()
            if leadership is not None:
                return leadership
            leader = await self._election.leader()
        if leader is None or leader == self.participant:
            raise NotTheLeaderError(
                f"this Nimbus ({self.participant}) is not the leader, and no other leads right now",
                hint="Try again in a few seconds.",
            )
        raise NotTheLeaderError(f"not the leader; the leader is {leader}")
