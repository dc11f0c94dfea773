"""`storm profile` against real workers: flame graphs, stacks, objects, restart, errors."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.devcluster import DevCluster, fresh_name, wait_dead, wait_empty, wait_for
from tests.support.live_files import found, texts

pytestmark = pytest.mark.integration

TOPOLOGY = '''
import asyncio
import ctypes
import pathlib
import sys
import time

from squall import Bolt, Spout, TopologyBuilder, submit_topology


def grind_numbers():
    return sum(i * i for i in range(2_000))


class Numbers(Spout):
    outputs = ["n"]

    def next_tuple(self):
        self.emit([grind_numbers()])


class Few(Spout):
    outputs = ["n"]

    def open(self, conf, context):
        self.left = 20

    def next_tuple(self):
        if self.left:
            self.left -= 1
            self.emit([self.left])


class Waiting(Bolt):
    outputs = []

    async def execute(self, tup):
        await self.wait_for_the_moon()

    async def wait_for_the_moon(self):
        await asyncio.sleep(3600)


class Stuck(Bolt):
    """Does what the file says, if there is one."""

    outputs = []

    def __init__(self, folder):
        self.folder = folder

    def execute(self, tup):
        order = pathlib.Path(self.folder, "order")
        if not order.exists():
            return
        what = order.read_text()
        order.unlink()
        if what == "sleep":
            self.sleep_on_the_loop(until=order.exists)
        elif what == "hold":
            self.hold_the_interpreter()

    def sleep_on_the_loop(self, until):
        latest = time.monotonic() + 20
        while not until() and time.monotonic() < latest:
            time.sleep(0.05)

    def hold_the_interpreter(self):
        ctypes.PyDLL(None).usleep(14_000_000)  # PyDLL: with the interpreter's lock


if __name__ == "__main__":
    builder = TopologyBuilder()
    builder.spout("numbers", Numbers())
    builder.spout("few", Few())
    builder.bolt("waiting", Waiting()).shuffle("few")
    builder.bolt("stuck", Stuck(folder=sys.argv[1])).shuffle("numbers")
    conf = {
        "topology.workers": 1,
        "topology.bolt.async.concurrency": 7,
        "topology.executor.receive.buffer.size": 64,
    }
    submit_topology("busy", conf, builder.build())
'''


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("profile")


@pytest.fixture(scope="module")
def cluster(folder: Path) -> Iterator[DevCluster]:
    with DevCluster.start(folder / fresh_name("cluster"), slots=1) as cluster:
        package = folder / "busy"
        package.mkdir(exist_ok=True)
        (package / "busy.py").write_text(TOPOLOGY)
        cluster.storm("jar", package, "busy.py", folder)
        cluster.worker_pids(1)
        wait_running(cluster)
        yield cluster
        cluster.storm("kill", "busy", "-w", "0")
        cluster.wait_gone("busy")


def wait_running(cluster: DevCluster) -> None:
    """Until the worker's tasks run and it has come to its first heartbeat in ZooKeeper."""
    summary = cluster.call("getTopologySummaryByName", "busy")

    def runs() -> bool:
        page = cluster.call("getTopologyPageInfo", summary.id, ":all-time", True)
        return bool(page.workers and (page.workers[0].uptime_secs or 0) > 0)

    wait_for("the worker to run", runs, 60, 0.2)


def profile(cluster: DevCluster, output: Path, *options: str) -> str:
    """The one file that `storm profile` names, read."""
    result = cluster.storm("profile", "busy", "-o", output, *options, timeout_secs=110)
    (line,) = result.stdout.splitlines()
    assert Path(line).parent == output
    return Path(line).read_text()


def test_a_flame_graph_shows_where_the_time_goes(cluster: DevCluster, tmp_path: Path) -> None:
    graph = profile(cluster, tmp_path, "--secs", "2")
    assert graph.lstrip().startswith("<?xml")
    assert "<svg" in graph
    assert "grind_numbers (busy.py" in graph
    assert len(cluster.worker_pids()) == 1


