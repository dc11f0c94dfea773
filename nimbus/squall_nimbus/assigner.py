"""Rounds of scheduling: read the cluster, decide, and store what changed.

A round reads everything anew, so that none depends on what an earlier one thought. One round runs
at a time. A round that judges reads heartbeats first and moves what is dead; the others (a submit,
a rebalance) only place what has no slot, and leave judging to the monitor.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import Protocol

from squall.clock import Clock
from squall.cluster import codec, paths
from squall.cluster.state import ClusterState
from squall.cluster.store import Create, Op
from squall.cluster.store import Set as SetOp
from squall.cluster.values import Assignment, StormBase, TopologyStatus
from squall.errors import SquallError
from squall.logs import get_logger
from squall.model import Executor
from squall_nimbus.blobs import BlobNotFoundError
from squall_nimbus.catalog import Catalog
from squall_nimbus.lost_nodes import LostNodes
from squall_nimbus.monitor import Beats, Monitor
from squall_nimbus.scheduler.plan import Plan, Wanted, plan
from squall_nimbus.scheduler.snapshot import Supervisor
from squall_nimbus.storms import read_storms

log = get_logger(__name__)

# ZooKeeper takes requests below 1 MiB: larger sets of changes go out in several transactions.
_TRANSACTION_BYTES_MAX = 500_000


class Fence(Protocol):
    """The leader's right to write: `squall.cluster.leader.Leadership`."""

    async def transaction(self, ops: Sequence[Op]) -> None: ...


@dataclass(slots=True)
class _Round:
    """What a round read."""

    storms: dict[str, StormBase]
    current: dict[str, Assignment]
    supervisors: tuple[Supervisor, ...]
    beats: dict[str, Beats] = field(default_factory=dict)
    dead: dict[str, frozenset[Executor]] = field(default_factory=dict)


