"""Heartbeats of workers, read several times a second beside what Nimbus says seldom."""

from __future__ import annotations

from tests.support import ui_structs

from squall_common.cluster.codec import zip_bytes
from squall_thrift import codec, storm
from squall_ui.live.beats import WorkerBeats
from squall_ui.live.state import Look, TopologyState


def report(executed: int, stats_ms: int, port: int = 6700) -> storm.SupervisorWorkerHeartbeat:
    """Of the worker that runs `split`'s task 2 and has nothing to say of task 3 yet."""
    nothing = ui_structs.bolt_stats(0)
    nothing.rate = 0.0
    beat = storm.ClusterWorkerHeartbeat(
        storm_id=ui_structs.ID,
        executor_stats={
            storm.ExecutorInfo(task_start=2, task_end=2): ui_structs.bolt_stats(executed),
            storm.ExecutorInfo(task_start=3, task_end=3): nothing,
        },
        time_secs=1,
        uptime_secs=stats_ms // 1000,
        stats_ms=stats_ms,
    )
    return storm.SupervisorWorkerHeartbeat(
        storm_id=ui_structs.ID,
        executors=[],
        time_secs=1,
        port=port,
        supervisor_id="sup-1",
        report=zip_bytes(codec.to_bytes(beat)),
    )


def executed(beats: WorkerBeats) -> list[tuple[int, int | None]]:
    """By executor of `split`: tuples, and when they were counted."""
    found = beats.executors(ui_structs.topology_info().executors, [ui_structs.worker()])
    return [
        (sum(one.stats.specific.bolt.executed[":all-time"].values()), one.stats_ms)
        for one in found
        if one.component_id == "split" and one.stats is not None
    ]


def test_what_a_worker_reported_replaces_what_nimbus_said_before() -> None:
    beats = WorkerBeats()
    assert executed(beats) == [(1800, None), (600, None)]
    beats.take([report(1900, 100_250)])
    assert executed(beats) == [(1900, 100_250), (600, None)]
    beats.take([report(1950, 100_500)])
    assert executed(beats) == [(1950, 100_500), (600, None)]
    beats.take([])
    assert executed(beats) == [(1800, None), (600, None)]


def test_reports_of_others_and_damaged_ones_change_nothing() -> None:
    damaged = report(1900, 100_250)
    damaged.report = b"\x1f\x8bno gzip"
    beats = WorkerBeats()
    beats.take([damaged, report(5, 5, port=6799)])
    assert executed(beats) == [(1800, None), (600, None)]


def test_a_rate_that_drops_is_seen_while_nimbus_own_answer_stays_the_same() -> None:
    state, rates = TopologyState(), []
    info, page = ui_structs.topology_info(), ui_structs.topology_page()
    count = 0
    for ms in range(100_000, 108_000, 250):
        count += 25 if ms < 105_000 else 0
        seen = Look(ui_structs.summary(), ui_structs.code(), page, info, [report(count, ms)])
        shown = state.look(seen, 1_700_000_000 + ms / 1000)
        rates.append(shown["components"]["split"]["executeRate"])
    still = 600 / 100  # of the executor that reports nothing
    assert rates[19] == 100 + still
    assert rates[23] < 70
    assert rates[-1] == still
