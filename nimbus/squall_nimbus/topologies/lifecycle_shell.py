"""Carries out the decisions of the life-cycle table: one event of a topology at a time.

Events come from users (kill, rebalance ...), from timers, from the gain of leadership and from the
monitor. After a crash, the next leader sets lost timers again, from the StormBase.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass

from squall_common.cluster.codec import CorruptStateError
from squall_common.cluster.leader import Fence, NotLeaderError
from squall_common.cluster.state import ClusterState, UndecodedBeat
from squall_common.cluster.store import ConnectionLostError, StoreError
from squall_common.cluster.values import StormBase, WorkerDrained
from squall_common.daemon.logs import get_logger
from squall_common.daemon.loop.background import BackgroundTasks
from squall_common.errors import SquallError
from squall_common.names import conf_blob_key, curve_blob_key, topology_name_of
from squall_common.topology.encryption import has_key
from squall_common.topology.model import WorkerSlot
from squall_nimbus.all_topologies import read_topologies
from squall_nimbus.blobs.replication import Replication
from squall_nimbus.blobs.store import BlobNotFoundError
from squall_nimbus.leader import NotTheLeaderError
from squall_nimbus.scheduler.assigner import Assigner
from squall_nimbus.store.locks import NamedLocks
from squall_nimbus.store.topology_store import TopologyStore
from squall_nimbus.topologies.drain import DrainReading, DrainWatch, Verdict
from squall_nimbus.topologies.lifecycle import (
    Activate,
    Assign,
    Command,
    Deactivate,
    DoRebalance,
    Drained,
    DrainReported,
    Event,
    Kill,
    LeadershipGained,
    MonitorDue,
    NoTransitionError,
    Rebalance,
    Remove,
    RemoveTopology,
    Schedule,
    State,
    WriteBase,
    decide,
    state_of,
)
from squall_thrift.serving.off_loop import off_loop_if

log = get_logger(__name__)

# Pause before an event of our own that failed (no ZooKeeper) is tried again.
_RETRY_SECS = 1.0
# How often a topology that should drain is looked at: less often if a look takes long, so that it
# takes at most a tenth of the time.
_DRAIN_LOOK_SECS = 0.5
_LOOK_SHARE = 10
_DECODE_ON_LOOP_BYTES_MAX = 64_000
# The message timeout of a topology whose code is not here (Storm's default).
_MESSAGE_TIMEOUT_SECS = 30


# Events as a topology's history names them.
_HISTORY_EVENTS: dict[type[Event], str] = {
    Activate: "activated",
    Deactivate: "deactivated",
    Rebalance: "rebalance asked for",
    Drained: "drained",
    DoRebalance: "rebalanced",
    Kill: "killed",
}


def _details(event: Event) -> str:
    match event:
        case Rebalance(options):
            asked = [f"{name}={n}" for name, n in sorted(options.num_executors.items())]
            if options.num_workers is not None:
                asked.append(f"workers={options.num_workers}")
            return " ".join(asked)
        case Kill(wait_secs=wait_secs) if wait_secs is not None:
            return f"after {wait_secs} s"
    return ""


class TopologyNotAliveError(Exception):
    """No live topology has the name or id; the text is Storm's `X is not alive`."""

    def __init__(self, name: str) -> None:
        super().__init__(f"{name} is not alive")


# (what a caller said, the id of the topology for which it was allowed): a topology of the same name
# that was submitted since is not found by the same call.
ALLOWED: ContextVar[tuple[str, str] | None] = ContextVar("allowed topology", default=None)


@dataclass(slots=True)
class _Pending:
    event: DoRebalance | Remove
    task: asyncio.Task[None]


