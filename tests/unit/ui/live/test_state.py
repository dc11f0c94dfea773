"""The state of a topology as the pages get it, from structs as Nimbus answers them."""

from __future__ import annotations

from typing import Any

import pytest
from tests.support import ui_structs

from squall_thrift import storm
from squall_ui.live.state import Look, TopologyState

NOW = 1_700_000_400.0


def times(ms: float) -> storm.LatencyDistribution:
    return storm.LatencyDistribution(count=100, p50_ms=ms, p95_ms=2 * ms, p99_ms=3 * ms)


def look(page: storm.TopologyPageInfo, blocked_secs: float = 0.0, **summary: Any) -> dict[str, Any]:
    """`blocked_secs`: how long the spout waited for its bolt in its 100 s."""
    info = ui_structs.topology_info()
    if blocked_secs:
        info.executors[0].stats.blocked_secs = {":all-time": {"split": blocked_secs}}
    seen = Look(ui_structs.summary(**summary), ui_structs.code(), page, info)
    return TopologyState().look(seen, NOW)


def measured() -> storm.TopologyPageInfo:
    """A topology whose spout waits for its bolt, with all that workers report."""
    lines, split, worker = ui_structs.spout(), ui_structs.bolt(), ui_structs.worker()
    lines.common_stats.queue_tuples = 250
    lines.common_stats.num_tasks = 1
    lines.specific_stats.spout.complete_latency = times(40.0)
    split.common_stats.queue_tuples = 31
    split.specific_stats.bolt.execute_latency = times(0.0123)
    split.specific_stats.bolt.process_latency = times(9.0)
    split.last_error.error = "Traceback (most recent call last):\n  ...\nValueError: no\n"
    worker.usage = storm.WorkerUsage(cpu_cores=0.9512, memory_bytes=50_000_000, loop_lag_ms=12.34)
    return ui_structs.topology_page({"lines": lines}, {"split": split}, workers=[worker])


def test_percentiles_queues_blocked_time_and_usage_are_shown() -> None:
    state = look(measured(), blocked_secs=64.49)
    lines, split = state["components"]["lines"], state["components"]["split"]
    assert (lines["p50"], lines["p95"], lines["p99"]) == (40.0, 80.0, 120.0)
    assert (lines["queue"], lines["blocked"]) == (250, {"split": 0.645})
    assert (split["p50"], split["p95"], split["p99"]) == (0.0123, 0.0246, 0.0369)
    assert (split["queue"], split["blocked"]) == (31, {})
    (worker,) = state["workers"]
    assert (worker["cpu"], worker["memory"], worker["lagMs"]) == (0.951, 50_000_000, 12.3)


def test_what_was_not_measured_is_null() -> None:
    state = look(ui_structs.topology_page())
    lines, (worker,) = state["components"]["lines"], state["workers"]
    assert [lines[name] for name in ("p50", "p95", "p99", "queue")] == [None] * 4
    assert lines["blocked"] == {}
    assert [worker[name] for name in ("cpu", "memory", "lagMs")] == [None] * 3


def test_findings_come_from_the_figures() -> None:
    found = {one["kind"]: one for one in look(measured(), blocked_secs=64.49)["findings"]}
    assert found["slow peer"]["title"] == "lines waits for split"
    assert found["slow peer"]["severity"] == "slow"
    assert found["restart"]["text"].endswith("5 min ago on node1:6700: signal 9.")
    # Its error is older than five minutes.
    assert set(found) == {"slow peer", "restart"}


@pytest.mark.parametrize(
    ("summary", "part"),
    [
        ({"health": "crash loop"}, "The last one, on node1:6700: signal 9. Its last line: x"),
        ({"health": "no free slot", "sched_status": "1 of 4 has none"}, "1 of 4 has none. Some"),
        ({"status": "INACTIVE"}, "`storm activate words`"),
    ],
)
def test_why_nothing_moves_is_said_first(summary: dict[str, Any], part: str) -> None:
    first = look(measured(), **summary)["findings"][0]
    assert first["severity"] == "stopped"
    assert part in first["text"]


def test_the_error_of_a_component_is_the_last_line_of_its_traceback() -> None:
    assert look(measured())["components"]["split"]["error"] == "ValueError: no"
