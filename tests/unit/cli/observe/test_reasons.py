"""Why a topology is slow or stands."""

from __future__ import annotations

from typing import Any

from squall_cli.activity import Activity
from squall_cli.observe.facts import Component, LastError, Topology, Worker
from squall_cli.observe.reasons import Severity, reasons_of
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


def topology(
    *components: Component,
    emitted: int = 12_000,
    secs: int = 600,
    workers: Any = (),
    **summary: Any,
) -> Topology:
    values: dict[str, Any] = {"id": "w-1-1", "name": "w", "status": "ACTIVE", "health": "ok"}
    return Topology(
        storm.TopologySummary(**{**values, **summary}),
        Activity(secs, emitted, 6000, 0, 10.0),
        components or (component("lines", is_spout=True), component("count")),
        workers or WORKERS,
        timeout_secs=30.0,
        max_pending=500,
    )


def texts(of: Topology) -> list[tuple[str, str]]:
    return [(one.severity.value, one.text) for one in reasons_of(of, NOW)]


def test_a_healthy_topology_has_no_reasons() -> None:
    assert texts(topology()) == []


def test_the_reason_of_a_deactivated_topology_says_how_to_resume_it() -> None:
    ((severity, text),) = texts(topology(status="INACTIVE", emitted=0))
    assert severity == "stands"
    assert "'storm activate w'" in text


def test_missing_slots_quote_nimbus() -> None:
    ((severity, text),) = texts(
        topology(health="no free slot", sched_status="2 of 4 executors have no slot")
    )
    assert severity == "stands"
    assert text.endswith("Nimbus: 2 of 4 executors have no slot.")


def test_a_crash_loop_quotes_the_last_exit() -> None:
    ended = storm.WorkerExit(
        time_secs=NOW - 5, host="h", port=6700, reason="exit status 1", last_line="KeyError: 'x'"
    )
    ((severity, text),) = texts(topology(health="crash loop", last_exit=ended, restarts=4))
    assert severity == "stands"
    assert "exit status 1" in text
    assert text.endswith("KeyError: 'x'")


def test_the_busiest_full_bolt_is_the_bottleneck() -> None:
    found = reasons_of(
        topology(
            component("lines", is_spout=True),
            component("split", capacity=0.85, executed=60_000, latency_ms=8.5),
            component("count", capacity=0.97, executed=60_000, latency_ms=19.4),
        ),
        NOW,
    )
    (reason,) = found
    assert (reason.severity, reason.component) == (Severity.SLOW, "count")
    assert "97% of its time in execute (100 tuples/s, 19.4 ms each, 2 executors)" in reason.text
    assert reason.text.endswith("storm rebalance w -e count=4")


def test_workers_whose_executors_fill_them_together_are_named() -> None:
    """Two executors of one worker are busy half of the time each, as they share its thread."""
    slow = component("slow", capacity=0.5, executed=57_000, latency_ms=10.0)
    ((severity, text),) = texts(
        topology(component("src", is_spout=True), slow, workers=WORKERS[:1])
    )
    assert severity == "slow"
    assert text == (
        "1 worker cannot do more: bolts spend 95% of the time in execute, slow 95% (95 tuples/s, "
        "10 ms each). The executors of a worker share its thread. Try: storm rebalance w -n 2"
    )


def test_a_bolt_with_too_few_executors_for_more_workers_gets_more() -> None:
    slow = component("slow", capacity=0.95, executors=1, executed=57_000, latency_ms=10.0)
    ((_, text),) = texts(topology(slow, workers=WORKERS[:1]))
    assert text.endswith("storm rebalance w -n 2 -e slow=2")


def test_a_bolt_that_is_busy_with_ticks_is_not_given_more_executors() -> None:
    ((_, text),) = texts(topology(component("count", capacity=0.9, executed=6000, latency_ms=10.0)))
    assert text.endswith(
        "These tuples take 5% of the time; the rest goes to ticks: do less on each."
    )
    assert "rebalance" not in text


def test_a_bolt_with_an_executor_a_task_needs_more_tasks() -> None:
    count = component("count", capacity=0.9, executors=4, executed=60_000, latency_ms=36.0)
    ((_, text),) = texts(topology(count))
    assert "raise tasks= of count" in text


def test_failed_messages_are_counted_and_the_timeout_is_named() -> None:
    spout = component("lines", is_spout=True, acked=900, failed=100, latency_ms=20_000.0)
    ((severity, text),) = texts(topology(spout))
    assert severity == "slow"
    assert text == "10% of the messages of lines failed (100 of 1000); they time out after 30 s."


def test_messages_near_their_timeout_are_a_reason() -> None:
    spout = component("lines", is_spout=True, latency_ms=16_000.0)
    ((_, text),) = texts(topology(spout))
    assert text.startswith("Messages of lines take 16 s and time out after 30 s")


def test_spouts_that_emit_nothing_are_named_with_what_they_may_wait_for() -> None:
    spout = component("lines", is_spout=True, emitted=0, acked=0, latency_ms=None)
    ((severity, text),) = texts(topology(spout, emitted=0))
    assert severity == "stands"
    assert text.startswith("lines emitted nothing within 10m:")
    assert "500 messages (topology.max.spout.pending)" in text
    assert texts(topology(spout, emitted=0, secs=30)) == []  # it has just begun


def test_recent_errors_and_exits_are_reasons_and_old_errors_are_not() -> None:
    ended = storm.WorkerExit(
        time_secs=NOW - 95, host="h", port=6700, reason="killed by SIGKILL", last_line=""
    )
    of = topology(
        component("old", error=LastError("ValueError: 1", NOW - 4000)),
        component("new", error=LastError("ValueError: 2", NOW - 7)),
        last_exit=ended,
        restarts=3,
    )
    assert texts(of) == [
        (
            "slow",
            "3 workers ended unexpectedly within a day, the last 1m 35s ago on h:6700: "
            "killed by SIGKILL.",
        ),
        ("note", "new reported an error 7s ago: ValueError: 2"),
    ]


def test_a_worker_that_has_not_reported_is_named() -> None:
    silent = Worker("h", 6701, "s", 4, 0, {})
    ((severity, text),) = texts(topology(workers=(silent,)))
    assert severity == "note"
    assert text.startswith("h:6701 has not reported yet")


def test_the_worst_reasons_come_first() -> None:
    of = topology(
        component("count", capacity=0.9, error=LastError("E", NOW - 1)), health="supervisor away"
    )
    assert [severity for severity, _ in texts(of)] == ["stands", "slow", "note"]