def test_a_component_shows_the_functions_in_which_its_time_goes(
    cluster: DevCluster, tmp_path: Path
) -> None:
    result = cluster.storm(
        "profile", "busy", "-o", tmp_path, "--component", "numbers", "--secs", "2"
    )
    assert "grind_numbers" in result.stdout
    assert "wait_for_the_moon" not in result.stdout
    (file,) = tmp_path.glob("*-samples-*.txt")
    waiting = [x for x in file.read_text().splitlines() if x.startswith("off\twaiting\t")]
    assert any("Waiting.wait_for_the_moon (" in line for line in waiting)
    task = waiting[0].split("\t")[2]
    result = cluster.storm("profile", "busy", "-o", tmp_path, "--task", task, "--secs", "1")
    assert "grind_numbers" not in result.stdout
    assert "sleep (" in result.stdout
    for options, why in (
        (("--component", "nothing"), "no worker runs nothing now"),
        (("--task", "999"), "no worker runs task 999 now"),
        (("--task", "1", "--stack"), "--stack is about whole workers"),
        (("--task", "1", "--secs", "61"), "at most 60 s"),
    ):
        refused = cluster.storm("profile", "busy", "-o", tmp_path, *options, check=False)
        assert refused.returncode == 1
        assert why in refused.stderr


@pytest.mark.parametrize("native", ["SAMPLE_NATIVE", "SAMPLE_NATIVE_IDLE"])
def test_a_worker_is_sampled_with_native_frames(cluster: DevCluster, native: str) -> None:
    from squall_thrift import storm

    summary = cluster.call("getTopologySummaryByName", "busy")
    (worker,) = cluster.call("getTopologyPageInfo", summary.id, ":all-time", True).workers
    stamp = int(time.time() * 1000) + 1000
    request = storm.ProfileRequest(
        nodeInfo=storm.NodeInfo(node=worker.supervisor_id, port={worker.port}),
        action=storm.ProfileAction[native],
        time_stamp=stamp,
    )
    cluster.call("setWorkerProfiler", summary.id, request)
    logs = cluster.data_dir / "logs"
    text = wait_for("the samples", lambda: "".join(texts(logs, f"native-{stamp}.txt")), 60)
    lines = text.splitlines()
    assert all(line.rpartition(" ")[2].isdigit() for line in lines)
    assert any("grind_numbers (busy.py" in line for line in lines)
    assert any("libpython" in line or "python3" in line or ".c:" in line for line in lines)


def test_the_stacks_name_threads_coroutines_and_the_state_of_executors(
    cluster: DevCluster, tmp_path: Path
) -> None:
    dump = profile(cluster, tmp_path, "--stack")
    threads, rest = dump.split("== asyncio tasks ==")
    tasks, executors = rest.split("== Executors ==")
    assert "'MainThread'" in threads
    assert "'heartbeats'" in threads
    assert "7 task(s): waiting:" in tasks
    assert "in wait_for_the_moon" in tasks
    assert "AsyncBolt: queued=" in executors
    assert "in_flight=7" in executors
    assert "numbers" in executors


def order(folder: Path, what: str) -> None:
    """At once: the bolt must not read half of it."""
    (folder / "order.part").write_text(what)
    (folder / "order.part").replace(folder / "order")


def test_a_stuck_component_is_seen_in_the_stacks(
    cluster: DevCluster, folder: Path, tmp_path: Path
) -> None:
    order(folder, "sleep")
    wait_for("the bolt to take the order", lambda: not (folder / "order").exists())
    dump = profile(cluster, tmp_path, "--stack")
    assert "in sleep_on_the_loop" in dump.split("== asyncio tasks ==")[0]


def test_code_that_holds_the_interpreter_is_seen_in_the_stacks(
    cluster: DevCluster, folder: Path, tmp_path: Path
) -> None:
    """No Python runs in the worker then, not even its heartbeat thread."""
    order(folder, "hold")
    wait_for("the bolt to take the order", lambda: not (folder / "order").exists())
    dump = profile(cluster, tmp_path, "--stack")
    assert "something in it holds the interpreter" in dump
    assert "in hold_the_interpreter" in dump


def test_the_objects_in_memory_are_listed_by_type(cluster: DevCluster, tmp_path: Path) -> None:
    dump = profile(cluster, tmp_path, "--heap")
    assert "Resident" in dump
    assert "_asyncio.Task" in dump or "Tuple" in dump


