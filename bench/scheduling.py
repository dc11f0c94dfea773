"""A scheduling round of clusters of growing size: as many topologies as supervisors, four workers
and ten executors each. CPU time of planning alone: what is read and written is not in it.

    new         nothing runs yet
    unchanged   all is as it should be
    node lost   the workers of one supervisor are dead, and their executors move
    whole       a round of Nimbus with nothing placed yet: it reads the cluster state (in memory),
                plans, and writes every assignment
"""

from __future__ import annotations

import asyncio
import gc
import statistics
import sys
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from bench.runs import WrongCountError
from bench.tables import Table, met, number
from squall_common.cluster.state import ClusterState
from squall_common.cluster.stores.memory import MemoryEnsemble, MemoryStore
from squall_common.cluster.values import StormBase, SupervisorInfo, TopologyStatus
from squall_common.daemon.clock import SystemClock
from squall_common.topology.model import Executor
from squall_nimbus.scheduler.assigner import Assigner
from squall_nimbus.scheduler.heartbeats import Heartbeats
from squall_nimbus.scheduler.monitor import Monitor
from squall_nimbus.scheduler.plan import AssignmentPlan, Wanted, plan
from squall_nimbus.scheduler.snapshot import Supervisor

WORKERS, EXECUTORS, PORTS = 4, 10, 6
# goal and limit, of 1,000 supervisors
GOALS_MS = {"new": (300.0, 800.0), "unchanged": (30.0, None)}
WHOLE_MS_MAX = 2_000.0
GOAL_AT = 1_000
COMPONENTS = {Executor(t, t): f"component-{t // 4}" for t in range(1, EXECUTORS + 1)}


@dataclass(frozen=True, slots=True)
class Case:
    name: str
    supervisors: int


def cases() -> list[Case]:
    return [Case(f"supervisors_{n}", n) for n in (100, 300, 1_000, 3_000)]


def _supervisors(count: int) -> tuple[Supervisor, ...]:
    ports = tuple(range(6700, 6700 + PORTS))
    return tuple(Supervisor(f"supervisor-{i:05}", f"host-{i}", ports) for i in range(count))


def _wanted(count: int) -> list[Wanted]:
    return [Wanted(f"topology-{i}", WORKERS, COMPONENTS, None) for i in range(count)]


class _Codes:
    """In place of a TopologyStore: the code of every topology is here, and is the same."""

    async def have(self, topologies: Iterable[str]) -> None: ...

    def get(self, topology_id: str) -> _Codes:
        return self

    def component_of(self, base: StormBase) -> Mapping[Executor, str]:
        return COMPONENTS


async def _whole(count: int) -> tuple[float, float]:
    """CPU ms of a round of Nimbus in which all is new, and of the one after it."""
    sizes = {name: list(COMPONENTS.values()).count(name) for name in COMPONENTS.values()}
    state = ClusterState(MemoryStore(MemoryEnsemble()))
    await state.start()
    try:
        for one in _supervisors(count):
            await state.register_supervisor(
                one.id, SupervisorInfo(0, one.hostname, "", meta=tuple(one.ports))
            )
        for number in range(count):
            base = StormBase(f"topology-{number}", TopologyStatus.ACTIVE, WORKERS, sizes)
            await state.create_topology(f"topology-{number}", base)
        monitor = Monitor(task_timeout_secs=30, launch_secs=120, session_timeout_secs=20)
        assigner = Assigner(
            state, _Codes(), monitor, Heartbeats(monitor),  # type: ignore[arg-type]
            clock=SystemClock(), master_code_dir="/",
        )  # fmt: skip
        took = []
        for _ in range(2):
            begin = time.process_time()
            await assigner.judge(state.store)
            took.append(1_000 * (time.process_time() - begin))
        placed = await state.read_assignments()
        if len(placed) != count:
            raise WrongCountError(f"{len(placed)} of {count} topologies were placed")
    finally:
        await state.close()
    return took[0], took[1]


