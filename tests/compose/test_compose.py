"""The cluster of deploy/compose, in real containers: brought up, used as documented, and broken.

One cluster and one test, in the order in which it is told: to build the images is what takes time.
"""

from __future__ import annotations

import http.client
import json
import ssl
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import pytest
from tests.compose.intruders import check_intruders
from tests.support.compose_cluster import ComposeCluster
from tests.support.devcluster import wait_for
from tests.support.docker_engine import (
    Docker,
    build_images,
    build_prometheus,
    engine,
    remove_images,
)
from tests.support.ledger import Ledger, text

# As an exception in the test, so that what it started is ended. (It takes five minutes; where much
# else runs, compiling alone may take as long.)
pytestmark = [pytest.mark.compose, pytest.mark.timeout(1500, method="signal")]

# A lost node is noticed in seconds, so that the test takes minutes.
QUICK = {
    "nimbus.task.timeout.secs": 10,
    "nimbus.supervisor.timeout.secs": 10,
    "nimbus.monitor.freq.secs": 2,
    "supervisor.worker.timeout.secs": 10,
    "supervisor.heartbeat.frequency.secs": 2,
    "storm.zookeeper.session.timeout": 8000,
}
TOPOLOGY = {
    "topology.max.spout.pending": 50,
    "topology.message.timeout.secs": 15,
    "topology.acker.executors": 2,
}
WORKERS = 3
LINES_PER_SEC = 100
# More than any component has tasks.
WATCHED = 16
RECOVERY_SECS = 150


@pytest.fixture(scope="module")
def docker() -> Iterator[Docker]:
    with engine() as docker:
        try:
            print("images, secs:", build_images(docker))
            yield docker
        finally:
            if not docker.own:
                remove_images(docker)


def test_a_cluster_in_containers_loses_nothing(docker: Docker) -> None:
    prometheus = build_prometheus(docker)
    with ComposeCluster.up(docker, supervisors=3, conf=QUICK, prometheus=prometheus) as cluster:
        assert "the counts are exact" in cluster.compose("run", "--rm", "-T", "wordcount")
        assert "wordcount" not in cluster.compose("run", "--rm", "-T", "storm", "list")
        _check_containers(cluster)
        with Ledger(text(200_000), host=cluster.gateway()) as ledger:
            ledger.pace(LINES_PER_SEC)
            cluster.submit_ledger(ledger, workers=WORKERS, conf=TOPOLOGY)
            ledger.wait_done(100, timeout_secs=150)
            _check_encrypted(cluster)
            if prometheus is not None:
                start_monitoring(cluster)  # it reads all pages meanwhile
            start = time.monotonic()
            check_intruders(cluster)
            print(f"intruders: {time.monotonic() - start:.1f} s", flush=True)
            if prometheus is None:
                print("no prometheus here: the profile monitoring was not tried", flush=True)
            else:
                start = time.monotonic()
                check_monitoring(cluster)
                print(f"monitoring: {time.monotonic() - start:.1f} s", flush=True)
            for befall in FAULTS:
                start = time.monotonic()
                befall(cluster, ledger)
                print(f"{befall.__name__}: {time.monotonic() - start:.1f} s", flush=True)
            ledger.serve_up_to(ledger.handed_out())
            ledger.pace(None)
            ledger.wait_done(ledger.handed_out(), timeout_secs=150)
            ledger.check()
            print(f"{ledger.done} lines, {ledger.fails} failed, {ledger.duplicates()} duplicates")
            cluster.storm("kill", "ledger", "-w", "0")
        project = f"label=com.docker.compose.project={cluster.project}"
    for kind in ("container", "volume", "network"):
        assert docker.run(kind, "ls", "-q", "--filter", project).split() == [], kind


MONITORING = ("prometheus-certificate", "prometheus")


def start_monitoring(cluster: ComposeCluster) -> None:
    up = ("up", "--detach", "--no-build", "--no-deps")
    cluster.compose("--profile", "monitoring", *up, *MONITORING)


def check_monitoring(cluster: ComposeCluster) -> None:
    """Prometheus reads every page that it is told of, by its certificate, and has the rules."""
    host, port = cluster.published("prometheus", 9090)
    assert host == "127.0.0.1"

    def ask(path: str) -> Any:
        connection = http.client.HTTPConnection(host, port, timeout=30)
        try:
            connection.request("GET", f"/api/v1/{path}")
            return json.loads(connection.getresponse().read())["data"]
        except (OSError, ValueError, http.client.HTTPException):  # it does not listen yet
            return None
        finally:
            connection.close()

    def read() -> dict[str, int] | None:
        """By job, the number of targets that were read; None while any was not."""
        found = ask("targets")
        targets = [] if found is None else found["activeTargets"]
        jobs = Counter(one["labels"]["job"] for one in targets if one["health"] == "up")
        wanted = {"nimbus": 2, "supervisor": 3, "drpc": 1, "ui": 1, "logviewer": 3}
        return dict(jobs) if jobs == wanted else None

    wait_for("all targets", read, 120, 1)
    rules = [rule for group in ask("rules")["groups"] for rule in group["rules"]]
    assert len(rules) > 5
    assert all(rule["health"] != "err" for rule in rules)
    cluster.compose("--profile", "monitoring", "rm", "--stop", "--force", *MONITORING)


