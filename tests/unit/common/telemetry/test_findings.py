"""What holds a topology up, each cause by itself."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from squall_common.telemetry.findings import (
    CheckpointFacts,
    ComponentFacts,
    Exit,
    Facts,
    Finding,
    HeldWorker,
    Severity,
    ago,
    cpu_note,
    findings,
    trend_of,
)


def spout(**changes: Any) -> ComponentFacts:
    fields: dict[str, Any] = {
        "name": "orders", "is_spout": True, "executors": 2, "tasks": 2, "emitted": 100.0,
        "acked": 100.0, "complete_ms": 20.0, **changes,
    }  # fmt: skip
    return ComponentFacts(**fields)


def bolt(**changes: Any) -> ComponentFacts:
    """Its `busy_mean` is as great as `busy`, and its tuples take all of it, unless it is said."""
    busy = changes.get("busy", 0.1)
    fields: dict[str, Any] = {
        "name": "enrich", "is_spout": False, "executors": 2, "tasks": 4, "executed": 100.0,
        "acked": 100.0, "execute_ms": busy * 20, "busy": busy, "busy_mean": busy,
        "busiest": "task 3 on node1:6700", **changes,
    }  # fmt: skip
    return ComponentFacts(**fields)


def topology(*components: ComponentFacts, **changes: Any) -> Facts:
    fields: dict[str, Any] = {
        "name": "shop", "status": "ACTIVE", "health": "ok", "uptime_secs": 1000, "rates_secs": 10,
        "workers": 8, "components": components or (spout(), bolt()), **changes,
    }  # fmt: skip
    return Facts(**fields)


def only(*components: ComponentFacts, **changes: Any) -> Finding:
    (found,) = findings(topology(*components, **changes))
    return found


def test_a_healthy_topology_has_no_findings() -> None:
    assert findings(topology()) == []


KILLED = Exit("signal 9", "node1:6700", 5, "MemoryError")
NO_SLOT = "3 of 9 executors have a slot"


@pytest.mark.parametrize(
    ("facts", "kind", "part"),
    [
        (topology(status="INACTIVE"), "status", "`storm activate shop` resumes it"),
        (topology(status="KILLED", health=""), "status", "spouts have stopped"),
        (topology(status="REBALANCING"), "status", "pause until its tasks have been placed"),
        (topology(health="no supervisor"), "health", "storm supervisor"),
        (topology(health="no free slot", schedule=NO_SLOT), "health", f"{NO_SLOT}. "),
        (topology(health="supervisor away"), "health", "is not connected"),
        (topology(health="waiting for blobs"), "health", "downloading"),
        (topology(health="package refused"), "health", "`storm get-errors shop` says why"),
        (topology(health="launch failed", last_exit=KILLED), "health", "on node1:6700: signal 9."),
        (
            topology(health="crash loop", last_exit=KILLED),
            "health",
            "`storm get-errors shop` says why, and what to do. The last one, on node1:6700: "
            "signal 9. Its last line: MemoryError",
        ),
        (topology(spout(emitted=0.0), bolt(executed=0.0)), "idle", "orders emits nothing: the sou"),
        (topology(spout(emitted=0.0), bolt()), "idle", "enrich still works on earlier tuples"),
        (
            topology(spout(emitted=0.0), bolt(executed=0.0), pending_max=2000),
            "idle", "or 2,000 messages (topology.max.spout.pending) wait for their acks",
        ),
    ],
)  # fmt: skip
def test_why_nothing_moves(facts: Facts, kind: str, part: str) -> None:
    found = findings(facts)
    assert [(one.kind, one.severity) for one in found] == [(kind, Severity.STOPPED)]
    assert part in found[0].text


def test_a_health_that_is_not_known_is_shown_as_it_is() -> None:
    assert only(health="on fire").title == "On fire"


def test_commands_can_be_pasted_whatever_the_name_is() -> None:
    assert "`storm activate '<b> x'`" in only(status="INACTIVE", name="<b> x").text


def test_workers_that_start_are_a_note() -> None:
    assert only(health="starting").severity is Severity.NOTE


def test_a_topology_that_has_just_begun_is_not_idle() -> None:
    nothing = (spout(emitted=0.0, acked=0.0), bolt(executed=0.0))
    assert findings(topology(*nothing, rates_secs=5)) == []
    silent = topology(*nothing, silent=["node1:6700"])
    assert [one.kind for one in findings(silent)] == ["silent"]


@pytest.mark.parametrize(
    ("components", "kind", "named", "part"),
    [
        ((spout(), bolt(busy=0.95)), "slow bolt", "enrich", "95% of its time in execute (100 tup"),
        ((spout(), bolt(busy=0.95, busy_mean=0.5)), "skew", "enrich", "task 3 on node1:6700"),
        ((spout(failed=50.0), bolt()), "failing", "orders", "33% of the messages"),
        ((spout(failed=50.0), bolt()), "failing", "orders", "storm get-errors shop"),
        ((spout(failed=50.0, acked=0.0), bolt()), "failing", "orders", "none is acked"),
        (
            (spout(failed=50.0, acked=0.0), bolt(failed=50.0)),
            "failing", "orders", "(50 a second): enrich fails tuples. See `storm get-errors shop`",
        ),
        (
            (spout(failed=50.0, complete_ms=29_000), bolt()),
            "failing", "orders", "29 s, and time out after 30 s (topology.message.timeout.secs)",
        ),
        ((spout(complete_ms=16_000), bolt()), "near timeout", "orders", "take 16 s and time out"),
    ],
)  # fmt: skip
def test_why_it_is_slow(
    components: tuple[ComponentFacts, ...], kind: str, named: str, part: str
) -> None:
    found = only(*components)
    assert (found.kind, found.severity, found.component) == (kind, Severity.SLOW, named)
    assert part in found.text


def test_a_call_that_does_not_return_holds_its_worker() -> None:
    held = HeldWorker.of("node1:6700", 38_100.0, {"orders": 1, "enrich": 2, "__acker": 1})
    assert held == HeldWorker("node1:6700", 38.1, ["enrich", "orders"])
    assert HeldWorker.of("node1:6701", 900.0, {"orders": 1}) is None
    assert HeldWorker.of("node1:6701", None, {"orders": 1}) is None
    stopped = only(spout(emitted=0.0, acked=0.0), bolt(executed=0.0), held=[held])
    assert (stopped.kind, stopped.severity) == ("held", Severity.STOPPED)
    assert "worker node1:6700 for 38 s" in stopped.text
    assert "all tasks of enrich and orders wait for it" in stopped.text
    assert "`storm profile shop --stack --worker node1:6700`" in stopped.text
    assert only(held=[held]).severity is Severity.SLOW
    assert [one.kind for one in findings(topology(health="crash loop", held=[held]))] == ["health"]


def test_a_full_bolt_is_given_the_executors_that_it_has_tasks_for() -> None:
    assert "Try `storm rebalance shop -e enrich=4`" in only(spout(), bolt(busy=0.95)).text


def test_a_full_bolt_with_an_executor_a_task_needs_more_tasks() -> None:
    assert "raise tasks= of enrich" in only(spout(), bolt(busy=0.95, tasks=2)).text


def test_a_bolt_that_is_busy_with_ticks_is_not_given_more_executors() -> None:
    found = only(spout(), bolt(busy=0.95, busy_mean=0.9, execute_ms=1.0))
    assert found.text.endswith(
        "Its tuples take 5% of the time, the rest goes to ticks: do less on each."
    )
    assert "rebalance" not in found.text


def test_an_async_bolt_is_not_judged_by_the_time_in_its_calls() -> None:
    lookup = bolt(busy=15.6, busy_mean=15.6, executed=520.0, execute_ms=60.0, tasks=2)
    found = only(spout(), lookup)
    assert (found.kind, found.severity, found.component) == ("slow bolt", Severity.NOTE, "enrich")
    assert found.title == "enrich waits in many calls at once"
    assert "Each of its 2 tasks has 16 calls of execute under way" in found.text
    assert "raise its topology.bolt.async.concurrency" in found.text
    assert "Its task has 31 calls" in only(spout(), replace(lookup, tasks=1, executors=1)).text


def test_an_async_bolt_does_not_hide_the_bottleneck() -> None:
    lookup = bolt(busy=1.0, busy_mean=1.0, executed=520.0, execute_ms=60.0, tasks=2)
    found = findings(topology(spout(), lookup, bolt(name="store", busy=0.95)))
    assert [(one.severity, one.component) for one in found] == [
        (Severity.SLOW, "store"),
        (Severity.NOTE, "enrich"),
    ]


def waits(share: float, **changes: Any) -> ComponentFacts:
    """An async bolt of two tasks with a limit of a hundred calls each."""
    fields = {
        "busy": share, "busy_mean": share, "calls": 200 * share, "calls_max": 200, "tasks": 2,
        "executed": 2_000 * share, "execute_ms": 100.0, **changes,
    }  # fmt: skip
    return bolt(**fields)


@pytest.mark.parametrize("calls", [0.8, 1.5, 12.0, 100.0])
def test_an_async_bolt_far_from_its_limit_of_calls_is_no_bottleneck(calls: float) -> None:
    """Its calls would fill the thread of its worker, if they took its time."""
    assert findings(topology(spout(), waits(calls / 200), workers=1)) == []


def test_an_async_bolt_at_its_limit_of_calls_needs_more_calls() -> None:
    found = only(spout(), waits(0.95), workers=1)
    assert (found.kind, found.severity, found.component) == ("slow bolt", Severity.SLOW, "enrich")
    assert found.title == "enrich is at its limit of calls"
    assert found.text == (
        "190 of 200 calls are under way on average (1,900 tuples/s, 100 ms each). Raise its "
        "topology.bolt.async.concurrency (100 for each task), or let what it waits for answer "
        "sooner. More executors do not help."
    )
    nearly = only(spout(), waits(0.7))
    assert (nearly.title, nearly.severity) == (
        "enrich is nearly at its limit of calls",
        Severity.NOTE,
    )


def test_a_blocking_bolt_at_its_limit_needs_more_tasks() -> None:
    store = waits(0.95, calls=1.9, calls_max=2, executors=1, on_threads=True)
    found = only(spout(), store)
    assert found.title == "enrich uses all its threads"
    assert found.text.startswith("1.9 of 2 threads are in execute on average (")
    assert "raise tasks= of enrich" in found.text
    assert "rebalance" not in found.text
    assert only(spout(), replace(store, busy=0.7)).title == "enrich uses nearly all its threads"


def test_each_bolt_at_its_limit_of_calls_is_named() -> None:
    """They share no thread, so that the fullest of them does not explain the others."""
    found = findings(topology(spout(), waits(0.85), waits(0.95, name="store"), bolt(name="x")))
    assert [one.title for one in found] == [
        "store is at its limit of calls",
        "enrich is at its limit of calls",
    ]
    assert only(spout(), waits(0.75), waits(0.95, name="store")).component == "store"


def test_a_skewed_async_bolt_is_said_to_be_skewed() -> None:
    found = only(spout(), waits(0.5, busy=0.9))
    assert found.kind == "skew"
    assert "(task 3 on node1:6700) has 90% of its calls under way, all 2 on average 50%" in (
        found.text
    )


def test_what_waits_for_an_async_bolt_names_its_calls() -> None:
    waiting = spout(blocked={"enrich": 0.5})
    slow, blocked = findings(topology(waiting, waits(0.95)))
    assert slow.title == "enrich is at its limit of calls"
    assert blocked.text.endswith("enrich is at its limit.")
    assert "enrich has 20 of 200 calls under way: its worker" in only(waiting, waits(0.1)).text


def test_a_thread_for_each_task_fills_an_executor_more_than_once() -> None:
    blocking = bolt(busy=1.0, busy_mean=1.0, executed=190.0, execute_ms=40.0, tasks=8)
    assert only(spout(), blocking).severity is Severity.SLOW


def test_ticks_are_not_blamed_while_the_mean_is_not_known() -> None:
    found = only(spout(), bolt(busy=0.95, busy_mean=None, execute_ms=1.0))
    assert "ticks" not in found.text


def test_the_busiest_of_two_full_bolts_is_the_bottleneck() -> None:
    found = only(spout(), bolt(name="split", busy=0.85), bolt(busy=0.97))
    assert (found.title, found.component) == ("enrich is the bottleneck", "enrich")


def test_what_is_nearly_full_is_a_note() -> None:
    found = only(spout(), bolt(busy=0.7, busy_before=0.3))
    assert (found.severity, found.trend) == (Severity.NOTE, "rising")
    assert found.title == "enrich is nearly at its limit"


def test_workers_whose_executors_fill_them_together_are_named() -> None:
    """Two executors of one worker are busy half of the time each, as they share its thread."""
    found = only(spout(), bolt(busy=0.47), workers=1)
    assert (found.kind, found.severity, found.component) == (
        "full workers", Severity.SLOW, "enrich",
    )  # fmt: skip
    assert found.title == "The worker is full"
    assert found.text == (
        "Bolts spend 94% of the time of 1 worker in execute, enrich 94% (100 tuples/s, 9.4 ms "
        "each). The executors of a worker share its thread. Try `storm rebalance shop -n 2`."
    )


def test_a_bolt_with_too_few_executors_for_more_workers_gets_more() -> None:
    found = only(spout(), bolt(busy=0.95, executors=1), workers=1)
    assert found.text.endswith("`storm rebalance shop -n 2 -e enrich=2`.")


def test_one_key_is_the_cause_even_if_it_fills_the_worker() -> None:
    assert only(spout(), bolt(busy=0.95, busy_mean=0.5), workers=1).kind == "skew"


def test_bolts_that_are_busier_than_their_workers_do_not_share_their_thread() -> None:
    """They run in threads of their own, or wait inside a coroutine."""
    assert only(spout(), bolt(busy=0.95), workers=1).kind == "slow bolt"


def test_who_waits_for_a_slow_bolt_is_named() -> None:
    waits = (spout(blocked={"enrich": 0.7}), bolt(name="parse", blocked={"enrich": 0.4, "x": 0.1}))
    slow, blocked = findings(topology(*waits, bolt(busy=0.95)))
    assert slow.kind == "slow bolt"
    assert (blocked.kind, blocked.title) == ("blocked", "orders and parse wait for enrich")
    assert blocked.text == (
        "orders and parse wait up to 70% of the time because enrich takes no more. "
        "enrich is at its limit."
    )


def test_a_chain_of_waiting_components_leads_to_the_last() -> None:
    found = findings(
        topology(spout(blocked={"enrich": 0.7}), bolt(blocked={"sink": 0.6}), bolt(name="sink"))
    )
    assert [(one.kind, one.component) for one in found] == [
        ("blocked", "enrich"), ("slow peer", "sink"),
    ]  # fmt: skip
    assert "enrich waits for sink." in found[0].text


def test_a_component_that_blocks_others_while_it_idles_is_hard_to_reach() -> None:
    found = only(spout(blocked={"enrich": 0.7}), bolt())
    assert (found.kind, found.severity, found.component) == ("slow peer", Severity.SLOW, "enrich")
    assert "orders waits 70% of the time" in found.text
    assert "busy 10% of its time: its worker, that node or the network is slow" in found.text


def test_short_waits_are_well() -> None:
    assert findings(topology(spout(blocked={"enrich": 0.1}), bolt())) == []


def test_an_error_counts_while_it_is_recent() -> None:
    found = only(spout(), bolt(error="ValueError: no", error_age_secs=20))
    assert (found.kind, found.text) == ("error", "20 s ago: ValueError: no")
    assert not findings(topology(spout(), bolt(error="ValueError: no", error_age_secs=301)))


@pytest.mark.parametrize(("age_secs", "severity"), [(130, Severity.SLOW), (5000, Severity.NOTE)])
def test_a_worker_that_ended_counts_more_while_it_is_recent(
    age_secs: int, severity: Severity
) -> None:
    left = Exit("signal 9", "node1:6700", age_secs, "MemoryError.")
    found = only(last_exit=left, restarts=2)
    assert (found.kind, found.severity) == ("restart", severity)
    assert found.text == (
        f"2 workers ended unexpectedly within a day, the last one {ago(age_secs)} on node1:6700: "
        "signal 9. Its last line: MemoryError. "
        + (
            "Messages in flight there fail, after 30 s at the latest "
            "(topology.message.timeout.secs). "
            if severity is Severity.SLOW
            else ""
        )
        + "`storm get-errors shop` says more."
    )


def test_what_a_lost_worker_costs_a_topology_with_checkpoints_is_said() -> None:
    checkpoints = CheckpointFacts(1.0, 0.5, 7)
    found = only(last_exit=Exit("signal 9", "node1:6700", 5), restarts=1, checkpoints=checkpoints)
    assert "All tasks went back to the last checkpoint. `storm" in found.text
    assert "message.timeout" not in found.text


def test_workers_that_poll_busily_say_that_their_cpu_is_no_load() -> None:
    """And no finding calls them full."""
    note = cpu_note(topology(spout(), bolt(), busy_poll_ms=10.0))
    assert "(topology.worker.busy.poll.ms: 10)" in note
    assert findings(topology(spout(), bolt(), busy_poll_ms=10.0)) == []
    assert cpu_note(topology(spout(), bolt(), busy_poll_ms=10.0, workers=1)) == ""
    assert cpu_note(topology(spout(), bolt())) == ""


def test_the_exit_of_a_crash_loop_is_said_once() -> None:
    assert only(health="crash loop", last_exit=KILLED, restarts=5).kind == "health"


def test_silent_workers_are_named_once_the_topology_is_up() -> None:
    silent = ["node1:6700", "node2:6700"]
    found = only(silent=silent)
    assert (found.kind, found.severity) == ("silent", Severity.NOTE)
    assert found.text.startswith("node1:6700 and node2:6700 have not reported yet")
    assert findings(topology(silent=silent, uptime_secs=5)) == []


def test_the_worst_comes_first() -> None:
    facts = topology(spout(emitted=0.0), bolt(busy=0.9, error="x", error_age_secs=1))
    assert [one.severity.name for one in findings(facts)] == ["STOPPED", "SLOW", "NOTE"]


@pytest.mark.parametrize(
    ("before", "now", "trend"),
    [(None, 0.9, ""), (0.5, 0.9, "rising"), (0.9, 0.5, "falling"), (0.85, 0.9, "steady")],
)
def test_trends(before: float | None, now: float, trend: str) -> None:
    assert trend_of(before, now) == trend


@pytest.mark.parametrize(
    ("secs", "words"),
    [
        (0, "0 s ago"),
        (119, "119 s ago"),
        (130, "2 min ago"),
        (7300, "2 h ago"),
        (200_000, "2 days ago"),
    ],
)
def test_ages(secs: int, words: str) -> None:
    assert ago(secs) == words


def checkpoints(**changes: Any) -> CheckpointFacts:
    fields: dict[str, Any] = {"interval_secs": 4.0, "waiting_secs": 3.0, "epoch": 7, **changes}
    return CheckpointFacts(**fields)


@pytest.mark.parametrize(
    "known",
    [
        checkpoints(waiting_secs=19.0),
        checkpoints(interval_secs=0.2, waiting_secs=9.0),  # a rollback takes a few seconds
    ],
)
def test_checkpoints_that_come_in_time_are_no_finding(known: CheckpointFacts) -> None:
    assert findings(topology(checkpoints=known)) == []


def test_five_intervals_without_a_checkpoint_are_a_finding() -> None:
    found = only(checkpoints=checkpoints(waiting_secs=21.0, waited_for="count (2)"))
    assert (found.kind, found.severity) == ("checkpoints", Severity.SLOW)
    assert (
        "None was completed for 21 s, and one is due every 4 s (topology.checkpoint.interval.secs)"
        in found.text
    )
    assert "The last one is number 7" in found.text
    assert "waited for count (2)" in found.text


def test_the_error_of_the_store_is_the_cause() -> None:
    why = "cannot write s/1: No space left on device."
    found = only(checkpoints=checkpoints(waiting_secs=21.0, waited_for="count (2)", failure=why))
    assert (
        "The store (topology.state.url) has failed: cannot write s/1: No space left on device. See "
        in found.text
    )
    assert "Is a bolt slow" not in found.text


def test_a_rollback_without_a_checkpoint_since_is_named() -> None:
    why = "the worker a:1 was started again"
    found = only(checkpoints=checkpoints(waiting_secs=21.0, epoch=0, rollback_reason=why))
    assert "There is none yet" in found.text
    assert f"The last rollback: {why}" in found.text


def test_a_topology_that_does_not_run_has_no_finding_about_checkpoints() -> None:
    facts = topology(status="KILLED", checkpoints=checkpoints(waiting_secs=1000.0))
    assert [one.kind for one in findings(facts)] == ["status"]


def test_a_topology_that_has_finished_is_not_idle() -> None:
    quiet = spout(emitted=0.0, acked=0.0, exhausted=2)
    found = only(quiet, bolt(executed=0.0, busy=0.0), finished=True)
    assert (found.kind, found.severity) == ("finished", Severity.NOTE)
    assert "`storm kill shop`" in found.text


@pytest.mark.parametrize(
    ("pending", "changes", "part"),
    [
        (1200, {}, "1,200 messages are in flight"),
        (0, {}, "Bolts work on the last tuples"),
        (0, {"checkpoints": CheckpointFacts(1.0, 0.5, 7)}, "comes with the next checkpoint"),
    ],
)
def test_a_source_that_has_ended_is_not_empty(
    pending: int, changes: dict[str, Any], part: str
) -> None:
    quiet = spout(emitted=0.0, acked=0.0, exhausted=2, pending=pending)
    found = only(quiet, bolt(executed=0.0, busy=0.0), finished=False, **changes)
    assert (found.kind, found.title) == ("ended", "The source has ended")
    assert part in found.text


def test_a_spout_is_drained_when_all_of_its_tasks_have_ended_and_nothing_is_pending() -> None:
    assert spout(exhausted=2).drained
    assert not spout(exhausted=2, pending=1).drained
    assert not spout(exhausted=1).has_ended
    assert not spout().has_ended
    assert not bolt(exhausted=4).has_ended
    assert only(spout(emitted=0.0, acked=0.0, exhausted=1), finished=False).kind == "idle"