def test_a_restart_replaces_the_process(cluster: DevCluster, tmp_path: Path) -> None:
    (before,) = cluster.worker_pids(1)
    result = cluster.storm("profile", "busy", "--restart", "-o", tmp_path, "--json")
    (row,) = json.loads(result.stdout)
    assert row["error"] is None
    wait_for("another process", lambda: cluster.worker_pids() not in (set(), {before}), 60)
    wait_dead(before)
    wait_running(cluster)
    # Nothing else was done to it, and nothing is left to do.
    wait_empty(
        "requests",
        lambda: [
            path
            for path in cluster.znodes()
            if "/profilerconfigs/busy" in path and "_" in path.rpartition("/")[2]
        ],
    )


def test_a_profile_can_be_ended_early_through_nimbus(cluster: DevCluster, tmp_path: Path) -> None:
    """As Storm's UI does it: JPROFILE_STOP with a time to come begins, another one ends."""
    import time

    from squall_thrift import storm as thrift

    summary = cluster.call("getTopologySummaryByName", "busy")
    worker = cluster.call("getTopologyPageInfo", summary.id, ":all-time", True).workers[0]
    node = thrift.NodeInfo(node=worker.host, port={worker.port})
    stamp = int(time.time() * 1000) + 100_000
    artifacts = cluster.data_dir / "logs"

    def files(pattern: str) -> list[Path]:
        return [path for path in found(artifacts, pattern) if summary.id in str(path)]

    def ask(action: str, time_stamp: int) -> None:
        request = thrift.ProfileRequest(
            nodeInfo=node, action=thrift.ProfileAction[action], time_stamp=time_stamp
        )
        cluster.call("setWorkerProfiler", summary.id, request)

    def pending(action: str) -> int:
        return len(
            cluster.call(
                "getComponentPendingProfileActions",
                summary.id,
                "numbers",
                thrift.ProfileAction[action],
            )
        )

    ask("JPROFILE_START", stamp)
    wait_for("py-spy to run", lambda: py_spies(cluster), 60)
    assert pending("JPROFILE_START") == 1
    wait_for("samples", lambda: cpu_secs(cluster) > 0.2, 60)
    ask("JPROFILE_DUMP", stamp + 1)
    wait_for("what there is so far", lambda: files(f"flamegraph-{stamp + 1}.svg"), 60)
    assert not files(f"flamegraph-{stamp}.svg")
    wait_for("py-spy to go on", lambda: py_spies(cluster), 60)
    wait_for("samples", lambda: cpu_secs(cluster) > 0.2, 60)
    ask("JPROFILE_STOP", stamp - 100_000)
    wait_for("the rest", lambda: files(f"flamegraph-{stamp}.svg"), 60)
    wait_for("no request left", lambda: not pending("JPROFILE_START"), 60)
    wait_empty("samplers", lambda: py_spies(cluster))


def py_spies(cluster: DevCluster) -> list[int]:
    """The samplers that look at this cluster's workers."""
    import psutil

    pids = {str(pid) for pid in cluster.worker_pids()}
    return [
        process.pid
        for process in psutil.process_iter(["cmdline"])
        if "py-spy" in " ".join(process.info["cmdline"] or ())
        and pids & set(process.info["cmdline"])
    ]


def cpu_secs(cluster: DevCluster) -> float:
    import psutil

    secs = 0.0
    for pid in py_spies(cluster):
        with contextlib.suppress(psutil.NoSuchProcess):
            times = psutil.Process(pid).cpu_times()
            secs += times.user + times.system
    return secs


def test_an_impossible_request_gives_one_clear_error(cluster: DevCluster, tmp_path: Path) -> None:
    result = cluster.storm("profile", "nobody", check=False)
    assert result.returncode == 1
    assert "error: " in result.stderr
    assert "Traceback" not in result.stderr
    result = cluster.storm("profile", "busy", "--worker", "elsewhere:1", check=False)
    assert result.returncode == 1
    assert "busy has no worker elsewhere:1" in result.stderr
    assert "127.0.0.1:" in result.stderr


def test_a_stopped_worker_is_reported_and_not_waited_for(
    cluster: DevCluster, tmp_path: Path
) -> None:
    (pid,) = cluster.worker_pids(1)
    os.kill(pid, signal.SIGSTOP)
    try:
        result = cluster.storm("profile", "busy", "--stack", check=False, timeout_secs=100)
    finally:
        os.kill(pid, signal.SIGCONT)
    assert result.returncode == 1
    assert "does not answer at all" in result.stderr
