"""What executors do now, from counters that grow."""

from __future__ import annotations

import pytest
from tests.support.ui_structs import bolt_stats, executor, spout_stats

from squall_common.history.histogram import bucket_of, pack
from squall_thrift import storm
from squall_ui.live.rates import Counts, Flow, Rates, flow_between, sum_of


def bolt(uptime: int, executed: int, ms: float = 1.0, task: int = 2) -> storm.ExecutorSummary:
    one = executor("split", task, bolt_stats(executed, ms))
    one.uptime_secs = uptime
    return one


def flows(rates: Rates, *executors: object) -> list[Flow | None]:
    return list(rates.add(executors).values())  # type: ignore[arg-type]


def test_the_first_report_counts_from_the_start() -> None:
    (flow,) = flows(Rates(), bolt(10, 200, 2.0))
    assert flow is not None
    assert (flow.executed, flow.execute_ms, flow.busy) == (20.0, 2.0, pytest.approx(0.04))
    assert flow.by_source == {("lines", "default"): 20.0}


def test_a_rate_is_that_of_the_last_ten_seconds() -> None:
    rates = Rates()
    seen = []
    for uptime, executed in ((1, 1000), (4, 1300), (7, 1600), (10, 1600), (13, 1600), (16, 1600)):
        (flow,) = flows(rates, bolt(uptime, executed))
        assert flow is not None
        seen.append(round(flow.executed))
    assert seen == [1000, 100, 100, 67, 50, 25]


