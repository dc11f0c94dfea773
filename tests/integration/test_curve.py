"""Encrypted workers in a real cluster: the counts are exact, and the key is nowhere to be found."""

from __future__ import annotations

import dataclasses
import json
import re
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import zmq
from tests.support.devcluster import DevCluster, wait_for
from tests.support.ledger import Ledger, text
from tests.support.live_files import found, texts
from tests.support.submit import submit_ledger

from squall_common.security.curve import CURVE, KEY_FILE
from squall_thrift import storm
from squall_thrift.client import ThriftApplicationError

pytestmark = pytest.mark.integration

CONF = {"topology.max.spout.pending": 100, "topology.message.timeout.secs": 300}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DevCluster]:
    folder: Path = tmp_path_factory.mktemp("curve")
    # A new configuration is to reach the workers soon.
    quick = "supervisor.localizer.update.blob.interval.secs=1"
    with DevCluster.start(folder, supervisors=2, slots=2, overrides=[quick]) as cluster:
        yield cluster


@pytest.fixture(autouse=True)
def _no_topology_stays(cluster: DevCluster) -> Iterator[None]:
    yield
    cluster.kill_all()


def topology_id(cluster: DevCluster) -> str:
    return str(cluster.call("getTopologySummaryByName", "ledger").id)


def files_with(cluster: DevCluster, secret: bytes) -> list[Path]:
    """Every file of the cluster that holds it: ZooKeeper's, logs, configurations, everything."""
    holders = []
    for path in found(cluster.data_dir):
        try:
            if path.is_file() and not path.is_symlink() and secret in path.read_bytes():
                holders.append(path)
        except OSError:
            continue  # a worker's folder that went meanwhile
    return holders


def znode_values(cluster: DevCluster) -> Iterator[bytes]:
    client = cluster.zookeeper()
    try:
        for path in sorted(cluster.znodes()):
            if client.exists(path):
                yield path.encode()
                yield client.get(path)[0] or b""
    finally:
        client.stop()
        client.close()


def worker_logs(cluster: DevCluster) -> list[str]:
    """The logs of the topology's workers, one a slot."""
    return list(texts(cluster.data_dir / "logs", f"{topology_id(cluster)}/*/worker.log"))


def encrypted(cluster: DevCluster) -> set[str]:
    """What the newest workers on each port say of themselves."""
    said = set()
    for log in worker_logs(cluster):
        said |= set(re.findall(r"worker_running.*encrypted=(\w+)", log)[-1:])
    return said


def test_counts_are_exact_and_the_key_is_nowhere(cluster: DevCluster) -> None:
    """By default, on loopback."""
    with Ledger(text(20_000)) as ledger:
        submit_ledger(cluster, ledger, workers=2, conf=CONF)
        workers = cluster.worker_pids(2)
        ledger.wait_done(1000, timeout_secs=60)
        assert encrypted(cluster) == {"True"}
        wait_for("rings", lambda: all("ring_open" in log for log in worker_logs(cluster)))
        name = topology_id(cluster)
        keys = [path for path in found(cluster.data_dir, KEY_FILE) if path.is_file()]
        assert {stat.S_IMODE(path.stat().st_mode) for path in keys} == {0o600}
        assert {stat.S_IMODE(path.parent.stat().st_mode) for path in keys} == {0o700}
        (secret,) = {json.loads(path.read_bytes())["secret"].encode() for path in keys}
        _strangers_stay_out(cluster)
        ledger.wait_done(timeout_secs=90)
        ledger.check()
        assert ledger.duplicates() == 0

        holders = files_with(cluster, secret)
        blobs = [path for path in holders if path.name != KEY_FILE]
        assert {path for path in holders if path.name == KEY_FILE} == set(keys)
        assert len(blobs) == 1, "Nimbus' blob, and nothing else"
        assert stat.S_IMODE(blobs[0].stat().st_mode) == 0o600
        assert not [value for value in znode_values(cluster) if secret in value]
        for pid in workers:
            for file in ("environ", "cmdline"):
                assert secret not in Path(f"/proc/{pid}/{file}").read_bytes()
        answers = _all_answers(cluster, name)
        assert len(answers) > 20
        assert not [method for method, said in answers.items() if secret.decode() in said]
        assert f"{name}-curve.key" not in answers["listBlobs"]
        assert f"{name}-stormcode.ser" in answers["listBlobs"]
    cluster.storm("kill", "ledger", "-w", "0")
    cluster.wait_gone("ledger")
    wait_for("the key to be gone", lambda: not files_with(cluster, secret), 60, 0.2)


