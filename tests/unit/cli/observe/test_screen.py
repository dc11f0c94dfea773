"""What `storm top` shows."""

from __future__ import annotations

import io
from collections.abc import Mapping

import pytest
from rich.console import Console, RenderableType

from squall_cli.observe.facts import Cluster, Topology, topology_of
from squall_cli.observe.screen import (
    capacity_words,
    condition,
    details,
    overview,
    window_rates,
)
from squall_thrift import storm

LONG = "payments-settlement-reconciliation-enrichment-pipeline-eu-west-1-production"


def topology(name: str, status: str, health: str = "ok", finished: bool | None = None) -> Topology:
    summary = storm.TopologySummary(
        id=f"{name}-1-1",
        name=name,
        status=status,
        health=health,
        num_workers=2,
        num_executors=3,
        num_tasks=3,
        uptime_secs=60,
    )
    page = storm.TopologyPageInfo(
        id=summary.id,
        finished=finished,
        id_to_spout_agg_stats={f"{name}-lines": storm.ComponentAggregateStats()},
        id_to_bolt_agg_stats={
            f"{name}-count-{number}": storm.ComponentAggregateStats(
                last_error=storm.ErrorInfo(
                    error="ValueError: " + "no price " * 40, error_time_secs=0
                )
            )
            for number in range(2)
        },
    )
    return topology_of(summary, page)


def cluster(*topologies: Topology, pages: bool = True) -> Cluster:
    by_id: Mapping[str, Topology] = {str(one.summary.id): one for one in topologies}
    summaries = [one.summary for one in topologies]
    return Cluster("h:6627", 1, 1, 4, 2, summaries, by_id if pages else {}, {})


def shown(what: RenderableType, width: int) -> list[str]:
    out = io.StringIO()
    Console(file=out, width=width).print(what)
    lines = out.getvalue().splitlines()
    assert all(len(line) <= width for line in lines)
    return lines


def rows(found: Cluster, width: int) -> list[list[str]]:
    rates = {key: window_rates(one) for key, one in found.topologies.items()}
    lines = shown(overview(found, rates, rates_of="10 minutes", now_secs=0), width)
    return [line.split() for line in lines if line][1:]


@pytest.mark.parametrize("width", [80, 120, 200])
def test_the_state_of_each_topology_is_seen_at_any_width(width: int) -> None:
    found = cluster(
        topology(LONG, "ACTIVE"),
        topology("off", "INACTIVE"),
        topology("going", "KILLED"),
        topology("moving", "REBALANCING", "starting"),
        topology("done", "ACTIVE", finished=True),
    )
    head, *lines = rows(found, width)
    assert head[:3] == ["TOPOLOGY", "STATUS", "HEALTH"]
    assert {"FAILED/S", "CAPACITY"} <= set(head)
    assert [line[1:3] for line in lines] == [
        ["ACTIVE", "ok"],
        ["INACTIVE", "ok"],
        ["KILLED", "ok"],
        ["REBALANCING", "starting"],
        ["ACTIVE", "finished"],
    ]


def test_a_topology_whose_page_is_not_known_has_the_state_of_its_summary() -> None:
    one = topology("done", "ACTIVE")
    one.summary.finished = True
    _, line = rows(cluster(one, pages=False), 120)
    assert line[:3] == ["done", "ACTIVE", "finished"]


@pytest.mark.parametrize(
    ("health", "finished", "word"),
    [("ok", True, "finished"), ("ok", False, "ok"), ("ok", None, "ok"), (None, True, ""),
     ("crash loop", True, "crash loop")],
)  # fmt: skip
def test_only_what_is_well_is_finished(
    health: str | None, finished: bool | None, word: str
) -> None:
    assert condition(health, finished) == word


def test_components_with_long_names_keep_their_figures() -> None:
    """Names that begin alike are told apart by their ends."""
    one = topology(LONG, "ACTIVE")
    lines = shown(details(one, window_rates(one), 0.0), 80)
    head = next(line for line in lines if line.startswith("COMPONENT"))
    assert {"HANDLED/S", "FAILED/S", "CAPACITY", "QUEUE"} <= set(head.split())
    names = [line.split()[0] for line in lines if "…" in line.split(" ")[0]]
    assert len(set(names)) == len(names) == 3
    assert any("no price" in line for line in shown(details(one, window_rates(one), 0.0), 120))


@pytest.mark.parametrize(
    ("capacity", "stats", "words"),
    [
        (0.12, {}, "12%"),
        (0.12, {"calls": 12.0, "calls_max": 100}, "12 of 100 calls"),
        (0.08, {"calls": 0.8, "calls_max": 10}, "0.8 of 10 calls"),
        (0.9, {"calls": 9.96, "calls_max": 10_000}, "10 of 10,000 calls"),
        (0.4, {"calls": 0.4, "calls_max": 1, "on_threads": True}, "0.4 of 1 thread"),
    ],
)
def test_a_bolt_that_waits_in_calls_shows_how_many(capacity, stats, words) -> None:
    page = storm.TopologyPageInfo(
        id="w-1-1",
        id_to_bolt_agg_stats={
            "count": storm.ComponentAggregateStats(
                specific_stats=storm.SpecificAggregateStats(
                    bolt=storm.BoltAggregateStats(capacity=capacity, **stats)
                )
            )
        },
    )
    (count,) = topology_of(storm.TopologySummary(name="w"), page).components
    assert capacity_words(count) == words
