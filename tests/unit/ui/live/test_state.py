"""The state of a topology as the pages get it, from structs as Nimbus answers them."""

from __future__ import annotations

from typing import Any

import pytest
from tests.support import ui_structs

from squall_common.telemetry.sums import ComponentSums, WorkerSums, encode_sums
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
    split.common_stats.state_keys, split.common_stats.state_bytes = 1_000, 2**20
    split.specific_stats.bolt.execute_latency = times(0.0123)
    split.specific_stats.bolt.process_latency = times(9.0)
    split.last_error.error = (
        "Traceback (most recent call last):\n  ...\nValueError: no\nin f(), a.py:1"
    )
    worker.usage = storm.WorkerUsage(cpu_cores=0.9512, memory_bytes=50_000_000, loop_lag_ms=12.34)
    return ui_structs.topology_page({"lines": lines}, {"split": split}, workers=[worker])


def test_percentiles_queues_blocked_time_and_usage_are_shown() -> None:
    state = look(measured(), blocked_secs=64.49)
    lines, split = state["components"]["lines"], state["components"]["split"]
    assert (lines["p50"], lines["p95"], lines["p99"]) == (40.0, 80.0, 120.0)
    assert (lines["queue"], lines["blocked"]) == (250, {"split": 0.645})
    assert (split["p50"], split["p95"], split["p99"]) == (0.0123, 0.0246, 0.0369)
    assert (split["queue"], split["blocked"]) == (31, {})
    assert (split["stateKeys"], split["stateBytes"]) == (1_000, 2**20)
    assert (lines["stateKeys"], lines["stateBytes"]) == (None, None)
    (worker,) = state["workers"]
    assert (worker["cpu"], worker["memory"], worker["lagMs"]) == (0.951, 50_000_000, 12.3)


def test_a_component_says_in_few_words_what_it_does() -> None:
    code = ui_structs.code()
    calls = ["map(f)", "map(g)", *(f"flat_map(f{number})" for number in range(3)), "key_by()"]
    code.bolts["split"].common.plan = [storm.PlanStep(call=one) for one in calls]
    seen = Look(ui_structs.summary(), code, ui_structs.topology_page(), ui_structs.topology_info())
    state = TopologyState()
    for _ in range(2):
        components = state.look(seen, NOW)["components"]
        assert components["split"]["does"] == "map ×2, flat_map ×3, key_by"
        assert components["lines"]["does"] == ""
    # What any client may have sent is cut.
    other = ui_structs.code()
    other.bolts["split"].common.plan = [
        storm.PlanStep(call=f"map{number}") for number in range(100_000)
    ]
    seen = Look(ui_structs.summary(), other, ui_structs.topology_page(), ui_structs.topology_info())
    assert len(state.look(seen, NOW)["components"]["split"]["does"]) == 120


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
    assert "5 min ago on node1:6700: signal 9. Its last line: x. " in found["restart"]["text"]
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


def sums_at(ms: int, executed: int) -> storm.SupervisorWorkerHeartbeat:
    split = ComponentSums(
        executed=executed,
        acked=executed,
        busy_secs=executed / 1_000,
        execute_secs=executed / 1_000,
        by_source=(("lines", "default", executed),),
        busiest=(7, 8, 1.02),
        most_a_second=60.0,
    )
    made_up = ComponentSums(executed=10**9)
    components = {
        "lines": ComponentSums(emitted=executed, acked=executed, process_secs=executed / 100),
        "split": split,
        "not-there": made_up,
    }
    return storm.SupervisorWorkerHeartbeat(
        storm_id=ui_structs.ID,
        executors=[],
        time_secs=0,
        port=6700,
        supervisor_id="sup-1",
        sums=encode_sums(WorkerSums(ms, components)),
    )


def test_an_async_bolt_of_a_large_topology_is_busy_at_most_all_the_time() -> None:
    """It executes many tuples at once."""
    state, info, page = TopologyState(), ui_structs.topology_info(), measured()
    for second in range(3):
        found = state.look(
            Look(
                ui_structs.summary(),
                ui_structs.code(),
                page,
                info,
                sums=[sums_at(60_000 + 1_000 * second, 8_000 * second)],
            ),
            NOW + second,
        )
    assert found["components"]["split"]["busyMean"] == 1.0


def test_calls_under_way_and_their_limit_are_shown() -> None:
    page, info = measured(), ui_structs.topology_info()
    bolt = page.id_to_bolt_agg_stats["split"].specific_stats.bolt
    assert look(page)["components"]["split"]["callsMax"] is None
    bolt.calls_max, bolt.on_threads = 200, False
    split = look(page)["components"]["split"]
    assert (split["callsMax"], split["onThreads"]) == (200, False)
    assert 0 < split["calls"] < 1
    state = TopologyState()
    for second in range(3):
        sums = [sums_at(60_000 + 1_000 * second, 8_000 * second)]
        seen = Look(ui_structs.summary(), ui_structs.code(), page, info, sums=sums)
        split = state.look(seen, NOW + second)["components"]["split"]
    assert (split["calls"], split["busyMean"]) == (8.0, 0.04)