def _check_containers(cluster: ComposeCluster) -> None:
    """Not root, healthy, and reached from this machine only through loopback."""
    for service in ("nimbus1", "nimbus2", "drpc", "ui"):
        for container in cluster.containers(service):
            assert cluster.docker.run("exec", container, "id", "-u").strip() == "1000"
    _check_doors(cluster)
    _check_digest(cluster)
    host, port = cluster.published("ui", 8080)
    assert host == "127.0.0.1"
    context = ssl.create_default_context(cadata=cluster.ca())
    connection = http.client.HTTPSConnection(host, port, timeout=30, context=context)
    connection.request("GET", "/api/v1/cluster/summary")
    assert connection.getresponse().status == 401
    connection.close()


def _check_doors(cluster: ComposeCluster) -> None:
    """No door is open: `storm doctor --security` ends with 0, that of ZooKeeper included."""
    for service in ("nimbus1", "nimbus2", "supervisor", "drpc", "ui"):
        container = cluster.containers(service)[0]
        said = cluster.docker.run("exec", container, "storm", "doctor", "--security", "--json")
        found = json.loads(said)
        states = {door["id"]: door["state"] for door in found["doors"]}
        assert (found["open"], "open" in states.values()) == (0, False), found
        # Who is not in its network cannot ask it.
        asks = service in ("nimbus1", "nimbus2", "supervisor")
        assert states["zookeeper"] == ("closed" if asks else "unknown"), (service, found)


# Where a secret is said that anyone on the machine may read, and the files that hold it.
_SAID = """\
import glob, json, os, sys
secret = sys.stdin.read().strip().encode()
def has(path):
    try:
        with open(path, "rb") as file:
            return os.path.isfile(path) and secret in file.read()
    except OSError:  # it went meanwhile, or is a socket
        return False
said = glob.glob("/proc/[0-9]*/environ") + glob.glob("/proc/[0-9]*/cmdline")
held = [os.path.join(at, one) for top in ("/data", "/logs", "/conf", "/tmp", "/shared", "/enrol")
        for at, _, names in os.walk(top) for one in names]
print(json.dumps([len(said), sorted(filter(has, said)), sorted(filter(has, held))]))
"""


def _check_digest(cluster: ComposeCluster) -> None:
    """The daemons' digest for ZooKeeper is in one file of those that use it, and nowhere else."""
    file = "/data/security/zookeeper.digest"
    docker = cluster.docker
    [nimbus] = cluster.containers("nimbus1")
    digest = docker.run("exec", nimbus, "cat", file).strip()
    assert len(digest) > 60
    for service in ("nimbus1", "nimbus2", "supervisor", "drpc", "ui"):
        uses = service in ("nimbus1", "nimbus2", "supervisor")
        for container in cluster.containers(service):
            command = ("exec", "-i", container, "/opt/squall/bin/python", "-I", "-c", _SAID)
            looked, said, held = json.loads(docker.run(*command, text=digest))
            assert (looked > 3, said, held) == (True, [], [file] if uses else []), service
            assert digest not in docker.run("inspect", container), service
            assert digest not in docker.run("logs", container), service
            if uses:
                mode = docker.run("exec", container, "stat", "-c", "%a %u", file).split()
                assert mode == ["600", "0" if service == "supervisor" else "1000"], service


def _check_encrypted(cluster: ComposeCluster) -> None:
    """Workers in different containers use their topology's key: nothing had to be set for it."""
    find = "grep -rh worker_running /logs/workers-artifacts/ledger-*"
    said = [
        cluster.docker.run("exec", container, "sh", "-c", find)
        for container in cluster.workers_per_container(total=WORKERS)
    ]
    assert len(said) > 1
    assert all("encrypted=True" in one for one in said), said
    assert not any("encrypted=False" in one for one in said), said


def _recovered(ledger: Ledger) -> None:
    """Every task has worked on lines that came after now."""
    ledger.watch(WATCHED)
    ledger.wait_watched(RECOVERY_SECS)


def _busy(cluster: ComposeCluster) -> str:
    """A supervisor's container with workers."""
    return min(cluster.workers_per_container(total=WORKERS))


def kill_a_worker(cluster: ComposeCluster, ledger: Ledger) -> None:
    victim = _busy(cluster)
    (killed,) = cluster.processes(victim, "squall_worker", "kill-one")
    wait_for(
        "another in its place",
        lambda: killed not in cluster.workers_per_container(total=WORKERS).get(victim, {killed}),
        120,
        0.5,
    )
    _recovered(ledger)


def kill_a_supervisor(cluster: ComposeCluster, ledger: Ledger) -> None:
    """It is back in its container, where its workers have not noticed."""
    victim = _busy(cluster)
    started = cluster.inspect(victim, "{{.State.StartedAt}}")
    before = cluster.workers()
    killed = cluster.processes(victim, "squall_supervisor", "kill")
    fresh = wait_for(
        "the supervisor to be back",
        lambda: cluster.processes(victim, "squall_supervisor") - killed,
        120,
        poll_secs=0.5,
    )
    assert len(fresh) == 1
    cluster.wait_healthy(victim)
    _recovered(ledger)
    assert cluster.workers() == before
    assert cluster.inspect(victim, "{{.State.StartedAt}}") == started


