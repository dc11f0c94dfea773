"""What the pages of Nimbus become."""

from __future__ import annotations

from squall_cli.observe.facts import Load, Totals, load_of, rates_between, topology_of
from squall_thrift import storm


def test_rates_are_of_the_time_between_two_looks() -> None:
    before = Totals(10.0, {"count": (100, 50, 1)})
    after = Totals(14.0, {"count": (500, 90, 1), "new": (8, 0, 0)})
    assert rates_between(before, after) == {"count": (100.0, 10.0, 0.0), "new": (2.0, 0.0, 0.0)}


def test_a_count_that_fell_gives_no_negative_rate() -> None:
    before, after = Totals(0.0, {"count": (100, 50, 1)}), Totals(1.0, {"count": (3, 60, 0)})
    assert rates_between(before, after) == {"count": (0.0, 10.0, 0.0)}


def test_a_page_without_any_figures_can_be_read() -> None:
    """As while no worker has reported."""
    page = storm.TopologyPageInfo(
        id="w-1-1",
        id_to_spout_agg_stats={"lines": storm.ComponentAggregateStats()},
        id_to_bolt_agg_stats={"count": storm.ComponentAggregateStats()},
    )
    found = topology_of(storm.TopologySummary(name="w"), page)
    lines, count = found.components
    assert (lines.name, lines.latency_ms, lines.capacity) == ("lines", None, None)
    assert (count.name, count.latency_ms, count.capacity) == ("count", None, 0.0)
    assert found.workers == []


def test_the_load_of_a_bolt_is_that_of_its_executors() -> None:
    shares = ((3, 3, 0.9, 10), (4, 5, 0.1, 5000))  # the first one has begun again
    page = storm.ComponentPageInfo(
        component_id="count",
        component_type=storm.ComponentType.BOLT,
        exec_stats=[
            storm.ExecutorAggregateStats(
                exec_summary=storm.ExecutorSummary(
                    executor_info=storm.ExecutorInfo(task_start=first, task_end=last),
                    component_id="count",
                    host="h",
                    port=6700,
                    uptime_secs=uptime,
                ),
                stats=storm.ComponentAggregateStats(
                    specific_stats=storm.SpecificAggregateStats(
                        bolt=storm.BoltAggregateStats(capacity=share, executed=1200)
                    )
                ),
            )
            for first, last, share, uptime in shares
        ],
    )
    assert load_of(page) == Load(0.5, "task 3 on h:6700", 122.0)
    page.exec_stats = None
    assert load_of(page) is None


def test_how_long_workers_poll_is_read_of_the_configuration() -> None:
    page = storm.TopologyPageInfo(id="w-1-1", topology_conf='{"topology.worker.busy.poll.ms": 10}')
    assert topology_of(storm.TopologySummary(name="w"), page).busy_poll_ms == 10.0
