"""A scheduling round of clusters of growing size: as many topologies as supervisors, four workers
and ten executors each. CPU time of planning alone: what is read and written is not in it.

    new         nothing runs yet
    unchanged   all is as it should be
    node lost   the workers of one supervisor are dead, and their executors move
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from bench.runs import WrongCountError
from bench.tables import Table, met, number
from squall_common.topology.model import Executor
from squall_nimbus.scheduler.plan import AssignmentPlan, Wanted, plan
from squall_nimbus.scheduler.snapshot import Supervisor

WORKERS, EXECUTORS, PORTS = 4, 10, 6
# goal and limit, of 1,000 supervisors
GOALS_MS = {"new": (300.0, 800.0), "unchanged": (30.0, None)}
GOAL_AT = 1_000


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
    components = {Executor(t, t): f"component-{t // 4}" for t in range(1, EXECUTORS + 1)}
    return [Wanted(f"topology-{i}", WORKERS, components, None) for i in range(count)]


def _timed(
    supervisors: tuple[Supervisor, ...], wanted: list[Wanted]
) -> tuple[AssignmentPlan, float]:
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
    return {"new": new_ms, "unchanged": unchanged_ms, "lost": lost_ms}


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
                for what in ("new", "unchanged", "lost")
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
                for what, (goal, limit) in GOALS_MS.items()
            )
        rows.append(
            [
                f"{row['supervisors']:,}",
                f"{row['supervisors'] * EXECUTORS:,}",
                number(row["new_ms"]),
                number(row["unchanged_ms"]),
                number(row["lost_ms"]),
                verdict,
            ]
        )
    columns = [
        "supervisors, topologies", "executors", "new: CPU, ms", "unchanged: CPU, ms",
        "node lost: CPU, ms", "goals met",
    ]  # fmt: skip
    note = (
        f"Medians of {report['pairs']} rounds. The goals are {GOALS_MS['new'][0]:g} ms (limit "
        f"{GOALS_MS['new'][1]:g}) for a new cluster of {GOAL_AT:,} supervisors, and "
        f"{GOALS_MS['unchanged'][0]:g} ms for an idle one."
    )
    return [Table("A scheduling round", columns, rows, [note])]
