"""What Nimbus answers about a topology, put before the rules that say what holds it up."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from squall_cli.cluster.activity import Activity
from squall_cli.observe.facts import Component, LastError, Load, Topology, Worker
from squall_cli.observe.findings import cpu_note_of, facts_of, findings_of
from squall_common.telemetry.findings import Exit, HeldWorker
from squall_thrift import storm

NOW = 1_000_000
WORKERS = [Worker("h", port, "s", 4, 100, {"count": 4}) for port in range(6700, 6708)]


def component(name: str, *, is_spout: bool = False, **changes: Any) -> Component:
    values: dict[str, Any] = {
        "executors": 2, "tasks": 4, "emitted": 6000, "acked": 6000, "failed": 0,
        "executed": 0 if is_spout else 6000, "latency_ms": 10.0, "process_ms": None,
        "capacity": None if is_spout else 0.3, "error": None,
    }  # fmt: skip
    return Component(name, is_spout, **{**values, **changes})


def topology(*components: Component, workers: Any = (), **summary: Any) -> Topology:
    values: dict[str, Any] = {
        "id": "w-1-1", "name": "w", "status": "ACTIVE", "health": "ok", "uptime_secs": 700,
    }  # fmt: skip
    return Topology(
        storm.TopologySummary(**{**values, **summary}),
        Activity(600, 12_000, 6000, 0, 10.0),
        components or (component("lines", is_spout=True), component("count")),
        workers or WORKERS,
        timeout_secs=30.0,
        max_pending=500,
    )


def test_a_healthy_topology_has_no_findings() -> None:
    assert findings_of(topology(), NOW) == []


def test_counts_become_rates_and_times_become_ages() -> None:
    ended = storm.WorkerExit(
        time_secs=NOW - 95, host="h", port=6700, reason="killed by SIGKILL", last_line="x"
    )
    facts = facts_of(
        topology(
            component("lines", is_spout=True, latency_ms=20.0, blocked={"count": 0.25}),
            component(
                "count", capacity=0.9, load=Load(0.6, "task 3 on h:6700", 25.0),
                error=LastError("ValueError: 2", NOW - 7),
            ),
            last_exit=ended,
            restarts=3,
        ),
        NOW,
    )  # fmt: skip
    assert facts.last_exit == Exit("killed by SIGKILL", "h:6700", 95, "x")
    assert (facts.workers, facts.rates_secs, facts.restarts, facts.pending_max) == (8, 600, 3, 500)
    lines, count = facts.components
    assert (lines.emitted, lines.acked, lines.complete_ms, lines.execute_ms) == (10, 10, 20.0, 0.0)
    assert lines.blocked == {"count": 0.25}
    assert (count.executed, count.execute_ms, count.complete_ms) == (25.0, 10.0, 0.0)
    assert (count.busy, count.busy_mean, count.busiest) == (0.9, 0.6, "task 3 on h:6700")
    assert (count.error, count.error_age_secs) == ("ValueError: 2", 7)


def test_a_worker_that_has_not_reported_is_silent() -> None:
    silent = Worker("h", 6701, "s", 4, 0, {})
    assert facts_of(topology(workers=(silent,)), NOW).silent == ["h:6701"]


def test_a_worker_whose_loop_does_not_turn_is_held() -> None:
    stuck = Worker("h", 6701, "s", 4, 100, {"count": 4}, loop_lag_ms=20_000.0)
    assert facts_of(topology(workers=(stuck, *WORKERS)), NOW).held == [
        HeldWorker("h:6701", 20.0, ["count"])
    ]


def test_a_bolt_whose_load_is_not_known_is_not_called_skewed() -> None:
    (found,) = findings_of(topology(component("count", capacity=0.9, executed=60_000)), NOW)
    assert found.kind == "slow bolt"


def test_a_bolt_with_one_busy_executor_is_skewed() -> None:
    of = topology(component("count", capacity=0.9, load=Load(0.46, "task 3 on h:6700", 90.0)))
    (found,) = findings_of(of, NOW)
    assert (found.kind, found.component) == ("skew", "count")
    assert "task 3 on h:6700" in found.text


def test_a_topology_without_checkpoints_for_long_says_so() -> None:
    report = storm.CheckpointReport(
        epoch=3, interval_ms=1000, completed=3, given_up=1, waiting_ms=60_000, rollbacks=0,
        failure="No space left on device",
    )  # fmt: skip
    (found,) = findings_of(replace(topology(), checkpoints=report), NOW)
    assert found.kind == "checkpoints"
    assert "No space left on device" in found.text


def test_the_cpu_of_workers_that_poll_busily_is_explained() -> None:
    polls = replace(topology(), busy_poll_ms=10.0)
    workers = [replace(one, cpu_cores=1.0) for one in polls.workers]
    assert "topology.worker.busy.poll.ms: 10" in cpu_note_of(replace(polls, workers=workers))
    assert cpu_note_of(replace(topology(), workers=workers)) == ""
    unknown = [replace(one, cpu_cores=None) for one in polls.workers]
    assert cpu_note_of(replace(polls, workers=unknown)) == ""  # there is nothing to explain


def test_calls_under_way_are_judged_by_their_limit() -> None:
    lookup = component("lookup", capacity=0.95, calls=95.0, calls_max=100)
    (found,) = findings_of(topology(lookup), NOW)
    assert found.title == "lookup is at its limit of calls"
    assert found.text.startswith("95 of 100 calls are under way")
