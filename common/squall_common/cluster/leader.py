"""The election of the leading Nimbus, and the fence that keeps out the writes of the others.

Candidates queue as ephemeral sequential nodes under /leader-lock, named and filled as Curator's
LeaderLatch does it (`_c_UUID-latch-SEQUENCE`, data `host:port`); the first in the queue wins, each
other one watches the one before it. That alone cannot rule out two leaders: one may be paused, lose
its session, and go on to write what its successor has changed. So:

- The winner raises the version of /leader-epoch, which it read *after* it won, in a transaction
  that requires its own queue node. Every write of a leader is a transaction that begins with
  `Check(/leader-epoch, that version)`: it fails once anybody else has won.
- What a leader does outside the store (answering, deleting files) asks `Leadership.active(now)`
  first. That is false when 2/3 of the session timeout has passed since the last answered request
  was sent: sooner than any server can have expired the session, and with it the queue node.

The session's own past is a trap (STORM-3107): a Nimbus that was restarted finds the queue node of
the process before it, and would wait for its own ghost until that session expires. Queue nodes with
our `host:port` from another session are deleted, once, when we start: two that run with the same
name by mistake do not throw each other out in turns. A create whose answer was lost is found again
by its UUID.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable, Sequence
from typing import Protocol

from squall_common.cluster import paths
from squall_common.cluster.store import (
    BadVersionError,
    Check,
    ConnectionState,
    NodeExistsError,
    NoNodeError,
    Op,
    Set,
    Store,
    StoreError,
)
from squall_common.daemon.clock import Clock, SystemClock
from squall_common.daemon.logs import get_logger
from squall_common.daemon.loop.background import BackgroundTasks

log = get_logger(__name__)

# The part of the session timeout after which a leader that is not answered stops acting. A third
# is left for what the servers disagree on (half a tick; the timeout is at least two) and for what
# was begun just before.
_ACTIVE_PART = 2 / 3

# Pause after an error of the store before the next attempt.
_RETRY_SECS = 0.5


class NotLeaderError(StoreError):
    """This process does not lead, or may not any more: nothing was written."""


class Leadership:
    """One term as leader. Ends for good when another wins, or the session does."""

    def __init__(self, store: Store, session_id: int, epoch: int, *, clock: Clock) -> None:
        self._store = store
        self._session_id = session_id
        self._clock = clock
        self._ended = False
        self.epoch = epoch  # the version of /leader-epoch: the number of this term

    def active(self, now: float) -> bool:
        """Whether the leader may act at `now` (monotonic seconds). May be false while ZooKeeper
        does not answer and true again later, as long as the term has not ended."""
        return (
            not self._ended
            and self._store.session_id == self._session_id
            and now
            < self._store.last_answered_secs + _ACTIVE_PART * self._store.session_timeout_secs
        )

    @property
    def ended(self) -> bool:
        """Whether this term is over for good."""
        return self._ended

    async def transaction(self, ops: Sequence[Op]) -> None:
        """All of `ops`, or none, and none once another leads: then raises NotLeaderError.

        An error of one of `ops` is raised as the store's own transaction would. With no `ops` it
        confirms that the term stands.
        """
        if not self.active(self._clock.monotonic()):
            raise NotLeaderError("this process does not lead, or has not heard of ZooKeeper lately")
        try:
            await self._store.transaction([Check(paths.LEADER_EPOCH, self.epoch), *ops])
        except StoreError as error:
            if error.index == 0 and isinstance(error, BadVersionError | NoNodeError):
                self.end()
                raise NotLeaderError(f"the term of epoch {self.epoch} is over") from error
            if error.index is not None:
                error.index -= 1
            raise

    def end(self) -> None:
        """The term is over. Called by the election."""
        self._ended = True


class LeaderElection:
    """Takes part in the election from `start` to `close`.

    `on_gained(leadership)` and `on_lost()` are called on the event loop, in turns. `participant` is
    `host:port` of this Nimbus: two that run at the same time must differ in it. `on_crash` is
    that of BackgroundTasks: it is called when a callback raised; this process then takes no further
    part.
    """

    def __init__(
        self,
        store: Store,
        participant: str,
        *,
        on_gained: Callable[[Leadership], None],
        on_lost: Callable[[], None],
        on_crash: Callable[[str, BaseException], None] | None = None,
        clock: Clock | None = None,
    ) -> None:
        self._store = store
        self._participant = participant
        self._on_gained = on_gained
        self._on_lost = on_lost
        self._clock = clock or SystemClock()
        self._uuid = str(uuid.uuid4())
        self._joined = False  # whether this process was in the queue before
        self._wake = asyncio.Event()
        self._leadership: Leadership | None = None
        self._tasks = BackgroundTasks(on_crash)

    @property
    def leadership(self) -> Leadership | None:
        """The present term; None while another leads."""
        return self._leadership

    async def start(self) -> None:
        """Join the queue, in the background."""
        self._store.add_listener(self._state_changed)
        self._tasks.start("leader_election", self._run())

    async def close(self) -> None:
        """Leave the queue, so that the next can lead at once."""
        self._store.remove_listener(self._state_changed)
        await self._tasks.close()
        self._lose("closed")
        try:
            await self._leave()
        except StoreError as error:
            log.warning("leader_queue_not_left", participant=self._participant, error=error)

    async def resign(self) -> None:
        """End the present term and queue again, behind the others."""
        self._lose("resigned")
        await self._leave()
        self._wake.set()

    async def leader(self) -> str | None:
        """The leader's `host:port`, or None if the queue is empty."""
        return await leader_of(self._store)

    # The queue

    async def _run(self) -> None:
        while True:
            self._wake.clear()
            try:
                await self._step()
            except StoreError as error:
                log.warning("leader_election_failed", participant=self._participant, error=error)
                await asyncio.sleep(_RETRY_SECS)
                continue
            await self._wake.wait()

    async def _step(self) -> None:
        """Look at the queue and do what its state asks for; `_wake` is set at the next change."""
        session_id = self._store.session_id
        queue = await _queue(self._store)
        mine = await self._own_node(queue, session_id)
        if mine is None:
            self._lose("queue node gone")
            await self._join(queue)
            self._wake.set()  # look again: others may have come before
            return
        place = queue.index(mine)
        # Watch ours, and the one before it, whose going may make us first.
        for name in queue[max(place - 1, 0) : place + 1]:
            if await self._store.exists(_path(name), self._changed) is None:
                self._wake.set()
                return
        if place > 0:
            self._lose("no longer first")
        elif self._leadership is None:
            await self._win(mine, session_id)

    async def _own_node(self, queue: Sequence[str], session_id: int) -> str | None:
        """Our node of a session."""
        for name in queue:
            if self._uuid in name:
                stat = await self._store.exists(_path(name))
                if stat is not None and stat.ephemeral_owner == session_id:
                    return name
        return None

    async def _join(self, queue: Sequence[str]) -> None:
        """Delete what earlier sessions of ours left in the queue, and queue."""
        value = self._participant.encode()
        for name in queue:
            try:
                found, stat = await self._store.get(_path(name))
            except NoNodeError:
                continue
            if self._uuid in name or (found == value and not self._joined):
                log.info("stale_candidate_removed", path=_path(name))
                try:
                    await self._store.delete(_path(name), stat.version)
                except (NoNodeError, BadVersionError):
                    pass
        node = _path(f"_c_{self._uuid}-latch-")
        await self._store.create(node, value, ephemeral=True, sequence=True, make_parents=True)
        self._joined = True

    async def _win(self, mine: str, session_id: int) -> None:
        """Open a term: raise the epoch, if we are still first in the queue at that moment."""
        try:
            _, stat = await self._store.get(paths.LEADER_EPOCH)
        except NoNodeError:
            try:
                await self._store.create(paths.LEADER_EPOCH)
            except NodeExistsError:
                pass
            _, stat = await self._store.get(paths.LEADER_EPOCH)
        leadership = Leadership(self._store, session_id, stat.version + 1, clock=self._clock)
        try:
            await self._store.transaction(
                [
                    Check(_path(mine)),
                    Set(paths.LEADER_EPOCH, self._participant.encode(), stat.version),
                ]
            )
        except (NoNodeError, BadVersionError):
            self._wake.set()  # the queue or the epoch moved: look again
            return
        if not leadership.active(self._clock.monotonic()):
            self._wake.set()  # the session changed, or stalled, meanwhile
            return
        self._leadership = leadership
        log.info("leadership_gained", participant=self._participant, epoch=leadership.epoch)
        self._on_gained(leadership)

    async def _leave(self) -> None:
        for name in await _queue(self._store):
            if self._uuid in name:
                try:
                    await self._store.delete(_path(name))
                except NoNodeError:
                    pass

    # What ends a term

    def _state_changed(self, state: ConnectionState) -> None:
        if state is ConnectionState.LOST:
            self._lose("session lost")
        self._wake.set()

    def _changed(self, path: str) -> None:
        self._wake.set()

    def _lose(self, why: str) -> None:
        leadership, self._leadership = self._leadership, None
        if leadership is not None:
            leadership.end()
            log.info("leadership_lost", participant=self._participant, why=why)
            self._on_lost()


async def leader_of(store: Store) -> str | None:
    """The leader's `host:port`, as any client can read it, or None if the queue is empty."""
    while True:
        queue = await _queue(store)
        if not queue:
            return None
        try:
            value, _ = await store.get(_path(queue[0]))
        except NoNodeError:
            continue
        return value.decode(errors="replace")


async def _queue(store: Store) -> list[str]:
    """Names of the candidates' nodes, first come first."""
    try:
        names = await store.children(paths.LEADER_LOCK)
    except NoNodeError:
        return []
    return sorted((name for name in names if name[-10:].isdecimal()), key=lambda name: name[-10:])


def _path(name: str) -> str:
    return f"{paths.LEADER_LOCK}/{name}"


class Fence(Protocol):
    """The leader's right to write: the part of `Leadership` that writing needs."""

    async def transaction(self, ops: Sequence[Op]) -> None: ...