def kill_each_nimbus(cluster: ComposeCluster, ledger: Ledger) -> None:
    """One after the other, so the leader is among them; each container starts again."""
    before = cluster.workers()
    for service, other in (("nimbus1", "nimbus2"), ("nimbus2", "nimbus1")):
        (container,) = cluster.containers(service)
        restarts = int(cluster.inspect(container, "{{.RestartCount}}"))
        cluster.processes(container, "squall_nimbus", "kill")
        wait_for(
            "the container to start again",
            lambda c=container, n=restarts: int(cluster.inspect(c, "{{.RestartCount}}")) > n,
            120,
            0.5,
        )
        wait_for("the other to answer", partial(_lists_ledger, cluster, other), 60, 0.5)
        cluster.wait_healthy(container)
    _recovered(ledger)
    assert cluster.workers() == before


def _lists_ledger(cluster: ComposeCluster, service: str) -> bool:
    seed = "nimbus2:6637" if service == "nimbus2" else service
    try:
        return "ledger" in cluster.storm("list", "-c", f'nimbus.seeds=["{seed}"]')
    except AssertionError:  # nobody leads just now
        return False


def kill_a_container(cluster: ComposeCluster, ledger: Ledger) -> None:
    """The loss of a node: its tasks run elsewhere."""
    victim = _busy(cluster)
    cluster.docker.run("kill", victim)
    _recovered(ledger)
    cluster.docker.run("start", victim)
    cluster.wait_healthy(victim)
    cluster.workers_per_container(total=WORKERS)


def pause_a_container(cluster: ComposeCluster, ledger: Ledger) -> None:
    """It hangs with all in it until its tasks run elsewhere, then finds itself replaced."""
    victim = _busy(cluster)
    _away(cluster, ledger, victim, [("pause", victim)], [("unpause", victim)])


def disconnect_a_container(cluster: ComposeCluster, ledger: Ledger) -> None:
    """A node that nobody reaches: its tasks run elsewhere, its own workers end."""
    victim = _busy(cluster)
    networks = [cluster.network(), cluster.network("state")]
    leave, join = (
        [("network", what, network, victim) for network in networks]
        for what in ("disconnect", "connect")
    )
    _away(cluster, ledger, victim, leave, join)


def _away(
    cluster: ComposeCluster,
    ledger: Ledger,
    victim: str,
    begin: Sequence[tuple[str, ...]],
    end: Sequence[tuple[str, ...]],
) -> None:
    """Between two commands of the engine's a container is away; its workers are replaced, and end
    when it is back."""
    before = cluster.processes(victim, "squall_worker")
    assert before
    for command in begin:
        cluster.docker.run(*command)
    try:
        _recovered(ledger)
    finally:
        for command in end:
            cluster.docker.run(*command)
    wait_for(
        "the replaced workers to end",
        lambda: not before & cluster.processes(victim, "squall_worker"),
        120,
        0.5,
    )
    cluster.workers_per_container(total=WORKERS)
    _recovered(ledger)


def scale_up_and_down(cluster: ComposeCluster, ledger: Ledger) -> None:
    cluster.scale(4)
    assert len(cluster.containers("supervisor")) == 4
    cluster.storm("rebalance", "ledger", "-w", "0")
    _recovered(ledger)
    cluster.scale(1)
    assert len(cluster.containers("supervisor")) == 1
    _recovered(ledger)
    cluster.workers_per_container(total=WORKERS)


def down_and_up(cluster: ComposeCluster, ledger: Ledger) -> None:
    """Volumes keep the topology over all containers' end. The network is kept: the ledger listens
    on it. The digest for ZooKeeper was replaced meanwhile: all daemons come back with it."""
    digest = "/ca/zookeeper.digest"
    cluster.compose("exec", "-T", "ca", "storm", "admin", "zookeeper-digest", "--replace", digest)
    cluster.compose("stop", "--timeout", "20")
    cluster.compose("rm", "--force")
    cluster.scale(2)
    wait_for("it to be listed", lambda: _lists_ledger(cluster, "nimbus1"), 60, 0.5)
    both = cluster.compose("exec", "-T", "ca", "cat", digest)
    assert len(both.split()) == 2
    for service in ("nimbus1", "nimbus2", "supervisor"):
        for container in cluster.containers(service):
            shown = ("exec", container, "cat", "/data/security/zookeeper.digest")
            assert cluster.docker.run(*shown) == both, service
    _recovered(ledger)
    cluster.workers_per_container(total=WORKERS)


FAULTS: tuple[Callable[[ComposeCluster, Ledger], None], ...] = (
    kill_a_worker,
    kill_a_supervisor,
    kill_each_nimbus,
    kill_a_container,
    pause_a_container,
    disconnect_a_container,
    scale_up_and_down,
    down_and_up,
)