def _timed(
    supervisors: tuple[Supervisor, ...], wanted: list[Wanted]
) -> tuple[AssignmentPlan, float]:
    gc.collect()  # of what was made before; it would fall into one of the rounds
    begin = time.process_time()
    made = plan(supervisors, wanted, master_code_dir="/", now_epoch_secs=0)
    return made, 1_000 * (time.process_time() - begin)


def _measure(case: Case) -> dict[str, float]:
    supervisors, wanted = _supervisors(case.supervisors), _wanted(case.supervisors)
    new, new_ms = _timed(supervisors, wanted)
    placed = [replace(one, current=new.assignments[one.id]) for one in wanted]
    unchanged, unchanged_ms = _timed(supervisors, placed)
    if len(new.changed) != len(wanted) or unchanged.changed:
        raise WrongCountError(f"{case.name}: {len(new.changed)}, {len(unchanged.changed)} changed")
    lost = supervisors[0].id
    touched = [replace(one, dead=_on(one, lost)) for one in placed]
    moved, lost_ms = _timed(supervisors[1:], touched)
    if moved.changed != {one.id for one in touched if one.dead}:
        raise WrongCountError(f"{case.name}: {len(moved.changed)} topologies moved")
    whole_ms, again_ms = asyncio.run(_whole(case.supervisors))
    return {
        "new": new_ms, "unchanged": unchanged_ms, "lost": lost_ms, "whole": whole_ms,
        "whole_unchanged": again_ms,
    }  # fmt: skip


def _on(wanted: Wanted, supervisor_id: str) -> frozenset[Executor]:
    assert wanted.current is not None
    slots = wanted.current.executor_slot
    return frozenset(executor for executor, slot in slots.items() if slot.node == supervisor_id)


def take(pairs: int, only: set[str] | None = None) -> dict[str, Any]:
    """Each case `pairs` times, by turns; medians are reported."""
    chosen = [case for case in cases() if only is None or case.name in only]
    taken: dict[str, list[dict[str, float]]] = {case.name: [] for case in chosen}
    for _ in range(pairs):
        for case in chosen:
            print(f"{case.name} ...", file=sys.stderr, flush=True)
            taken[case.name].append(_measure(case))
    rows = {
        case.name: {
            "supervisors": case.supervisors,
            **{
                f"{what}_ms": statistics.median(run[what] for run in taken[case.name])
                for what in ("new", "unchanged", "lost", "whole", "whole_unchanged")
            },
        }
        for case in chosen
    }
    return {"pairs": pairs, "counts_checked": True, "cases": rows}


def tables(report: Mapping[str, Any]) -> list[Table]:
    rows = []
    for row in report["cases"].values():
        verdict = ""
        if row["supervisors"] == GOAL_AT:
            verdict = " and ".join(
                met(row[f"{what}_ms"], goal, limit, at_most=True)
                for what, (goal, limit) in {**GOALS_MS, "whole": (WHOLE_MS_MAX, None)}.items()
                if f"{what}_ms" in row
            )
        rows.append(
            [
                f"{row['supervisors']:,}",
                f"{row['supervisors'] * EXECUTORS:,}",
                number(row["new_ms"]),
                number(row["unchanged_ms"]),
                number(row["lost_ms"]),
                number(row.get("whole_ms")),
                number(row.get("whole_unchanged_ms")),
                verdict,
            ]
        )
    columns = [
        "supervisors, topologies", "executors", "new: CPU, ms", "unchanged: CPU, ms",
        "node lost: CPU, ms", "whole round: CPU, ms", "the same, unchanged", "goals met",
    ]  # fmt: skip
    note = (
        f"Medians of {report['pairs']} rounds. The goals are {GOALS_MS['new'][0]:g} ms (limit "
        f"{GOALS_MS['new'][1]:g}) for a new cluster of {GOAL_AT:,} supervisors, and "
        f"{GOALS_MS['unchanged'][0]:g} ms for an idle one; {WHOLE_MS_MAX:,g} ms for a whole round "
        "of the new one, in which Nimbus reads and writes the cluster state (in memory)."
    )
    return [Table("A scheduling round", columns, rows, [note])]
