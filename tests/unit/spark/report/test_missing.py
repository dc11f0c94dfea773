"""History that died with its worker."""

from __future__ import annotations

from squall_spark.report.analyse import analyse
from squall_spark.report.missing import Missing, missing_spans
from squall_spark.report.page import page
from squall_spark.report.sums import Event, StepSums, Sums, TaskSums, WorkerSpan


def event(at: int, name: str, place: str = "h:1") -> Event:
    return Event(at, name, "killed by SIGKILL", place, "t")


def spans(events: list[Event], written: list[WorkerSpan]) -> list[Missing]:
    exits = [{"place": e.place, "at_ms": e.at_ms} for e in events if e.name == "worker exited"]
    return missing_spans(exits, events, written, 10_000)


def test_it_is_missing_from_the_last_record_to_the_exit() -> None:
    events = [event(0, "worker running"), event(100_000, "worker exited")]
    (gap,) = spans(events, [WorkerSpan("h:1", 0, 60_000, ("count",))])
    assert gap == Missing("h:1", 60_000, 100_000, ("count",))
    assert gap.covers(70_000, 10_000, "count")
    assert not gap.covers(70_000, 10_000, "other")
    assert not gap.covers(100_000, 10_000, "count")
    assert not gap.covers(40_000, 30_000, "count"), "less than half"


def test_a_worker_that_wrote_nothing_is_missing_since_it_ran() -> None:
    events = [
        event(0, "worker running"),
        event(50_000, "worker exited"),
        event(60_000, "worker running"),
        event(90_000, "worker exited"),
    ]
    written = [WorkerSpan("h:1", 0, 49_000, ("count",))]
    assert spans(events, written) == [Missing("h:1", 60_000, 90_000, ())]


def test_nothing_is_missing_of_a_worker_that_wrote_to_its_end() -> None:
    events = [event(0, "worker running"), event(100_000, "worker exited")]
    assert spans(events, [WorkerSpan("h:1", 0, 91_000, ("count",))]) == []
    assert spans(events, [WorkerSpan("h:2", 0, 10_000, ("count",))]) == [
        Missing("h:1", 0, 100_000, ())
    ]


def test_a_missing_span_is_a_gap_that_says_so_and_no_dip() -> None:
    sums = Sums(from_ms=0, to_ms=100_000, step_ms=10_000, interval_ms=10_000)
    sums.tasks.append(TaskSums("src", 1, 1, True, 60.0, 60_000, emitted=600))
    for t in range(0, 60_000, 10_000):
        sums.steps["src", t] = StepSums(emitted=100, secs=10.0, emitted_per_sec=10.0)
    sums.events = [event(0, "worker running"), event(80_000, "worker exited")]
    sums.spans = [WorkerSpan("h:1", 0, 60_000, ("src",))]
    report = analyse(sums, topology_id="top-1-1")
    rates = report["components"]["src"]["over_time"]["per_sec"]
    assert rates[:6] == [10.0] * 6
    assert rates[6:8] == [None, None]
    assert rates[8] == 0.0, "no worker ran"
    assert any("died with it" in note for note in report["notes"])
    html = page(report)
    assert 'class="gap"' in html
    assert "the history of a worker is missing" in html
