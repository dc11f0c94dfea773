"""When a topology counts as drained: two rounds of reports with nothing in between."""

from collections.abc import Mapping
from dataclasses import replace

import pytest

from squall_common.cluster.values import WorkerDrained
from squall_common.topology.model import WorkerSlot
from squall_nimbus.topologies.drain import DrainReading, DrainWatch, Verdict

A, B = WorkerSlot("node-1", 6700), WorkerSlot("node-2", 6700)
KILLED_ZXID, AGAIN_ZXID = 100, 200


def reports(zxid: int, **changes: object) -> dict[WorkerSlot, WorkerDrained | None]:
    return {
        A: WorkerDrained(zxid, "1-1", 10),
        B: replace(WorkerDrained(zxid, "1-2", 20), **changes),  # type: ignore[arg-type]
    }


def reading(zxid: int, found: Mapping[WorkerSlot, WorkerDrained | None]) -> DrainReading:
    return DrainReading(zxid, frozenset({A, B}), placed=True, reports=found)


def after_the_first_round() -> DrainWatch:
    watch = DrainWatch()
    assert watch.look(reading(KILLED_ZXID, reports(KILLED_ZXID))) is Verdict.ASK_AGAIN
    return watch


def test_two_rounds_with_the_same_work_are_drained() -> None:
    watch = after_the_first_round()
    assert watch.look(reading(AGAIN_ZXID, reports(AGAIN_ZXID))) is Verdict.DRAINED


def test_the_reports_of_the_first_round_do_not_count_for_the_second() -> None:
    watch = after_the_first_round()
    late = {**reports(AGAIN_ZXID), B: reports(KILLED_ZXID)[B]}
    assert watch.look(reading(AGAIN_ZXID, late)) is Verdict.WAIT
    assert watch.look(reading(AGAIN_ZXID, reports(AGAIN_ZXID))) is Verdict.DRAINED


def test_one_round_seen_twice_is_not_two() -> None:
    watch = after_the_first_round()
    assert watch.look(reading(KILLED_ZXID, reports(KILLED_ZXID))) is Verdict.ASK_AGAIN


@pytest.mark.parametrize("change", [{"work": 21}, {"run": "1-3"}], ids=["worked", "restarted"])
def test_a_worker_that_worked_or_restarted_in_between_begins_the_rounds_anew(
    change: dict[str, object],
) -> None:
    watch = after_the_first_round()
    changed = reports(AGAIN_ZXID, **change)
    assert watch.look(reading(AGAIN_ZXID, changed)) is Verdict.ASK_AGAIN
    assert watch.look(reading(300, reports(300, **change))) is Verdict.DRAINED


@pytest.mark.parametrize(
    "found",
    [
        {A: reports(KILLED_ZXID)[A]},
        {**reports(KILLED_ZXID), B: None},
        {**reports(KILLED_ZXID), B: WorkerDrained(KILLED_ZXID - 1, "1-2", 20)},
    ],
    ids=["silent", "busy", "from before the kill"],
)
def test_every_worker_must_report_after_the_kill(
    found: dict[WorkerSlot, WorkerDrained | None],
) -> None:
    assert DrainWatch().look(reading(KILLED_ZXID, found)) is Verdict.WAIT


def test_the_reports_of_workers_that_were_moved_do_not_count() -> None:
    moved = DrainReading(KILLED_ZXID, frozenset({A}), True, {B: reports(KILLED_ZXID)[B]})
    assert DrainWatch().look(moved) is Verdict.WAIT


def test_executors_without_a_slot_are_not_drained() -> None:
    partly = DrainReading(KILLED_ZXID, frozenset({A, B}), False, reports(KILLED_ZXID))
    assert DrainWatch().look(partly) is Verdict.WAIT
    lost = DrainReading(KILLED_ZXID, frozenset(), False, {A: None})
    assert DrainWatch().look(lost) is Verdict.WAIT


def test_a_topology_that_never_had_a_worker_is_drained() -> None:
    empty = DrainReading(KILLED_ZXID, frozenset(), False, {})
    assert DrainWatch().look(empty) is Verdict.DRAINED