def test_sums_that_are_missing_for_a_moment_bring_back_no_old_figures() -> None:
    """A worker of a large topology was started anew. What its executors did was last read when the
    page was opened, an hour ago."""
    state, page, old = TopologyState(), measured(), ui_structs.topology_info(uptime_secs=100)
    silent = sums_at(0, 0)
    silent.sums = None

    def shown(uptime: int, info: storm.TopologyInfo, sums: Any) -> dict[str, Any]:
        summary = ui_structs.summary(uptime_secs=uptime)
        seen = Look(summary, ui_structs.code(), page, info, sums=[sums])
        return state.look(seen, NOW + uptime)

    before = shown(100, old, silent)["components"]["split"]["executeRate"]
    for second in range(5):
        shown(3_700 + second, old, sums_at(60_000 + 1_000 * second, 50 * second))
    missing = shown(3_705, old, silent)
    assert not state.follows_sums  # so that the executors are read anew
    assert missing["components"]["split"]["executeRate"] == 50 != before
    assert missing["edges"][0]["rate"] == 50
    assert missing["findings"] == shown(3_706, old, silent)["findings"]
    new = ui_structs.topology_info(uptime_secs=3_706)
    assert shown(3_707, new, silent)["components"]["split"]["executeRate"] == before


def test_a_large_topology_shows_what_its_workers_sums_say() -> None:
    """A rate that drops is shown at once, and nothing of the executors is read meanwhile."""
    state, info, page = TopologyState(), ui_structs.topology_info(), measured()
    shown = []
    for quarter in range(13):
        executed = 25 * min(quarter, 8)
        seen = Look(
            ui_structs.summary(),
            ui_structs.code(),
            page,
            info,
            sums=[sums_at(60_000 + 250 * quarter, executed)],
        )
        shown.append(state.look(seen, NOW + quarter / 4))
        assert state.follows_sums == (quarter > 0)
    lines, split = shown[8]["components"]["lines"], shown[8]["components"]["split"]
    assert (lines["emitRate"], lines["completeMs"], lines["processMs"]) == (100, 10, 0)
    assert (split["executeRate"], split["executeMs"], split["p50"]) == (100, 1.0, 0.0123)
    # (The clocks of a worker's loop and of its counters are two.)
    assert (split["busy"], split["busiest"]) == (1.0, "tasks 7 to 8 on node1:6700")
    assert split["skew"] == pytest.approx(60 / (100 / split["executors"]))
    assert shown[8]["edges"][0]["rate"] == 100
    assert [one["components"]["split"]["executeRate"] for one in shown[9:]] == [87.5, 75, 62.5, 50]
    assert list(shown[8]["components"]) == ["lines", "split"]
    times, values = state.series.read("split.rate", 60)
    assert times
    assert max(value for value in values if value is not None) > 50
    # They end, for example because no page watches any more.
    last = state.look(Look(ui_structs.summary(), ui_structs.code(), page, info), NOW + 4)
    assert not state.follows_sums
    assert last["components"]["split"]["executeRate"] != 50


def test_a_topology_that_has_finished_is_shown_as_such() -> None:
    page = measured()
    page.finished = True
    lines = page.id_to_spout_agg_stats["lines"]
    lines.common_stats.queue_tuples, lines.specific_stats.spout.exhausted_tasks = 0, 1
    state = look(page)
    assert state["finished"] is True
    assert state["components"]["lines"]["exhausted"] == 1
    assert state["components"]["split"]["exhausted"] is None
    page.finished = None
    assert look(page)["finished"] is None


def test_the_cpu_of_workers_that_poll_busily_is_explained() -> None:
    page = measured()
    page.workers = [ui_structs.worker(), ui_structs.worker()]
    assert look(page)["cpuNote"] == ""
    page.topology_conf = '{"topology.worker.busy.poll.ms": 10}'
    assert "topology.worker.busy.poll.ms: 10" in look(page)["cpuNote"]


def test_an_error_that_is_cut_says_so() -> None:
    page = measured()
    error = page.id_to_bolt_agg_stats["split"].last_error
    error.error = "ValueError: " + "x" * 288
    assert look(page)["components"]["split"]["error"] == error.error
    error.error += "x"
    shown = look(page)["components"]["split"]["error"]
    assert (len(shown), shown[-2:]) == (300, "x…")