def _strangers_stay_out(cluster: DevCluster) -> None:
    """Somebody on the machine sends to a real worker's port what he can."""
    ports = [int(words[2]) for words in cluster.worker_processes().values()]
    context = zmq.Context()
    sock = context.socket(zmq.PUSH)
    try:
        sock.setsockopt(zmq.LINGER, 0)
        for port in ports:
            sock.connect(f"tcp://127.0.0.1:{port}")
        for _ in range(100):
            sock.send(b"nonsense", zmq.NOBLOCK)

        def reported(what: str) -> int:
            return sum(what in log for log in worker_logs(cluster))

        wait_for("both to refuse", lambda: reported("connection_refused") == 2, 60)
        assert reported("message_dropped") == 0
    finally:
        sock.close(0)
        context.term()


def _all_answers(cluster: DevCluster, name: str) -> dict[str, str]:
    """What every call that reads answers to somebody who asks for all."""
    key = f"{name}-curve.key"
    arguments: dict[str, tuple[Any, ...]] = {
        "getTopologyConf": (name,),
        "getTopology": (name,),
        "getUserTopology": (name,),
        "getTopologyInfo": (name,),
        "getTopologyInfoByName": ("ledger",),
        "getTopologyInfoWithOpts": (name, storm.GetInfoOptions()),
        "getTopologyPageInfo": (name, ":all-time", True),
        "getComponentPageInfo": (name, "count", ":all-time", True),
        "getTopologySummary": (name,),
        "getTopologySummaries": (),
        "getClusterInfo": (),
        "getNimbusConf": (),
        "getLeader": (),
        "getLogConfig": ("ledger",),
        "getTopologyHistory": ("",),
        "getOwnerResourceSummaries": ("",),
        "getSupervisorPlatforms": (),
        "listBlobs": ("",),
        "getBlobMeta": (key,),
        "beginBlobDownload": (key,),
        "isRemoteBlobExists": (key,),
        "getBlobReplication": (key,),
        "getTopologyKey": (name, "supervisor/nobody"),
    }
    for node in cluster.call("getClusterInfo").supervisors:
        arguments[f"getSupervisorAssignments {node.supervisor_id}"] = (node.supervisor_id,)
        arguments[f"getTopologyKey {node.supervisor_id}"] = (
            name,
            f"supervisor/{node.supervisor_id}",
        )
        arguments[f"getSupervisorPageInfo {node.supervisor_id}"] = (node.supervisor_id, None, True)
    answers = {}
    for method, given in arguments.items():
        try:
            said = cluster.call(method.partition(" ")[0], *given)
            answers[method] = (
                str(dataclasses.asdict(said))
                if dataclasses.is_dataclass(said)
                else (said.decode("latin-1") if isinstance(said, bytes) else str(said))
            )
        except (storm.AuthorizationException, ThriftApplicationError) as error:
            answers[method] = str(error)
    answers["storm blobstore list"] = cluster.storm("blobstore", "list").stdout
    return answers


def test_it_is_switched_on_and_off_while_a_topology_runs(cluster: DevCluster) -> None:
    """By a rebalance, as docs/operations.md says; nothing is lost on the way."""
    with Ledger(text(200_000)) as ledger:
        ledger.pace(400)
        submit_ledger(cluster, ledger, workers=2, conf={**CONF, CURVE: False})
        cluster.worker_pids(2)
        ledger.wait_done(100, timeout_secs=60)
        assert encrypted(cluster) == {"False"}
        for mode in (True, False):
            cluster.storm("rebalance", "ledger", "-w", "0", "-t", json.dumps({CURVE: mode}))
            wait_for(f"encrypted: {mode}", lambda mode=mode: encrypted(cluster) == {str(mode)}, 60)
            cluster.worker_pids(2)
            ledger.watch(16)
            ledger.wait_watched(60)
        ledger.serve_up_to(ledger.handed_out())
        ledger.pace(None)
        ledger.wait_done(ledger.handed_out(), timeout_secs=60)
        ledger.check()
