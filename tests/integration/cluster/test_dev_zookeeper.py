"""The development server: found, started, stopped, restarted, and clear errors if it cannot be."""

from __future__ import annotations

import importlib.util
import os
import signal
import socket
from pathlib import Path

import pytest

from squall_cli.cluster import zookeeper as subject
from squall_cli.cluster.zookeeper import DevZooKeeper, find_classpath, find_java
from squall_common.cluster.stores.zookeeper import ZooKeeperStore
from squall_common.errors import SquallError

pytestmark = pytest.mark.integration


async def test_it_keeps_its_data_and_port_across_a_restart(tmp_path: Path) -> None:
    server = DevZooKeeper(tmp_path / "zk", tick_ms=200)
    assert server.pid is None
    await server.start()
    await server.start()  # it runs: nothing to do
    port, pid = server.port, server.pid
    assert port != 0
    assert pid is not None
    assert "Mode: standalone" in await server.ask("srvr")
    store = ZooKeeperStore(server.address, session_timeout_secs=2)
    await store.start()
    await store.create("/kept", b"x")
    await store.close()
    await server.stop()
    await server.stop()
    assert server.pid is None
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
    await server.start()
    assert server.port == port
    store = ZooKeeperStore(server.address, session_timeout_secs=2)
    await store.start()
    assert (await store.get("/kept"))[0] == b"x"
    await store.close()
    await server.stop()
    assert server.log_file.exists()


async def test_it_listens_on_loopback_only(tmp_path: Path) -> None:
    server = DevZooKeeper(tmp_path / "zk")
    await server.start()
    try:
        assert "clientPortAddress=127.0.0.1" in (tmp_path / "zk" / "zoo.cfg").read_text()
        with pytest.raises(OSError):
            socket.create_connection(("127.0.0.2", server.port), timeout=2).close()
    finally:
        await server.stop()


async def test_a_paused_server_can_be_stopped(tmp_path: Path) -> None:
    server = DevZooKeeper(tmp_path / "zk")
    await server.start()
    server.send_signal(signal.SIGSTOP)
    with pytest.raises(TimeoutError):
        await server.ask("srvr", timeout_secs=0.2)
    await server.stop()
    assert server.pid is None
    with pytest.raises(ProcessLookupError):
        server.send_signal(signal.SIGCONT)


async def test_a_port_in_use_is_reported_before_anything_starts(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        server = DevZooKeeper(tmp_path / "zk", port=port)
        with pytest.raises(SquallError, match=f"cannot listen on 127.0.0.1:{port}"):
            await server.start()
    assert server.pid is None


async def test_a_server_that_exits_at_once_is_reported_with_its_last_output(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(subject, "_MAIN", "no.such.Main")
    server = DevZooKeeper(tmp_path / "zk")
    with pytest.raises(SquallError, match="exited at once with status 1") as caught:
        await server.start()
    assert "no.such.Main" in str(caught.value)
    assert str(server.log_file) in str(caught.value)
    assert server.pid is None


def test_without_java_the_command_to_install_it_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(SquallError, match="apt-get install openjdk-17-jre-headless"):
        find_java()


def test_java_home_comes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.touch()
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert find_java() == str(java)


def test_without_jars_the_command_to_install_them_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    monkeypatch.setattr(subject, "_DEBIAN_JAR", tmp_path / "none.jar")
    with pytest.raises(SquallError, match=r"-m pip install pyspark"):
        find_classpath()
    debian = tmp_path / "zookeeper.jar"
    debian.touch()
    monkeypatch.setattr(subject, "_DEBIAN_JAR", debian)
    assert find_classpath().endswith(f":{debian}")


def test_pysparks_jars_are_found_without_importing_it() -> None:
    import sys

    names = [Path(jar).name for jar in find_classpath().split(":")]
    for wanted in ("zookeeper-", "zookeeper-jute-", "slf4j-api-", "metrics-core-", "snappy-java-"):
        assert any(name.startswith(wanted) for name in names)
    assert "pyspark" not in sys.modules