class Assigner:
    """Makes assignments. Errors of the store are raised, and leave everything as it was or further
    along the same way: the next round goes on from there."""

    def __init__(
        self,
        state: ClusterState,
        catalog: Catalog,
        monitor: Monitor,
        *,
        clock: Clock,
        master_code_dir: str,
        tell: Callable[[str, str, str], None] = lambda topology_id, name, text: None,
    ) -> None:
        """`tell(topology_id, event, text)` is told of what the history of a topology is to have."""
        self._state = state
        self._catalog = catalog
        self._monitor = monitor
        self._clock = clock
        self._master_code_dir = master_code_dir
        self._tell = tell
        self._lock = asyncio.Lock()
        self._without_code: set[str] = set()  # warned of
        self._lost_nodes = LostNodes()

    async def judge(self, fence: Fence) -> None:
        """Move what is dead, and place what has no slot."""
        async with self._lock:
            seen = await self._read()
            self._log_lost_nodes(seen)
            found = await asyncio.gather(*(self._state.worker_beats(i) for i in seen.storms))
            seen.beats = dict(zip(seen.storms, found, strict=True))
            now = self._clock.monotonic()
            offered = {supervisor.id: set(supervisor.ports) for supervisor in seen.supervisors}
            for topology_id in self._monitor.topologies() - seen.storms.keys():
                self._monitor.forget(topology_id)
            for topology_id in seen.storms:
                self._judge_topology(seen, topology_id, offered, now)
            await self._carry_out(seen, self._plan(seen), {}, fence)
            await self._forget_old_beats(seen, fence)

    async def assign(
        self, topology_id: str, base: StormBase, *, spread: bool, fence: Fence
    ) -> None:
        """Make an assignment for a topology, and write it and `base` in one transaction."""
        async with self._lock:
            seen = await self._read()
            seen.storms[topology_id] = base
            round_plan = self._plan(seen, target=topology_id, spread=spread)
            await self._carry_out(seen, round_plan, {topology_id: base}, fence)

    async def _read(self) -> _Round:
        storms, assignments, supervisors = await asyncio.gather(
            read_storms(self._state), self._state.all_assignments(), self._state.supervisors()
        )
        await self._catalog.have(storms.bases)
        return _Round(
            storms=storms.bases,
            current={topology_id: found[0] for topology_id, found in assignments.items()},
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

    def _judge_topology(
        self, seen: _Round, topology_id: str, offered: Mapping[str, Set[int]], now: float
    ) -> None:
        assignment = seen.current.get(topology_id)
        placement = assignment.executor_slot if assignment else {}
        self._monitor.observe(topology_id, placement, seen.beats[topology_id], now)
        dead = self._monitor.dead(topology_id, offered, now)
        if dead:
            seen.dead[topology_id] = dead
            log.warning(
                "executors_dead",
                topology_id=topology_id,
                executors=_show(dead),
                slots=" ".join(sorted({str(placement[executor]) for executor in dead})),
            )

    def _plan(self, seen: _Round, target: str | None = None, spread: bool = False) -> Plan:
        wanted = [
            self._wanted(seen, topology_id, base, target=target, spread=spread)
            for topology_id, base in seen.storms.items()
        ]
        # What runs and cannot be read (or is being removed) keeps its slots.
        wanted += [
            Wanted(topology_id, 1, {}, assignment, fixed=True)
            for topology_id, assignment in sorted(seen.current.items())
            if topology_id not in seen.storms
        ]
        return plan(
            seen.supervisors,
            wanted,
            master_code_dir=self._master_code_dir,
            now_epoch_secs=int(self._clock.time()),
        )

    def _wanted(
        self, seen: _Round, topology_id: str, base: StormBase, *, target: str | None, spread: bool
    ) -> Wanted:
        current = seen.current.get(topology_id)
        fixed = base.status is TopologyStatus.KILLED
        component_of: Mapping[Executor, str] = {}
        if not fixed:
            try:
                component_of = self._catalog.get(topology_id).component_of(base)
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
        self, seen: _Round, round_plan: Plan, bases: Mapping[str, StormBase], fence: Fence
    ) -> None:
        """Store changed assignments, and `bases` with them."""
        batch: list[Op] = []
        size = 0
        for topology_id in sorted(round_plan.changed | bases.keys()):
            ops: list[Op] = []
            if topology_id in round_plan.changed:
                value = codec.encode_assignment(round_plan.assignments[topology_id])
                path = paths.assignment(topology_id)
                ops.append(
                    SetOp(path, value) if topology_id in seen.current else Create(path, value)
                )
            if topology_id in bases:
                ops.append(SetOp(paths.storm(topology_id), codec.encode_storm(bases[topology_id])))
            ops_size = sum(len(op.value) for op in ops if isinstance(op, SetOp | Create))
            if batch and size + ops_size > _TRANSACTION_BYTES_MAX:
                await fence.transaction(batch)
                batch, size = [], 0
            batch += ops
            size += ops_size
        if not batch:
            return
        changed = sorted(i for i in round_plan.changed if round_plan.placed[i])
        # What lies there before the new workers start is not theirs.
        missing = [i for i in changed if i not in seen.beats]
        found = await asyncio.gather(*(self._state.worker_beats(i) for i in missing))
        seen.beats.update(zip(missing, found, strict=True))
        await fence.transaction(batch)
        now = self._clock.monotonic()
        for topology_id in sorted(round_plan.changed):
            assignment = round_plan.assignments[topology_id]
            placed = round_plan.placed[topology_id]
            if placed:
                self._monitor.put(
                    topology_id, assignment.executor_slot, placed, seen.beats[topology_id], now
                )
            log.info(
                "assignment_changed",
                topology_id=topology_id,
                executors=len(assignment.executor_slot),
                workers=len(assignment.slots()),
                placed=len(placed),
            )
            dead = seen.dead.get(topology_id)
            self._tell(
                topology_id,
                "reassigned" if topology_id in seen.current else "assigned",
                f"{len(assignment.executor_slot)} executors on {len(assignment.slots())} workers, "
                f"{len(placed)} of them placed anew" + (f"; dead: {_show(dead)}" if dead else ""),
            )

    async def _forget_old_beats(self, seen: _Round, fence: Fence) -> None:
        """Remove heartbeats of slots that a topology had before this round and has left."""
        for topology_id, beats in seen.beats.items():
            assignment = seen.current.get(topology_id)
            if assignment is None:
                continue
            in_use = set(assignment.executor_slot.values())
            for slot in beats.keys() - in_use:
                await self._state.remove_worker_beat(topology_id, slot, guard=fence)


def _show(executors: Set[Executor]) -> str:
    return " ".join(f"{e.task_start}-{e.task_end}" for e in sorted(executors))
