"""Rounds of scheduling: read the cluster, decide, and store what changed.

A round reads everything again, so that it does not depend on the conclusions of an earlier one. One
round runs at a time. The monitor's round reads heartbeats first and moves dead executors; other
rounds (for a submit or a rebalance) only place executors without a slot.

One topology's problem does not stop the round of the others. If a topology's StormBase, assignment
or code cannot be read, it stays as it is, on the slots that it has. Each assignment is written in a
transaction of its own, and one that cannot be written is logged; a topology that was to get one of
its slots waits for the next round. Only losing ZooKeeper or the leadership ends a round.

Planning and encoding run in threads: with 10,000 executors they take longer than the loop may.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Set
from dataclasses import dataclass, field
from functools import cached_property

from squall_common.cluster import codec, paths
from squall_common.cluster.codec import CorruptStateError
from squall_common.cluster.leader import Fence, NotLeaderError
from squall_common.cluster.state import ClusterState
from squall_common.cluster.store import (
    ConnectionLostError,
    Create,
    Op,
    StoreError,
    check_transaction,
)
from squall_common.cluster.store import Set as SetOp
from squall_common.cluster.treewalk import read_each
from squall_common.cluster.values import Assignment, StormBase, TopologyStatus
from squall_common.daemon.clock import Clock
from squall_common.daemon.logs import get_logger
from squall_common.errors import SquallError
from squall_common.topology.model import Executor, WorkerSlot
from squall_nimbus.all_topologies import read_topologies
from squall_nimbus.blobs.store import BlobNotFoundError
from squall_nimbus.scheduler import heartbeats
from squall_nimbus.scheduler.heartbeats import Heartbeats
from squall_nimbus.scheduler.lost_nodes import LostNodes
from squall_nimbus.scheduler.monitor import Beats, Monitor
from squall_nimbus.scheduler.plan import AssignmentPlan, Wanted, plan
from squall_nimbus.scheduler.snapshot import Supervisor
from squall_nimbus.store.topology_store import TopologyStore
from squall_thrift.serving.off_loop import off_loop_if

log = get_logger(__name__)

_EXECUTORS_SHOWN = 50
# Above this many executors, judging and planning runs off the loop: it takes some 10 ms.
_EXECUTORS_ON_LOOP_MAX = 500


@dataclass
class _Round:
    """The data that a round has read."""

    topologies: dict[str, StormBase]
    current: dict[str, Assignment]
    supervisors: tuple[Supervisor, ...]
    unreadable: frozenset[str] = frozenset()  # have an assignment that cannot be read
    held: frozenset[WorkerSlot] = frozenset()  # where those last ran, as far as known
    beats: dict[str, Beats] = field(default_factory=dict)  # in ZooKeeper
    # Slots of topologies that are new to this leader whose workers reported to the last one.
    launched: dict[str, Set[WorkerSlot]] = field(default_factory=dict)
    dead: dict[str, frozenset[Executor]] = field(default_factory=dict)

    @cached_property
    def is_large(self) -> bool:
        """Whether planning it would block the loop. Asked when all topologies are there."""
        executors = sum(sum(base.component_executors.values()) for base in self.topologies.values())
        return executors > _EXECUTORS_ON_LOOP_MAX


class Assigner:
    """Makes assignments. Raises the store's errors; after one, the work is undone or partly done,
    and the next round continues from there."""

    def __init__(
        self,
        state: ClusterState,
        topology_store: TopologyStore,
        monitor: Monitor,
        reported: Heartbeats,
        *,
        clock: Clock,
        master_code_dir: str,
        record_event: Callable[[str, str, str], None] = lambda topology_id, name, text: None,
    ) -> None:
        """`record_event(topology_id, event, text)` adds an event to the history of a topology."""
        self._state = state
        self._topology_store = topology_store
        self._monitor = monitor
        self._reported = reported
        self._clock = clock
        self._master_code_dir = master_code_dir
        self._record_event = record_event
        self._lock = asyncio.Lock()
        self._term: Fence | None = None
        self.observe_round: Callable[[float], object] = lambda secs: None
        """Called with the seconds of each whole round."""
        self._without_code: set[str] = set()  # already logged
        self._lost_nodes = LostNodes()
        self._last: dict[str, Assignment] = {}  # by topology, as last read

    async def judge(self, fence: Fence) -> None:
        """Move dead executors, and place those without a slot."""
        began = self._clock.monotonic()
        try:
            await self._judge(fence)
        finally:
            self.observe_round(self._clock.monotonic() - began)

    async def _judge(self, fence: Fence) -> None:
        async with self._lock:
            self._begin_term(fence)
            seen = await self._read()
            self._log_lost_nodes(seen)
            for topology_id, beats in (
                await read_each(seen.topologies, self._state.worker_signs)
            ).items():
                if isinstance(beats, BaseException):
                    raise beats
                seen.beats[topology_id] = beats
            for topology_id in self._monitor.topologies() - seen.topologies.keys():
                self._monitor.forget(topology_id)
            self._reported.forget_others(seen.topologies.keys())
            await self._read_launched(seen)
            # Other users of the monitor meanwhile only record that an executor is alive.
            now = self._clock.monotonic()
            self._monitor.awake(asyncio.get_running_loop().time(), now)
            seen.dead = await off_loop_if(seen.is_large, self._find_dead, seen, now)
            self._log_dead(seen)
            await self._carry_out(seen, await self._plan(seen), fence)
            await self._forget_old_beats(seen, fence)
            await self._write_heartbeats(seen, fence)

    def _begin_term(self, fence: Fence) -> None:
        """In the first round of a term, forget what was seen in an earlier one: another Nimbus may
        have led since."""
        if fence is not self._term:
            self._term = fence
            for topology_id in list(self._monitor.topologies()):
                self._monitor.forget(topology_id)

    async def _read_launched(self, seen: _Round) -> None:
        """Read what the last leader wrote about the topologies that are new here."""
        new = [
            i
            for i in seen.current.keys() & seen.topologies.keys()
            if not self._monitor.executors(i)
        ]
        found = await read_each(new, self._state.topology_heartbeats)
        for topology_id, written in found.items():
            if isinstance(written, BaseException):
                raise written
            if written is not None:
                assignment = seen.current[topology_id]
                large = len(assignment.executor_slot) > _EXECUTORS_ON_LOOP_MAX
                seen.launched[topology_id] = await off_loop_if(
                    large, heartbeats.launched, written, assignment
                )

    async def assign(
        self, topology_id: str, base: StormBase, *, spread: bool, fence: Fence
    ) -> None:
        """Make an assignment for a topology, and write it and `base` in one transaction. Raises
        SquallError if that is impossible for this topology."""
        async with self._lock:
            self._begin_term(fence)
            seen = await self._read()
            if topology_id in seen.unreadable:
                raise SquallError(f"the assignment of {topology_id} cannot be read")
            seen.topologies[topology_id] = base
            round_plan = await self._plan(seen, target=topology_id, spread=spread)
            await self._carry_out(seen, round_plan, fence, target=topology_id)

    async def _read(self) -> _Round:
        topologies, assignments, supervisors = await asyncio.gather(
            read_topologies(self._state), self._state.read_assignments(), self._state.supervisors()
        )
        await self._topology_store.have(topologies.bases)
        current: dict[str, Assignment] = {}
        unreadable = set()
        for topology_id, found in assignments.items():
            if isinstance(found, CorruptStateError):
                unreadable.add(topology_id)
            else:
                current[topology_id] = found[0]
        last = {i: self._last[i] for i in unreadable & self._last.keys()}
        self._last = {**current, **last}
        held = {slot for i in unreadable for slot in await self._slots_of(i)}
        return _Round(
            topologies=topologies.bases,
            current=current,
            unreadable=frozenset(unreadable),
            held=frozenset(held),
            supervisors=tuple(
                Supervisor(supervisor_id, info.hostname, tuple(info.meta))
                for supervisor_id, info in sorted(supervisors.items())
            ),
        )

    def _log_lost_nodes(self, seen: _Round) -> None:
        connected = [supervisor.id for supervisor in seen.supervisors]
        lost, back = self._lost_nodes.look(connected, seen.current)
        for one in lost:
            log.warning(
                "supervisor_lost",
                supervisor_id=one.supervisor_id,
                host=one.hostname,
                topologies=" ".join(one.topologies),
            )
        for supervisor_id in back:
            log.info("supervisor_back", supervisor_id=supervisor_id)

    async def _slots_of(self, topology_id: str) -> Set[WorkerSlot]:
        """Return the slots of a topology whose assignment cannot be read: as last read, or those
        that its workers' heartbeats name."""
        known = self._last.get(topology_id)
        if known is not None:
            return set(known.executor_slot.values())
        written = await self._state.topology_heartbeats(topology_id)
        reporting = set() if written is None else {one.slot for one in written.workers}
        return reporting | (await self._state.worker_signs(topology_id)).keys()

    def _find_dead(self, seen: _Round, now: float) -> dict[str, frozenset[Executor]]:
        offered = {supervisor.id: set(supervisor.ports) for supervisor in seen.supervisors}
        found = {}
        for topology_id in seen.topologies.keys() - seen.unreadable:
            assignment = seen.current.get(topology_id)
            placement = assignment.executor_slot if assignment else {}
            self._monitor.observe(
                topology_id,
                placement,
                seen.beats[topology_id],
                now,
                seen.launched.get(topology_id, frozenset()),
            )
            if dead := self._monitor.dead(topology_id, offered, now):
                found[topology_id] = dead
        return found

    def _log_dead(self, seen: _Round) -> None:
        for topology_id, dead in sorted(seen.dead.items()):
            slots = {seen.current[topology_id].executor_slot[executor] for executor in dead}
            log.warning(
                "executors_dead",
                topology_id=topology_id,
                executors=_show(dead),
                slots=" ".join(sorted(map(str, slots))),
            )

    async def _plan(
        self, seen: _Round, target: str | None = None, spread: bool = False
    ) -> AssignmentPlan:
        return await off_loop_if(seen.is_large, self._make_plan, seen, target, spread)

    def _make_plan(self, seen: _Round, target: str | None, spread: bool) -> AssignmentPlan:
        wanted = [
            self._wanted(seen, topology_id, base, target=target, spread=spread)
            for topology_id, base in seen.topologies.items()
            if topology_id not in seen.unreadable
        ]
        # A topology that runs but cannot be read (or is being removed) keeps its slots.
        wanted += [
            Wanted(topology_id, 1, {}, assignment, fixed=True)
            for topology_id, assignment in sorted(seen.current.items())
            if topology_id not in seen.topologies
        ]
        return plan(
            seen.supervisors,
            wanted,
            master_code_dir=self._master_code_dir,
            now_epoch_secs=int(self._clock.time()),
            held=seen.held,
        )

    def _wanted(
        self, seen: _Round, topology_id: str, base: StormBase, *, target: str | None, spread: bool
    ) -> Wanted:
        current = seen.current.get(topology_id)
        fixed = base.status is TopologyStatus.KILLED
        component_of: Mapping[Executor, str] = {}
        if not fixed:
            try:
                component_of = self._topology_store.get(topology_id).component_of(base)
                self._without_code.discard(topology_id)
            except (BlobNotFoundError, SquallError) as error:
                if topology_id == target:
                    raise SquallError(f"Nimbus does not have the code of {topology_id}") from error
                fixed = True
                if topology_id not in self._without_code:
                    log.error("topology_without_code", topology_id=topology_id, error=error)
                    self._without_code.add(topology_id)
        return Wanted(
            topology_id,
            base.num_workers,
            component_of,
            current,
            dead=seen.dead.get(topology_id, frozenset()),
            spread=spread and topology_id == target,
            fixed=fixed,
            owner=base.owner,
        )

    async def _carry_out(
        self, seen: _Round, round_plan: AssignmentPlan, fence: Fence, target: str | None = None
    ) -> None:
        """Store changed assignments, one transaction for each topology; the target's together with
        its StormBase. Raises SquallError if the target's cannot be stored."""
        order = sorted(round_plan.changed | ({target} if target else set()))
        # All are encoded before any is written: a topology whose assignment does not fit keeps its
        # slots, which no other may get then.
        changes: dict[str, list[Op]] = {}
        failed: dict[str, Exception] = {}
        for topology_id in order:
            try:
                changes[topology_id] = await off_loop_if(
                    seen.is_large,
                    self._changes,
                    seen,
                    round_plan,
                    topology_id,
                    topology_id == target,
                )
            except (StoreError, ValueError) as error:
                failed[topology_id] = error
        for topology_id in order:
            if topology_id in changes:
                await self._carry_out_one(
                    seen, round_plan, topology_id, changes[topology_id], failed, fence
                )
        for topology_id, why in failed.items():
            log.error("assignment_not_written", topology_id=topology_id, error=why)
        if target in failed:
            why = failed[target]
            raise SquallError(f"the assignment of {target} cannot be written: {why}") from why

    def _changes(
        self, seen: _Round, round_plan: AssignmentPlan, topology_id: str, with_base: bool
    ) -> list[Op]:
        ops: list[Op] = []
        if topology_id in round_plan.changed:
            value = codec.encode_assignment(round_plan.assignments[topology_id])
            path = paths.assignment(topology_id)
            ops.append(SetOp(path, value) if topology_id in seen.current else Create(path, value))
        if with_base:
            base = codec.encode_storm_base(seen.topologies[topology_id])
            ops.append(SetOp(paths.storm(topology_id), base))
        check_transaction(ops)
        return ops

    async def _carry_out_one(
        self,
        seen: _Round,
        round_plan: AssignmentPlan,
        topology_id: str,
        ops: list[Op],
        failed: dict[str, Exception],
        fence: Fence,
    ) -> None:
        """Write one topology's change, or add the reason why not to `failed`."""
        changed = topology_id in round_plan.changed
        placed = round_plan.placed.get(topology_id, frozenset())
        assignment = round_plan.assignments[topology_id] if changed else None
        if assignment is not None:
            not_left = {
                slot
                for other in failed.keys() & seen.current.keys() - {topology_id}
                for slot in seen.current[other].executor_slot.values()
            }
            if not_left and not_left & {assignment.executor_slot[e] for e in placed}:
                failed[topology_id] = SquallError("one of its new slots is still in use")
                return
        if changed and placed and topology_id not in seen.beats:
            # Heartbeats that exist before the new workers start are not theirs.
            seen.beats[topology_id] = await self._state.worker_signs(topology_id)
        try:
            await fence.transaction(ops)
        except (ConnectionLostError, NotLeaderError):
            raise
        except StoreError as error:  # for example, it has just been removed
            failed[topology_id] = error
            return
        if assignment is not None:
            await self._report(seen, topology_id, assignment, placed)

    async def _report(
        self, seen: _Round, topology_id: str, assignment: Assignment, placed: frozenset[Executor]
    ) -> None:
        """Report what was written to the monitor, the log and the topology's history."""
        now = self._clock.monotonic()

        def note() -> Set[WorkerSlot]:
            placement = assignment.executor_slot
            if placed:
                self._monitor.put(topology_id, placement, placed, seen.beats[topology_id], now)
            return set(placement.values())

        large = len(assignment.executor_slot) > _EXECUTORS_ON_LOOP_MAX
        slots = await off_loop_if(large, note)
        log.info(
            "assignment_changed",
            topology_id=topology_id,
            executors=len(assignment.executor_slot),
            workers=len(slots),
            placed=len(placed),
        )
        dead = seen.dead.get(topology_id)
        self._record_event(
            topology_id,
            "reassigned" if topology_id in seen.current else "assigned",
            f"{len(assignment.executor_slot)} executors on {len(slots)} workers, "
            f"{len(placed)} of them newly placed" + (f"; dead: {_show(dead)}" if dead else ""),
        )

    async def _forget_old_beats(self, seen: _Round, fence: Fence) -> None:
        """Remove heartbeats of slots that a topology had before this round and has left, and those
        that workers wrote to ZooKeeper before they reported over Thrift."""
        now = self._clock.monotonic()
        for topology_id, beats in seen.beats.items():
            assignment = seen.current.get(topology_id)
            if assignment is None:
                continue
            in_use = set(assignment.executor_slot.values())
            superseded = self._reported.superseded(topology_id, beats, now)
            for slot in (beats.keys() - in_use) | superseded:
                try:
                    await self._state.remove_worker_beat(topology_id, slot, guard=fence)
                except (ConnectionLostError, NotLeaderError):
                    raise
                except StoreError as error:
                    log.warning("old_beat_not_removed", topology_id=topology_id, error=error)

    async def _write_heartbeats(self, seen: _Round, fence: Fence) -> None:
        """Write who reports, for the next leader."""
        now, time_secs = self._clock.monotonic(), int(self._clock.time())

        async def write(topology_id: str) -> None:
            assignment = self._last.get(topology_id)
            slots = set() if assignment is None else set(assignment.executor_slot.values())
            self._reported.keep(topology_id, slots)
            due = self._reported.due(topology_id, time_secs, now)
            if due is not None:
                await self._state.put_topology_heartbeats(topology_id, due, guard=fence)

        for topology_id, error in (await read_each(seen.topologies, write)).items():
            if isinstance(error, ConnectionLostError | NotLeaderError):
                raise error
            if isinstance(error, BaseException):
                log.warning("heartbeats_not_written", topology_id=topology_id, error=error)


def _show(executors: Set[Executor]) -> str:
    first = sorted(executors)[:_EXECUTORS_SHOWN]
    more = len(executors) - len(first)
    shown = " ".join(f"{e.task_start}-{e.task_end}" for e in first)
    return f"{shown} and {more} more" if more else shown
