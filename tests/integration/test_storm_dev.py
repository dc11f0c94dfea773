"""`storm dev`: what it says, what it keeps alive, and that it leaves nothing."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.leftovers import processes_of
from tests.support.devcluster import (
    STORM,
    DevCluster,
    environment,
    is_alive,
    storm,
    wait_dead,
    wait_empty,
    wait_for,
)
from tests.support.ledger import Ledger, text
from tests.support.submit import submit_ledger

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DevCluster]:
    """Of the tests that leave it as it was."""
    with DevCluster.start(tmp_path_factory.mktemp("dev"), supervisors=2, slots=3) as cluster:
        yield cluster


def test_the_line_of_json_names_every_part_and_each_answers(cluster: DevCluster) -> None:
    state = cluster.first_state
    assert {"nimbus", "zookeeper", "supervisors", "data_dir", "conf_file"} <= state.keys()
    for part in (
        state["nimbus"], state["zookeeper"], state["drpc"], state["ui"], state["logviewer"]
    ):  # fmt: skip
        assert is_alive(part["pid"])
        socket.create_connection((part["host"], part["port"]), timeout=5).close()
    assert len({s["id"] for s in state["supervisors"]}) == 2
    for supervisor in state["supervisors"]:
        assert is_alive(supervisor["pid"])
        assert len(supervisor["slots"]) == 3
        socket.create_connection(("127.0.0.1", supervisor["port"]), timeout=5).close()
    summary = cluster.call("getClusterInfo")
    assert {s.supervisor_id for s in summary.supervisors} == {s["id"] for s in state["supervisors"]}
    assert cluster.topologies() == {}


def test_two_cannot_share_a_data_folder(cluster: DevCluster) -> None:
    second = storm("dev", "--json", "--free-ports", "--data-dir", cluster.data_dir)
    assert second.returncode == 1
    assert second.stdout == ""
    assert f"another 'storm dev' is using {cluster.data_dir}" in second.stderr


def test_a_daemon_that_dies_is_started_again(cluster: DevCluster) -> None:
    for part in ("zookeeper", "nimbus"):
        pid = cluster.state()[part]["pid"]
        os.kill(pid, signal.SIGKILL)
        wait_for(
            f"{part} to be back",
            lambda part=part, pid=pid: cluster.state()[part]["pid"] not in (None, pid),
        )
    wait_for("a leader", lambda: _leads(cluster), 60)
    said = "nimbus was killed by SIGKILL; restarting it."
    wait_for("the message", lambda: said in cluster.messages())


def _leads(cluster: DevCluster) -> bool:
    return cluster.storm("list", "--json", check=False).returncode == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_everything_workers_included(tmp_path: Path, number: signal.Signals) -> None:
    with Ledger(text(1_000)) as ledger, DevCluster.start(tmp_path) as cluster:
        submit_ledger(cluster, ledger, workers=2)
        workers = cluster.worker_pids(2)
        assert cluster.stop(number) == 0
        wait_dead(*workers)
        wait_empty("processes", lambda: processes_of(tmp_path).values())


def test_output_that_fails_changes_nothing(tmp_path: Path) -> None:
    """What is killed is started again, once; SIGTERM ends all of it."""
    reader, closed_pipe = os.pipe()
    os.close(reader)
    full_disk = os.open("/dev/full", os.O_WRONLY)
    process = subprocess.Popen(
        [*STORM, "dev", "--free-ports", "--data-dir", tmp_path],
        env=environment(),
        stdin=subprocess.DEVNULL,
        stdout=full_disk,
        stderr=closed_pipe,
        start_new_session=True,
    )
    os.close(closed_pipe)
    os.close(full_disk)
    cluster = DevCluster(process, tmp_path, {"conf_file": str(tmp_path / "storm.yaml")})
    try:
        wait_for("the cluster", lambda: _pids(tmp_path, process), 60)
        parts = len(_steady_processes(tmp_path))
        killed = {part: cluster.state()[part]["pid"] for part in ("zookeeper", "nimbus")}
        for pid in killed.values():
            os.kill(pid, signal.SIGKILL)
        for part, pid in killed.items():
            wait_for("its restart", lambda p=part, old=pid: _restarted(cluster, p, old))
        wait_for("each part once", lambda: len(_steady_processes(tmp_path)) == parts, 60)
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=60) == 0
        wait_empty("processes", lambda: processes_of(tmp_path).values())
    finally:
        cluster.destroy()


def _steady_processes(folder: Path) -> set[int]:
    """Its processes, once a second has changed nothing: what starts forks, and some come later."""

    def steady() -> set[int] | None:
        before = set(processes_of(folder))
        time.sleep(1)
        return before if set(processes_of(folder)) == before else None

    return wait_for("no process to come or go", steady, 60)


def _pids(data_dir: Path, process: subprocess.Popen[bytes]) -> bool:
    """Whether all that there is to be has a process."""
    assert process.poll() is None, "storm dev has ended"
    try:
        state = json.loads((data_dir / "cluster.json").read_bytes())
    except FileNotFoundError:
        return False
    return all(part["pid"] for part in (state["drpc"], state["nimbus"], *state["supervisors"]))


def _restarted(cluster: DevCluster, part: str, pid: int) -> bool:
    return cluster.state()[part]["pid"] not in (None, pid)


def test_it_ends_when_its_data_folder_is_removed(tmp_path: Path) -> None:
    """Each daemon would end, and be started without its files again and again. Its workers end,
    too, although the records of them are gone."""
    cluster = DevCluster.launch(tmp_path / "dev", supervisors=1, slots=1)
    try:
        with Ledger(text(1_000)) as ledger:
            submit_ledger(cluster, ledger)
            wait_for("it runs", lambda: cluster.topologies()["ledger"]["health"] == "ok")
            shutil.rmtree(tmp_path / "dev", ignore_errors=True)
            assert cluster.process.wait(60) == 1
            wait_for("every process to end", lambda: not processes_of(tmp_path / "dev"), 60)
    finally:
        cluster.destroy()


def test_killing_it_leaves_no_process(tmp_path: Path) -> None:
    """Whatever its data folder says of it."""
    with Ledger(text(1_000)) as ledger:
        cluster = DevCluster.launch(tmp_path, supervisors=1, slots=2)
        try:
            submit_ledger(cluster, ledger)
            cluster.worker_pids(1)
            (tmp_path / "cluster.json").unlink()
            cluster.stop(signal.SIGKILL)
            wait_for("all processes to end", lambda: not processes_of(tmp_path), 60)
        finally:
            cluster.destroy()


def test_a_port_in_use_is_one_message(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        result = storm(
            "nimbus",
            "-c",
            f"nimbus.thrift.port={port}",
            "-c",
            f"storm.local.dir={tmp_path}",
            timeout_secs=60,
        )
    assert result.returncode == 1
    assert str(port) in result.stderr
    assert "Traceback" not in result.stderr


def test_topologies_run_again_after_a_restart_of_the_cluster(tmp_path: Path) -> None:
    with Ledger(text(20_000)) as ledger:
        ledger.serve_up_to(100)
        with DevCluster.start(tmp_path) as cluster:
            submit_ledger(cluster, ledger)
            ledger.wait_done(100, timeout_secs=60)
        ledger.serve_up_to(None)
        with DevCluster.start(tmp_path) as cluster:
            ledger.wait_done(timeout_secs=120)
            cluster.storm("kill", "ledger", "-w", "0")
            cluster.wait_gone("ledger")
        ledger.check()
