"""What components of a large topology do now, from sums that their workers report."""

from __future__ import annotations

import pytest
from tests.support.ui_structs import ID

from squall_common.telemetry.sums import ComponentSums, WorkerSums, encode_sums
from squall_thrift import storm
from squall_ui.live.sums import WorkersSums


def report(
    ms: int, port: int = 6700, data: bytes | None = None, **components: ComponentSums
) -> storm.SupervisorWorkerHeartbeat:
    return storm.SupervisorWorkerHeartbeat(
        storm_id=ID,
        executors=[],
        time_secs=0,
        port=port,
        supervisor_id="sup-a",
        sums=encode_sums(WorkerSums(ms, components)) if data is None else data,
    )


def nothing(port: int) -> storm.SupervisorWorkerHeartbeat:
    """Of a worker that reports no sums."""
    one = report(0, port)
    one.sums = None
    return one


def work(executed: int, secs: float = 0.0) -> ComponentSums:
    return ComponentSums(
        executed=executed,
        acked=executed,
        busy_secs=2 * secs,
        execute_secs=secs,
        process_secs=3 * secs,
        by_source=(("lines", "default", executed),),
        blocked_secs={"sink": secs},
        sent_bytes={"sink": 10 * executed},
        busiest=(2, 3, secs),
    )


def test_what_all_workers_do_adds_up() -> None:
    sums = WorkersSums()
    assert not sums.take([report(1_000, split=work(100)), report(9_000, 6701, split=work(7))])
    # (Each worker has its own time.)
    assert sums.take(
        [report(3_000, split=work(300, 1.0)), report(13_000, 6701, split=work(407, 0.8))]
    )
    flow = sums.now()["split"]
    assert (flow.executed, flow.acked) == (200, 200)
    assert flow.by_source == {("lines", "default"): 200}
    assert flow.busy == pytest.approx(1.0 + 0.4)
    assert flow.execute_ms == pytest.approx(1000 * (0.5 + 0.2) / 200)
    assert flow.process_ms == pytest.approx(3000 * (0.5 + 0.2) / 200)
    assert flow.blocked == {"sink": pytest.approx(0.7)}
    assert flow.sent_bytes == {"sink": pytest.approx(2_000)}
    found = sums.busiest()["split"]
    assert (found.first_task, found.last_task, found.slot) == (2, 3, ("sup-a", 6700))


def test_a_rate_that_drops_is_seen_within_a_second_and_judged_by_ten() -> None:
    sums, executed, shown = WorkersSums(), 0, []
    for ms in range(0, 15_001, 250):
        executed += 25 if 0 < ms <= 12_000 else 0
        if sums.take([report(ms, split=work(executed))]):
            shown.append(round(sums.now()["split"].executed))
    assert shown[:48] == [100] * 48
    assert shown[48:] == [88, 75, 62, 50, 38, 25, 12, 0, 0, 0, 0, 0]
    assert sums.steady()["split"].executed == pytest.approx(70, abs=8)


def test_sums_of_a_part_of_the_workers_say_nothing() -> None:
    sums = WorkersSums()
    for ms in (1_000, 2_000, 3_000):
        assert not sums.take([report(ms, split=work(ms)), nothing(6701)])
    for damaged in (b"", b"\xff", b"\x92\x01\xa1x", b"\x92\x01\x81\xa1x\x91\xd3" + b"\xff" * 8):
        assert not sums.take([report(4_000, split=work(9)), report(0, 6701, data=damaged)])
    assert not sums.take([])


def test_another_worker_in_the_slot_begins_anew() -> None:
    sums = WorkersSums()
    for ms in (60_000, 61_000):
        sums.take([report(ms, split=work(ms))])
    assert not sums.take([report(500, split=work(10))])
    assert sums.take([report(1_500, split=work(20))])
    assert sums.now()["split"].executed == 10


def test_a_report_that_was_left_when_the_last_page_was_closed_says_nothing_about_now() -> None:
    sums = WorkersSums()
    assert not sums.take([report(60_000, split=work(0))])
    assert not sums.take([report(3_600_000, split=work(1_000_000))])
    assert sums.take([report(3_601_000, split=work(1_000_010))])
    assert sums.now()["split"].executed == sums.steady()["split"].executed == 10


def test_the_same_report_again_changes_nothing_and_made_up_counters_are_not_negative() -> None:
    sums = WorkersSums()
    assert not sums.take([report(1_000, split=work(100))])
    assert not sums.take([report(1_000, split=work(100))])
    assert sums.take([report(2_000, split=work(50))])
    assert sums.now()["split"].executed == 0
