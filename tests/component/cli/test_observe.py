"""`storm status`, `top`, `monitor` and `completion`."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import select
import subprocess
import sys
import termios
import time
from typing import Any

import pytest
from tests.support.fake_nimbus import FakeNimbus

from squall_cli.main import run
from squall_thrift import storm


def aggregate(*, emitted: int, **specific: Any) -> storm.ComponentAggregateStats:
    is_spout = "complete_latency_ms" in specific
    return storm.ComponentAggregateStats(
        common_stats=storm.CommonAggregateStats(
            num_executors=2, num_tasks=4, emitted=emitted, transferred=emitted, acked=100, failed=0
        ),
        specific_stats=storm.SpecificAggregateStats(spout=storm.SpoutAggregateStats(**specific))
        if is_spout
        else storm.SpecificAggregateStats(bolt=storm.BoltAggregateStats(**specific)),
    )


def times(ms: float) -> storm.LatencyDistribution:
    return storm.LatencyDistribution(count=100, p50_ms=ms, p95_ms=2 * ms, p99_ms=3 * ms)


def component_page(*shares: float) -> storm.ComponentPageInfo:
    """A component whose executors, of a task each, are busy these shares of their time."""
    executors = []
    for task, share in enumerate(shares, 1):
        stats = aggregate(emitted=0, capacity=share, executed=25_000)
        summary = storm.ExecutorSummary(
            executor_info=storm.ExecutorInfo(task_start=task, task_end=task),
            component_id="count", host="h1", port=6700, uptime_secs=200,
        )  # fmt: skip
        executors.append(storm.ExecutorAggregateStats(exec_summary=summary, stats=stats))
    return storm.ComponentPageInfo(
        component_id="count", component_type=storm.ComponentType.BOLT, exec_stats=executors,
        sid_to_output_stats={"default": aggregate(emitted=7, complete_latency_ms=1.0)},
    )  # fmt: skip


@pytest.fixture(autouse=True)
def _running(nimbus: FakeNimbus) -> None:
    """A topology whose bolt `count` is full, and whose counts grow by 1000 with each look."""
    summary = storm.TopologySummary(
        id="wordcount-1-17", name="wordcount", num_tasks=8, num_executors=4, num_workers=1,
        uptime_secs=95, status="ACTIVE", owner="ann", health="ok",
    )  # fmt: skip
    emitted = 0

    def page(_id: str, window: str, _system: bool) -> storm.TopologyPageInfo:
        nonlocal emitted
        emitted += 1000 if window == ":all-time" else 0
        count = aggregate(
            emitted=0, execute_latency_ms=4.0, process_latency_ms=4.5, executed=5000, capacity=0.95
        )
        count.specific_stats.bolt.execute_latency = times(4.0)
        count.common_stats.queue_tuples = 31
        count.common_stats.state_keys, count.common_stats.state_bytes = 12_345, 3 * 2**19
        count.last_error = storm.ErrorInfo(
            error="Traceback (most recent call last):\nValueError: no \x1b[2J\n",
            error_time_secs=int(time.time()) - 7,
        )
        recent = emitted if window == ":all-time" else 2000
        lines = aggregate(emitted=recent, complete_latency_ms=12.3)
        lines.specific_stats.spout.complete_latency = times(12.0)
        lines.common_stats.blocked_share = {"count": 0.42, "other": 0.05}
        usage = storm.WorkerUsage(cpu_cores=0.95, memory_bytes=50 * 2**20, loop_lag_ms=12.34)
        return storm.TopologyPageInfo(
            id="wordcount-1-17",
            topology_conf="{}",
            topology_stats=storm.TopologyStats(
                window_to_emitted={"600": 2000},
                window_to_acked={"600": 1000},
                window_to_complete_latencies_ms={"600": 12.3},
            ),
            id_to_spout_agg_stats={"lines": lines},
            id_to_bolt_agg_stats={"count": count},
            workers=[
                storm.WorkerSummary(
                    supervisor_id="s-1", host="h1", port=6700, num_executors=4, uptime_secs=200,
                    component_to_num_tasks={"lines": 4, "count": 4}, usage=usage,
                )
            ],
        )  # fmt: skip

    def cluster() -> storm.ClusterSummary:
        node = storm.SupervisorSummary(
            host="h1", uptime_secs=1, num_workers=4, num_used_workers=1, supervisor_id="s-1"
        )
        leader = storm.NimbusSummary(
            host="n1", port=6627, uptime_secs=1, isLeader=True, version="0.1.0"
        )
        return storm.ClusterSummary(supervisors=[node], topologies=[summary], nimbuses=[leader])

    def by_name(name: str) -> storm.TopologySummary:
        if name != "wordcount":
            raise storm.NotAliveException(msg=f"{name} is not alive")
        return summary

    info = storm.TopologyInfo(
        id="wordcount-1-17", name="wordcount", uptime_secs=1, executors=[], status="ACTIVE",
        errors={"count": [storm.ErrorInfo(error="ValueError: no", error_time_secs=17)]},
    )  # fmt: skip
    level = storm.LogLevel(action=storm.LogLevelAction.UNCHANGED, target_log_level="DEBUG")
    nimbus.answers |= {
        "getTopologySummaries": [summary],
        "getTopologySummaryByName": by_name,
        "getTopologyPageInfo": page,
        "getClusterInfo": lambda: cluster(),
        "getTopologyInfoWithOpts": info,
        "getTopology": code(),
        "getLogConfig": storm.LogConfig(named_logger_level={"job": level}),
        "getComponentPageInfo": lambda *_: component_page(0.95, 0.9),
    }


def test_status_shows_figures_and_the_bottleneck(command: Any) -> None:
    status, out, err = command("status", "wordcount")
    assert (status, err) == (0, "")
    assert "emitted     10/s" in out
    assert "SLOW: count is the bottleneck. Its busiest executor spends 95% of its time" in out
    assert "SLOW: lines waits for count. lines waits 42% of the time" in out
    of_lines = next(line.split() for line in out.splitlines() if line.startswith("lines "))
    assert " ".join(of_lines).endswith("12.3 ms 12 ms 24 ms 36 ms 42% by count")
    assert "42% by count" in out
    assert "12,345 keys, 1.5 MiB" in next(o for o in out.splitlines() if o.startswith("count "))
    assert "95%  50 MiB  12.3 ms" in out
    assert "h1:6700" in out
    assert "DEBUG" in out
    assert "\x1b" not in out


def code(*steps: storm.PlanStep) -> storm.StormTopology:
    """What a bolt does."""
    common = storm.ComponentCommon(inputs={}, streams={}, plan=list(steps))
    shell = storm.ComponentObject(shell=storm.ShellComponent())
    return storm.StormTopology(
        spouts={}, bolts={"count": storm.Bolt(bolt_object=shell, common=common)}, state_spouts={}
    )


def test_status_lists_the_steps_of_streams(nimbus: FakeNimbus, command: Any) -> None:
    _, out, _ = command("status", "wordcount")
    assert "PLAN OF" not in out
    nimbus.answers["getTopology"] = code(
        storm.PlanStep(call="map(normalise)", functions=["shop:normalise"]),
        storm.PlanStep(call="count()\x1b[2J", windows="tumbling 60 s of event time, lag 5 s"),
    )
    status, out, err = command("status", "wordcount")
    assert (status, err) == (0, "")
    shown = [line.split() for line in out.partition("PLAN OF")[2].splitlines()[1:3]]
    assert shown[0] == ["count", "map(normalise)", "shop:normalise"]
    assert " ".join(shown[1]).endswith("over tumbling 60 s of event time, lag 5 s")
    assert "\x1b" not in out
    _, out, _ = command("status", "wordcount", "--json")
    plans = {one["name"]: one["plan"] for one in json.loads(out)["components"]}
    assert plans["lines"] == []
    assert plans["count"][0] == {
        "step": "map(normalise)",
        "functions": ["shop:normalise"],
        "windows": None,
    }


def test_status_for_programs(command: Any) -> None:
    status, out, err = command("status", "wordcount", "--json")
    assert (status, err) == (0, "")
    found = json.loads(out)
    assert [one["kind"] for one in found["findings"]] == ["slow bolt", "blocked", "error"]
    assert [one["severity"] for one in found["findings"]] == ["slow", "slow", "note"]
    count, lines = sorted(found["components"], key=lambda one: one["name"])
    assert (count["p50_ms"], count["p95_ms"], count["p99_ms"]) == (4.0, 8.0, 12.0)
    assert (count["queue_tuples"], count["blocked"]) == (31, {})
    assert lines["blocked"] == {"count": 0.42, "other": 0.05}
    assert (count["state_keys"], count["state_bytes"]) == (12_345, 3 * 2**19)
    assert (lines["state_keys"], lines["state_bytes"]) == (None, None)
    (worker,) = found["workers"]
    assert (worker["cpu_cores"], worker["memory_bytes"]) == (0.95, 50 * 2**20)
    assert found["log_levels"] == {"job": "DEBUG"}


def test_status_names_a_skewed_key(nimbus: FakeNimbus, command: Any) -> None:
    nimbus.answers["getComponentPageInfo"] = lambda *_: component_page(0.95, 0.05)
    status, out, _ = command("status", "wordcount")
    assert status == 0
    assert "SLOW: count is skewed. One executor (task 1 on h1:6700) is busy 95%" in out


def test_status_of_a_topology_that_does_not_exist(command: Any) -> None:
    status, out, err = command("status", "nope")
    assert (status, out) == (1, "")
    assert "nope is not alive" in err


def test_top_without_a_terminal_prints_one_look(command: Any) -> None:
    status, out, err = command("top")
    assert (status, err) == (0, "")
    assert "Nimbus n1:6627" in out
    assert "1/4 slots used" in out
    assert "95%" in out
    assert "36 ms" in out
    assert "42% by count" in out
    assert "SLOW: count is the bottleneck." in out
    assert "ValueError: no \\x1b[2J" in out


def test_top_for_programs(command: Any) -> None:
    status, out, err = command("top", "--json", "wordcount")
    assert (status, err) == (0, "")
    found = json.loads(out)
    assert [one["name"] for one in found["topologies"][0]["components"]] == ["lines", "count"]


def test_top_of_an_empty_cluster(nimbus: FakeNimbus, command: Any) -> None:
    nimbus.answers["getClusterInfo"] = storm.ClusterSummary(
        supervisors=[], topologies=[], nimbuses=[]
    )
    status, out, _ = command("top")
    assert status == 0
    assert "0 topologies" in out


@pytest.mark.parametrize("typed", [b"q", b"\x03"])
def test_the_live_view_of_top_updates_says_that_nimbus_hangs_and_ends_with_a_key(
    nimbus: FakeNimbus, typed: bytes
) -> None:
    words = [f"{key}={json.dumps(value)}" for key, value in nimbus.conf.items()]
    options = [word for each in words for word in ("-c", each)]
    program = [sys.executable, "-m", "squall_cli.main", *options, "top", "-i", "0.5"]
    terminal, inner = pty.openpty()
    child = subprocess.Popen(
        program,
        stdin=inner,
        stdout=inner,
        stderr=inner,
        start_new_session=True,
        preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),  # so that Ctrl-C interrupts
        env={**os.environ, "TERM": "xterm", "COLUMNS": "150", "LINES": "40"},
    )
    os.close(inner)
    shown = b""
    try:
        deadline = time.monotonic() + 60
        # Rates since the first look: that the header names seconds shows that a look was added.
        while b" s" not in shown.partition(b"rates of ")[2] and time.monotonic() < deadline:
            if select.select([terminal], [], [], 0.2)[0]:
                shown += os.read(terminal, 65536)
        assert b"wordcount" in shown
        while len(nimbus.called("getClusterInfo")) < 3 and time.monotonic() < deadline:
            if select.select([terminal], [], [], 0.2)[0]:
                shown += os.read(terminal, 65536)
        nimbus.delays["getClusterInfo"] = 20.0
        while b"has not answered for" not in shown and time.monotonic() < deadline:
            if select.select([terminal], [], [], 0.2)[0]:
                shown += os.read(terminal, 65536)
        os.write(terminal, typed)  # is answered although a look is under way
        while time.monotonic() < deadline:
            try:
                if not (more := os.read(terminal, 65536)):
                    break
            except OSError:
                break
            shown += more
    finally:
        os.close(terminal)  # hangs up on a child that still runs
        status = child.wait(30)
    assert status == 0
    assert b"has not answered for" in shown
    assert shown.rstrip().endswith(b"\x1b[?1049l")  # the screen is as before


def test_monitor_counts_the_tuples_between_looks(command: Any) -> None:
    status, out, err = command("monitor", "wordcount", "-i", "0.1", "--count", "2", "--json")
    assert (status, err) == (0, "")
    lines = [json.loads(line) for line in out.splitlines()]
    assert [(one["component"], one["count"]) for one in lines] == [
        ("count", 0), ("lines", 1000), ("count", 0), ("lines", 1000)
    ]  # fmt: skip


def test_monitor_of_one_stream(command: Any) -> None:
    options = ("-m", "lines", "-w", "transferred", "-i", "0.1", "--count", "1")
    status, out, _ = command("monitor", "wordcount", *options)
    assert status == 0
    assert out.splitlines()[1].split()[1:5] == ["ACTIVE", "lines", "default", "2"]


def test_monitor_names_the_components_if_there_is_no_such_one(command: Any) -> None:
    status, _, err = command("monitor", "wordcount", "-m", "nope")
    assert status == 1
    assert "It has: count, lines." in err


def test_monitor_names_the_streams_if_there_is_no_such_one(
    nimbus: FakeNimbus, command: Any
) -> None:
    def part(*streams: str) -> storm.ComponentCommon:
        info = storm.StreamInfo(output_fields=["x"], direct=False)
        return storm.ComponentCommon(inputs={}, streams=dict.fromkeys(streams, info))

    code = storm.ComponentObject(serialized_java=b"")
    nimbus.answers["getTopology"] = storm.StormTopology(
        spouts={"lines": storm.SpoutSpec(spout_object=code, common=part("default", "late"))},
        bolts={"count": storm.Bolt(bolt_object=code, common=part())},
        state_spouts={},
    )
    once = ("-i", "0.1", "--count", "1")
    status, out, err = command("monitor", "wordcount", "-m", "lines", "-s", "lat", *once)
    assert (status, out) == (1, "")
    assert err == "error: component 'lines' has no stream 'lat'\nhint: It has: default, late.\n"
    assert command("monitor", "wordcount", "-m", "count", "-s", "late", *once)[0] == 1
    assert command("monitor", "wordcount", "-s", "lat", *once)[0] == 1
    assert command("monitor", "wordcount", "-m", "lines", "-s", "late", *once)[0] == 0
    assert command("monitor", "wordcount", "-s", "late", *once)[0] == 0


@pytest.mark.parametrize(
    ("typed", "expected"), [("wo", ["plain,wordcount"]), ("x", []), ("", ["plain,wordcount"])]
)
def test_topologies_are_completed(
    nimbus: FakeNimbus,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    typed: str,
    expected: list[str],
) -> None:
    from squall_cli.main import storm as storm_command

    conf = [f"'{key}={json.dumps(value)}'" for key, value in nimbus.conf.items()]
    words = ["storm", *(word for each in conf for word in ("-c", each)), "kill", typed]
    monkeypatch.setenv("_STORM_COMPLETE", "bash_complete")
    monkeypatch.setenv("COMP_WORDS", " ".join(words))
    monkeypatch.setenv("COMP_CWORD", str(len(words) - 1))
    with pytest.raises(SystemExit):
        storm_command.main(args=[], prog_name="storm")
    assert capsys.readouterr().out.split() == expected


def test_completion_is_silent_without_a_nimbus(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from squall_cli.main import storm as storm_command

    monkeypatch.setenv("_STORM_COMPLETE", "bash_complete")
    monkeypatch.setenv("COMP_WORDS", "storm -c nimbus.thrift.port=1 kill w")
    monkeypatch.setenv("COMP_CWORD", "4")
    with pytest.raises(SystemExit):
        storm_command.main(args=[], prog_name="storm")
    assert capsys.readouterr() == ("\n", "")


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_prints_a_script(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["completion", shell]) == 0
    assert f"_STORM_COMPLETE={shell}_complete" in capsys.readouterr().out
