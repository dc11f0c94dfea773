"""ZooKeeper that is not there: daemons wait and say so; workers go on."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.support.devcluster import STORM, DevCluster, environment, wait_for
from tests.support.ledger import Ledger, text
from tests.support.submit import submit_ledger

from squall_common.daemon.ports import free_ports

pytestmark = pytest.mark.integration


@pytest.mark.parametrize("daemon", ["nimbus", "supervisor"])
def test_a_daemon_waits_for_zookeeper_and_logs_it(tmp_path: Path, daemon: str) -> None:
    zookeeper, nimbus, slot = free_ports(3)
    log = tmp_path / "logs" / f"{daemon}.log"
    options = {
        "storm.zookeeper.servers": ["127.0.0.1"],
        "storm.zookeeper.port": zookeeper,
        "nimbus.thrift.port": nimbus,
        "supervisor.slots.ports": [slot],
        "supervisor.thrift.port": 0,
        "storm.local.dir": str(tmp_path / "local"),
        "storm.log.dir": str(tmp_path / "logs"),
        "storm.local.hostname": "127.0.0.1",
    }
    conf = tmp_path / "storm.yaml"
    conf.write_text(json.dumps(options))  # JSON is YAML
    with (tmp_path / "out").open("wb") as out:
        process = subprocess.Popen(
            [*STORM, "--config", str(conf), daemon],
            env=environment(),
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            cwd=tmp_path,
        )
    try:
        wait_for(
            f"{daemon} to say that it waits",
            lambda: "zookeeper" in _said(log, tmp_path / "out").lower(),
        )
        assert process.poll() is None
        server = subprocess.Popen(
            [*STORM, "dev-zookeeper", "--port", str(zookeeper), "--data-dir", str(tmp_path / "zk")],
            env=environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            from kazoo.client import KazooClient

            client = KazooClient(f"127.0.0.1:{zookeeper}")
            client.start(timeout=30)
            path = "/storm/nimbuses" if daemon == "nimbus" else "/storm/supervisors"
            wait_for(
                f"{daemon} to register",
                lambda: client.exists(path) and client.get_children(path),
                60,
            )
            client.stop()
            client.close()
            process.send_signal(signal.SIGTERM)
            assert process.wait(timeout=30) == 0
        finally:
            server.terminate()
            server.wait(timeout=30)
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()


def _said(*paths: Path) -> str:
    return "\n".join(path.read_text() for path in paths if path.exists())


def test_workers_go_on_while_zookeeper_is_away_and_replace_each_other(tmp_path: Path) -> None:
    """With Nimbus away as well a worker is killed: its successor starts, and traffic goes on. When
    both are back, nothing is started again."""
    with Ledger(text(100_000)) as ledger, DevCluster.start(tmp_path, slots=2) as cluster:
        ledger.serve_up_to(1_000)
        submit_ledger(cluster, ledger, workers=2, conf={"topology.max.spout.pending": 20})
        ledger.wait_done(1_000, timeout_secs=60)
        workers = cluster.worker_pids(2)
        server = cluster.state()["zookeeper"]["pid"]
        nimbus = cluster.state()["nimbus"]["pid"]
        os.kill(server, signal.SIGSTOP)
        try:
            said_in_time(cluster)
            ledger.serve_up_to(2_000)
            ledger.wait_done(2_000, timeout_secs=60)
            assert cluster.worker_pids() == workers
            os.kill(nimbus, signal.SIGSTOP)
            os.kill(min(workers), signal.SIGKILL)
            ledger.serve_up_to(5_000)
            ledger.wait_done(5_000, timeout_secs=60)
            replaced = cluster.worker_pids(2)
            assert replaced & workers == {max(workers)}
        finally:
            os.kill(nimbus, signal.SIGCONT)
            os.kill(server, signal.SIGKILL)
        wait_for("the cluster to answer", lambda: _answers(cluster), 90)
        ledger.serve_up_to(None)
        ledger.wait_done(timeout_secs=120)
        ledger.check()
        assert cluster.worker_pids() == replaced


def said_in_time(cluster: DevCluster) -> None:
    """A command ends within 5 s of real time, with the reason. (What a command takes to start on
    this machine just now does not count.)"""
    began = time.monotonic()
    cluster.storm("version")
    start_secs = time.monotonic() - began
    result = cluster.storm("list", check=False)
    took_secs = time.monotonic() - began - 2 * start_secs
    assert result.returncode == 1
    assert "no Nimbus reaches ZooKeeper" in result.stderr, result.stderr
    assert took_secs < 5, result.stderr


def _answers(cluster: DevCluster) -> bool:
    return cluster.storm("list", check=False).returncode == 0


def test_dev_zookeeper_refuses_a_port_in_use(tmp_path: Path) -> None:
    import socket

    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        result = subprocess.run(
            [*STORM, "dev-zookeeper", "--port", str(port), "--data-dir", str(tmp_path)],
            env=environment(),
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
    assert result.returncode == 1, result.stderr
    assert str(port) in result.stderr
    assert "Traceback" not in result.stderr
    assert sys.executable