def precise(ms: int, executed: int) -> storm.ExecutorSummary:
    one = bolt(ms // 1000, executed)
    one.stats_ms = ms
    return one


def test_a_rate_that_drops_is_seen_within_a_second_while_reports_come_fast() -> None:
    """A bolt that executed a hundred tuples a second stops. What is judged stays steady."""
    rates, executed, shown = Rates(), 0, []
    for ms in range(250, 15_001, 250):
        executed += 25 if ms <= 12_000 else 0
        (flow,) = flows(rates, precise(ms, executed))
        assert flow is not None
        shown.append(round(flow.executed))
    assert shown[8:48] == [100] * 40
    assert shown[48:60] == [88, 75, 62, 50, 38, 25, 12, 0, 0, 0, 0, 0]
    (steady,) = rates.steady().values()
    assert steady is not None
    assert round(steady.executed) == 70


def test_percentiles_are_those_of_the_last_reports() -> None:
    """A bolt that was fast for an hour and is slow now. What is damaged is left out."""

    def timed(ms: int, fast: int, slow: int) -> storm.ExecutorSummary:
        one = precise(ms, fast + slow)
        histogram = {bucket_of(0.001): fast, bucket_of(0.1): slow}
        source = storm.GlobalStreamId(componentId="lines", streamId="default")
        one.stats.specific.bolt.execute_histograms = {":all-time": {source: pack(histogram)}}
        return one

    rates = Rates()
    (first,) = flows(rates, timed(3_600_000, 1_000_000, 0))
    assert first is not None
    assert first.percentiles_ms() == pytest.approx((1, 1, 1), rel=0.05)
    (flow,) = flows(rates, timed(3_602_000, 1_000_010, 90))
    assert flow is not None
    assert flow.percentiles_ms() == pytest.approx((100, 100, 100), rel=0.05)
    (still,) = flows(rates, timed(3_604_000, 1_000_010, 90))
    assert still is not None
    assert still.percentiles_ms() is None
    both = sum_of([flow, Flow(times=[(b"?", None)]), Flow(times=[(pack({1: 5}), pack({1: 9}))])])
    assert both.percentiles_ms() == pytest.approx((100, 100, 100), rel=0.05)


def test_a_report_that_comes_late_spoils_no_rate() -> None:
    rates = Rates()
    for ms in (1_000, 1_250, 3_900, 4_000):
        flows(rates, precise(ms, ms))
    (flow,) = flows(rates, precise(6_100, 6_100))
    assert flow is not None
    assert flow.executed == pytest.approx(1000)


def test_the_same_report_twice_changes_nothing() -> None:
    rates = Rates()
    flows(rates, bolt(10, 100))
    first = flows(rates, bolt(13, 400))
    assert flows(rates, bolt(13, 400)) == first


def test_a_wait_that_begins_now_is_seen_within_ten_seconds() -> None:
    """Of all time, the share of a topology that has run for a day would not show it for hours."""

    def waits(uptime: int, secs: float) -> storm.ExecutorSummary:
        one = executor("lines", 1, spout_stats(0))
        one.uptime_secs = uptime
        assert one.stats is not None
        one.stats.blocked_secs = {":all-time": {"split": secs}}
        return one

    rates, seen = Rates(), []
    for second in range(0, 16, 3):
        (flow,) = flows(rates, waits(86_400 + second, 10.0 + max(0.0, second - 3.0)))
        assert flow is not None
        seen.append(round(flow.blocked["split"], 2))
    assert seen == [0.0, 0.0, 0.5, 0.67, 0.75, 1.0]
    total = sum_of([flow_between(Counts(0), Counts(10, blocked_secs={"a": n})) for n in (2.0, 4.0)])
    assert total.blocked == {"a": pytest.approx(0.6)}


def test_a_restarted_executor_begins_anew() -> None:
    rates = Rates()
    flows(rates, bolt(1000, 100_000))
    (flow,) = flows(rates, bolt(2, 20))
    assert flow is not None
    assert flow.executed == 10.0


def test_one_that_has_not_reported_is_not_known() -> None:
    silent = executor("split", 2, None)
    assert flows(Rates(), silent) == [None]
    started = executor("lines", 1, spout_stats(0))
    started.uptime_secs = 0
    assert flows(Rates(), started) == [None]


def test_latencies_of_several_are_weighted_by_what_they_did() -> None:
    one = flow_between(Counts(0), Counts(10, executed=900, busy_ms=900.0, execute_ms=900.0))
    other = flow_between(Counts(0), Counts(10, executed=100, busy_ms=1100.0, execute_ms=1100.0))
    total = sum_of([one, other])
    assert total.executed == 100.0
    assert total.execute_ms == pytest.approx(2.0)
    assert total.busy == pytest.approx(0.2)


def test_ticks_make_a_bolt_busy_but_its_tuples_no_slower() -> None:
    stats = bolt_stats(100, 2.0)
    tick = storm.GlobalStreamId(componentId="__system", streamId="__tick")
    of_bolt = stats.specific.bolt
    of_bolt.executed[":all-time"][tick] = 10
    of_bolt.execute_ms_avg[":all-time"][tick] = 500.0
    one = executor("split", 2, stats)
    one.uptime_secs = 10
    (flow,) = flows(Rates(), one)
    assert flow is not None
    assert (flow.executed, flow.execute_ms) == (10.0, 2.0)
    assert flow.busy == pytest.approx(0.52)


def test_bytes_to_other_workers_are_a_rate_and_add_up() -> None:
    first = flow_between(Counts(10, sent_bytes={"b": 100}), Counts(12, sent_bytes={"b": 300}))
    second = flow_between(Counts(10), Counts(12, sent_bytes={"b": 50, "c": 8}))
    assert first.sent_bytes == {"b": 100}
    assert sum_of([first, second]).sent_bytes == {"b": 125, "c": 4}


def test_an_answer_older_than_the_last_heartbeat_changes_nothing() -> None:
    """Nimbus' own answer is read when the last page is closed, and may be older than what the
    workers reported for the page."""
    rates = Rates()
    for uptime in (100, 102, 104, 106):
        (last,) = flows(rates, bolt(uptime, 10 * uptime))
    for _ in range(3):
        assert flows(rates, bolt(103, 1030)) == [last]
    (after,) = flows(rates, bolt(116, 1160))
    assert after is not None
    assert (last.executed, after.executed) == (10.0, 10.0)  # type: ignore[union-attr]


def test_an_executor_that_restarts_when_it_is_young_begins_anew() -> None:
    rates = Rates()
    flows(rates, bolt(10, 1000))
    flows(rates, bolt(2, 10))
    (flow,) = flows(rates, bolt(4, 20))
    assert flow is not None
    assert flow.executed == 5.0


def test_no_executor_is_busy_for_more_than_all_of_its_time() -> None:
    old = Counts(100.0, executed=0, busy_ms=0.0)
    assert flow_between(old, Counts(102.0, executed=10, busy_ms=2_040.0)).busy == 1.0
    assert flow_between(old, Counts(102.0, executed=10, busy_ms=1_000.0)).busy == 0.5


def test_an_executor_that_waits_in_calls_is_busy_by_their_limit() -> None:
    old = Counts(100.0, calls_max=100)
    flow = flow_between(old, Counts(102.0, executed=240, busy_ms=24_000.0, calls_max=100))
    assert (flow.busy, flow.calls) == (pytest.approx(0.12), pytest.approx(12.0))
    full = flow_between(old, Counts(102.0, executed=240, busy_ms=204_000.0, calls_max=100))
    assert (full.busy, full.calls) == (1.0, 100)
    assert sum_of([flow, full]).calls == pytest.approx(112)
