"""DRPC on a real cluster: `storm drpc-client`, HTTP, failures, and servers that come and go."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.devcluster import (
    EXAMPLES,
    STORM,
    DevCluster,
    environment,
    is_alive,
    storm,
    wait_for,
)

from squall_drpc import DRPCClient, DRPCError, Reason

sys.path.append(str(EXAMPLES / "reach"))
from followers import World

pytestmark = pytest.mark.integration

WORLD = World()


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DevCluster]:
    conf = ("topology.message.timeout.secs=10",)
    with DevCluster.start(tmp_path_factory.mktemp("dev"), slots=3, overrides=conf) as running:
        running.storm("jar", EXAMPLES / "reach", "reach", "--workers", "2")
        yield running


def client(cluster: DevCluster) -> DRPCClient:
    drpc = cluster.state()["drpc"]
    return DRPCClient(drpc["host"], drpc["port"], timeout_secs=60)


def get(cluster: DevCluster, path: str, body: bytes | None = None) -> tuple[int, str]:
    port = cluster.first_state["drpc"]["http_port"]
    try:
        with urllib.request.urlopen(
            f"http://127.0.0.1:{port}{path}", data=body, timeout=60
        ) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def test_the_command_prints_results_and_the_reach_is_right(cluster: DevCluster) -> None:
    urls = [WORLD.url(number) for number in range(5)]
    printed = cluster.storm("drpc-client", "--function", "reach", *urls).stdout
    assert printed.split() == [str(WORLD.reach(url)) for url in urls]
    listed = json.loads(cluster.storm("drpc-client", "reach", urls[0], "--json").stdout)
    assert listed == [{"function": "reach", "args": urls[0], "result": str(WORLD.reach(urls[0]))}]


def test_over_http(cluster: DevCluster) -> None:
    url = WORLD.url(3)
    assert get(cluster, f"/drpc/reach/{url}") == (200, str(WORLD.reach(url)))
    assert get(cluster, "/drpc/reach", url.encode()) == (200, str(WORLD.reach(url)))


def test_a_server_that_was_killed_comes_back_and_the_topology_finds_it(
    cluster: DevCluster,
) -> None:
    url = WORLD.url(4)
    with client(cluster) as before:
        assert before.execute("reach", url) == str(WORLD.reach(url))
        pid = cluster.state()["drpc"]["pid"]
        os.kill(pid, signal.SIGKILL)
        wait_for("the server to end", lambda: not is_alive(pid))

        def answered() -> str | None:
            try:
                return before.execute("reach", url)
            except DRPCError:
                return None

        assert wait_for("an answer", answered, 60) == str(WORLD.reach(url))


def test_two_servers_serve_one_topology(cluster: DevCluster, tmp_path: Path) -> None:
    """Both are asked; without one of them the other goes on."""
    drpc = cluster.state()["drpc"]
    second = subprocess.Popen(
        [
            *STORM, "--config", str(cluster.conf_file), "drpc",
            "-c", "storm.bind.host=127.0.0.2", "-c", f"storm.local.dir={tmp_path}",
            "-c", f"storm.log.dir={tmp_path}",
        ],
        env=environment(), stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        assert second.stdout is not None
        assert json.loads(second.stdout.readline())["drpc"]["port"] == drpc["port"]
        cluster.storm(
            "jar", "-c", "drpc.servers=[127.0.0.1, 127.0.0.2]",
            EXAMPLES / "reach", "reach", "--name", "both",
        )  # fmt: skip
        url = WORLD.url(6)
        for host in ("127.0.0.1", "127.0.0.2"):
            with DRPCClient(host, drpc["port"], timeout_secs=60) as one:
                assert one.execute("both", url) == str(WORLD.reach(url))
        second.send_signal(signal.SIGTERM)
        assert second.wait(timeout=30) == 0
        servers = [("127.0.0.2", drpc["port"]), ("127.0.0.1", drpc["port"])]
        with DRPCClient(servers, timeout_secs=60) as left:
            for _ in range(2):
                assert left.execute("both", url) == str(WORLD.reach(url))
    finally:
        if second.poll() is None:
            second.kill()
        second.wait()
        second.stdout.close()  # type: ignore[union-attr]
        cluster.storm("kill", "both", "-w", "0")
        cluster.wait_gone("both", 60)


def test_bad_use_is_one_message(cluster: DevCluster) -> None:
    nobody = cluster.storm("drpc-client", "nobody", "x", "--timeout", "0.5", check=False)
    assert (nobody.returncode, nobody.stdout) == (1, "")
    assert "did not answer execute within 0.5 s" in nobody.stderr
    odd = cluster.storm("drpc-client", "reach", check=False)
    assert odd.returncode == 2
    assert "function 'reach' has no argument" in odd.stderr
    away = storm("-c", "drpc.port=1", "drpc-client", "f", "x")
    assert away.returncode == 1
    assert "no DRPC server can be reached" in away.stderr
    taken = cluster.storm("drpc", check=False)
    assert taken.returncode == 1
    assert "is in use" in taken.stderr
    for result in (nobody, odd, away, taken):
        assert "Traceback" not in result.stderr


def test_a_deactivated_topology_takes_nothing_and_an_active_one_all(cluster: DevCluster) -> None:
    url = WORLD.url(8)
    cluster.storm("deactivate", "reach")

    def silent() -> bool:
        with client(cluster) as one:
            try:
                one.execute("reach", url, timeout_secs=1.5)
            except DRPCError as error:
                return error.reason is None  # no answer at all: no worker has taken it
        return False

    wait_for("the spout to stop", silent, 60)
    cluster.storm("activate", "reach")
    with client(cluster) as one:
        answers: list[str] = []
        reasons: list[Reason | None] = []

        def answered() -> bool:
            try:
                answers.append(one.execute("reach", url, timeout_secs=30))
            except DRPCError as error:
                reasons.append(error.reason)
                return False
            return True

        wait_for("an answer", answered, 60)
        assert answers == [str(WORLD.reach(url))]
        assert set(reasons) <= {Reason.FAILED_REQUEST}


def test_storm_local_calls_functions_inside_its_process() -> None:
    result = storm("local", "--local-ttl", "1", EXAMPLES / "reach", "reach", "--ask", "3")
    assert result.returncode == 0, result.stderr
    assert result.stdout.splitlines() == [
        f"{WORLD.url(n)} {WORLD.reach(WORLD.url(n))}" for n in range(3)
    ]