class LifecycleShell:
    """Topologies by id, their events in order, their timers.

    `beats(topology_id)` returns the last heartbeats of a topology's workers;
    `remove(topology_id, base, fence)` deletes a topology. `fence()` returns the current leadership
    or raises. It is called before each event, so that a timer of an ended term does nothing.
    """

    def __init__(
        self,
        state: ClusterState,
        topology_store: TopologyStore,
        replication: Replication,
        assigner: Assigner,
        *,
        beats: Callable[[str], Awaitable[Mapping[WorkerSlot, UndecodedBeat]]],
        fence: Callable[[], Awaitable[Fence]],
        remove: Callable[[str, StormBase, Fence], Awaitable[None]],
        tasks: BackgroundTasks,
        record_event: Callable[[str, str, str], None] = lambda topology_id, name, text: None,
    ) -> None:
        self.locks = NamedLocks()  # by topology name
        self._state = state
        self._topology_store = topology_store
        self._replication = replication
        self._assigner = assigner
        self._beats = beats
        self._fence = fence
        self._remove = remove
        self._tasks = tasks
        self._record_event = record_event
        self._pending: dict[str, _Pending] = {}

    async def find(self, name: str) -> tuple[str, StormBase]:
        """Return id and base of the live topology of that name. Raises TopologyNotAliveError, also
        if it is another one than the caller was allowed to act on."""
        allowed = ALLOWED.get()
        only = allowed[1] if allowed is not None and allowed[0] == name else None
        for topology_id in await self._state.topology_ids():
            if topology_name_of_or_none(topology_id) == name and only in (None, topology_id):
                base = await self._state.storm_base(topology_id)
                if base is not None:
                    return topology_id, base
        raise TopologyNotAliveError(name)

    async def handle(self, name: str, event: Event) -> None:
        """Handle an event that a user asked for. Raises TopologyNotAliveError, NoTransitionError,
        and the store's errors."""
        async with self.locks.hold(name):
            topology_id, base = await self.find(name)
            due = await self._apply(topology_id, base, event)
        if due is not None:  # now, so that it is done when the call returns
            await self._fire(topology_id, due)

    async def send(self, topology_id: str, event: Event, *, status_zxid: int | None = None) -> None:
        """Handle an event of our own. One that no longer applies is dropped; with `status_zxid`,
        also if the StormBase was written since."""
        async with self.locks.hold(topology_name_of(topology_id)):
            found = await self._state.storm_and_zxid(topology_id)
            if found is None or status_zxid not in (None, found[1]):
                return
            base = found[0]
            try:
                due = await self._apply(topology_id, base, event)
            except NoTransitionError as error:
                log.debug("event_dropped", topology_id=topology_id, error=error)
                return
        if due is not None:
            await self._fire(topology_id, due)

    async def take_over(self) -> None:
        """Begin a new term: take over what was pending for any topology."""
        for topology_id in (await read_topologies(self._state)).bases:
            await self._try(topology_id, LeadershipGained())

    async def look_after(self) -> None:
        """Repair what an error has left behind: missing starts and timers."""
        for topology_id, base in (await read_topologies(self._state)).bases.items():
            state = state_of(base)
            if state is State.STARTING:
                await self._try(topology_id, MonitorDue())
            elif state in {State.KILLED, State.REBALANCING} and topology_id not in self._pending:
                await self._try(topology_id, LeadershipGained())

    async def _try(self, topology_id: str, event: Event) -> None:
        """Send an event. A problem of one topology (its code is not here, it cannot be stored) must
        not affect the others."""
        try:
            await self.send(topology_id, event)
        except (NotTheLeaderError, NotLeaderError, ConnectionLostError):
            raise
        except (StoreError, SquallError, OSError) as error:
            log.error("topology_in_trouble", topology_id=topology_id, error=error)
        except Exception as error:  # a bug of ours
            log.error("topology_in_trouble", topology_id=topology_id, error=error, exc_info=error)

    def step_down(self) -> None:
        """Forget all timers, because another Nimbus leads."""
        for pending in self._pending.values():
            pending.task.cancel()
        self._pending.clear()

    async def _apply(
        self, topology_id: str, base: StormBase, event: Event
    ) -> DoRebalance | Remove | None:
        """Decide and carry out; return an event that is due at once."""
        fence = await self._fence()
        await self._topology_store.have([topology_id])
        commands = decide(base, event, message_timeout_secs=self._message_timeout_secs(topology_id))
        due = None
        if isinstance(event, Remove):  # afterwards nothing is known about it
            self._record_event(topology_id, "removed", "")
        for command in commands:
            if isinstance(command, Schedule) and command.wait_secs <= 0:
                self._cancel(topology_id)
                due = command.event
            else:
                await self._carry_out(topology_id, base, command, fence)
        if commands:
            log.info(
                "topology_event",
                topology_id=topology_id,
                topology_event=type(event).__name__,
                status=base.status.name,
                commands=" ".join(type(command).__name__ for command in commands),
            )
            if type(event) in _HISTORY_EVENTS:
                self._record_event(topology_id, _HISTORY_EVENTS[type(event)], _details(event))
        return due

    async def _carry_out(
        self, topology_id: str, base: StormBase, command: Command, fence: Fence
    ) -> None:
        match command:
            case WriteBase(new_base):
                await self._state.put_storm_base(topology_id, new_base, guard=fence)
            case Schedule(event, wait_secs, or_drained):
                self._schedule(topology_id, event, wait_secs, or_drained=or_drained)
            case Assign(new_base, spread, conf_overrides):
                if conf_overrides is not None:
                    await self._override_conf(topology_id, conf_overrides, fence)
                await self._assigner.assign(topology_id, new_base, spread=spread, fence=fence)
            case RemoveTopology():
                await self._remove(topology_id, base, fence)

    async def _override_conf(self, topology_id: str, overrides: str, fence: Fence) -> None:
        """Apply overrides, which were checked when the rebalance was asked for. Doing this again
        after a crash gives the same result."""
        try:
            stored = self._topology_store.get(topology_id)
        except BlobNotFoundError as error:
            raise SquallError(f"Nimbus does not have the code of {topology_id}") from error
        conf = {**stored.conf, **json.loads(overrides)}
        await fence.transaction([])  # we still lead, and may change it
        keys = [conf_blob_key(topology_id)]
        if has_key(conf) and not await self._replication.version_above(curve_blob_key(topology_id)):
            keys.append(curve_blob_key(topology_id))  # it was submitted without one
        with self._replication.writing(keys):
            if len(keys) > 1:
                await self._topology_store.store_key(topology_id)
            await self._topology_store.store_conf(topology_id, conf)
            await self._replication.publish(keys, fence)

    def _message_timeout_secs(self, topology_id: str) -> int:
        try:
            return self._topology_store.get(topology_id).message_timeout_secs
        except (BlobNotFoundError, SquallError, ValueError, TypeError):
            return _MESSAGE_TIMEOUT_SECS

    # Timers

    def _cancel(self, topology_id: str) -> None:
        pending = self._pending.pop(topology_id, None)
        if pending is not None and pending.task is not asyncio.current_task():
            pending.task.cancel()

    def _schedule(
        self,
        topology_id: str,
        event: DoRebalance | Remove,
        wait_secs: float,
        *,
        or_drained: bool = False,
    ) -> None:
        """Set a topology's timer, in place of an earlier one."""
        self._cancel(topology_id)

        async def wait() -> None:
            drained_zxid = None
            if or_drained:
                drained_zxid = await self._wait_drained(topology_id, wait_secs)
            else:
                await asyncio.sleep(wait_secs)
            pending = self._pending.get(topology_id)
            if pending is not None and pending.task is asyncio.current_task():
                del self._pending[topology_id]  # from here on it must not be cancelled
            if drained_zxid is None:
                await self._fire(topology_id, event)
            else:
                await self._fire_drained(topology_id, drained_zxid)

        task = self._tasks.start(f"{type(event).__name__} of {topology_id}", wait())
        self._pending[topology_id] = _Pending(event, task)

    async def _wait_drained(self, topology_id: str, wait_secs: float) -> int | None:
        """Wait until a topology has drained, at most `wait_secs`. Returns the zxid of the status
        for which it is drained; None if the time is over."""
        watch, loop = DrainWatch(), asyncio.get_running_loop()
        deadline = loop.time() + wait_secs
        pause = _DRAIN_LOOK_SECS
        while (left := deadline - loop.time()) > 0:
            await asyncio.sleep(min(pause, left))
            began = loop.time()
            try:
                async with asyncio.timeout_at(deadline):
                    reading = await self._read_drain(topology_id)
                verdict = Verdict.WAIT if reading is None else watch.look(reading)
                if reading is not None and verdict is Verdict.DRAINED:
                    return reading.status_zxid
                if reading is not None and verdict is Verdict.ASK_AGAIN:
                    zxid = reading.status_zxid
                    await self.send(topology_id, DrainReported(), status_zxid=zxid)
            except TimeoutError:
                pass  # at the deadline; one of something else must not end the wait before it
            except (StoreError, SquallError, OSError) as error:
                log.info("drain_not_known", topology_id=topology_id, error=error)
            pause = max(_DRAIN_LOOK_SECS, _LOOK_SHARE * (loop.time() - began))
        return None

    async def _read_drain(self, topology_id: str) -> DrainReading | None:
        """Read what the workers of a topology report; None if it is gone."""
        found = await self._state.storm_and_zxid(topology_id)
        if found is None:
            return None
        base, zxid = found
        assigned = await self._state.assignment(topology_id)
        beats = await self._beats(topology_id)
        executors = {} if assigned is None else assigned[0].executor_slot
        reports = await off_loop_if(
            sum(len(beat.data) for beat in beats.values()) > _DECODE_ON_LOOP_BYTES_MAX,
            lambda: {slot: _drained(beat) for slot, beat in beats.items()},
        )
        return DrainReading(
            status_zxid=zxid,
            slots=frozenset(executors.values()),
            placed=len(executors) >= sum(base.component_executors.values()),
            reports=reports,
        )

    async def _fire_drained(self, topology_id: str, status_zxid: int) -> None:
        """Report that a topology has drained. If that fails, or its status was written since, the
        next check sets its timer again (see look_after)."""
        try:
            await self.send(topology_id, Drained(), status_zxid=status_zxid)
        except (NotLeaderError, NotTheLeaderError, StoreError, SquallError, OSError) as error:
            log.info("event_not_sent", topology_id=topology_id, error=error)

    async def _fire(self, topology_id: str, event: DoRebalance | Remove) -> None:
        """Send an event that is due; if it fails, it is sent again."""
        try:
            await self.send(topology_id, event)
        except (NotLeaderError, NotTheLeaderError) as error:
            # The next leader sends it, or this one at its next check (see look_after).
            log.info("event_left_to_the_leader", topology_id=topology_id, error=error)
        except (StoreError, SquallError, OSError) as error:
            log.warning("event_failed", topology_id=topology_id, error=error)
            self._schedule(topology_id, event, _RETRY_SECS)


def _drained(beat: UndecodedBeat) -> WorkerDrained | None:
    """What a heartbeat says about being drained. A damaged one says nothing."""
    try:
        return beat.decode_drained()
    except CorruptStateError:
        return None


def topology_name_of_or_none(topology_id: str) -> str | None:
    """Return the name in a topology id; None if the text is not an id (and so not ours)."""
    try:
        return topology_name_of(topology_id)
    except ValueError:
        return None
