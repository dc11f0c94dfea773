"""`storm admin` and `storm heartbeats` on a real ZooKeeper."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from typing import Any

import pytest
from kazoo.client import KazooClient
from tests.support.fake_nimbus import fake_nimbus
from tests.support.zookeeper import fresh_root, zookeeper  # noqa: F401  (a fixture)

from squall_cli.cluster.zookeeper import DevZooKeeper
from squall_cli.main import run
from squall_common.cluster import codec, convert
from squall_common.cluster.values import Credentials, WorkerHeartbeat, WorkerReport
from squall_common.topology.model import Executor, WorkerSlot
from squall_thrift import storm

pytestmark = pytest.mark.integration
BEAT = WorkerHeartbeat("words-1-17", {Executor(1, 4): None}, 1000, 5)


@pytest.fixture
def command(
    zookeeper: DevZooKeeper,  # noqa: F811
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> Callable[..., tuple[int, str, str]]:
    """Run a command, with lines on its stdin, on a cluster's state: (status, stdout, stderr)."""
    root = fresh_root()
    client = KazooClient(f"{zookeeper.host}:{zookeeper.port}")
    client.start()
    client.create(
        f"{root}/workerbeats/words-1-17/s-1-6700", codec.encode_heartbeat(BEAT), makepath=True
    )
    client.ensure_path(f"{root}/workerbeats/words-1-17/questions")  # beside the heartbeats
    client.create(
        f"{root}/credentials/words-1-17",
        codec.encode_credentials(Credentials({"k": "v"}, "ann")),
        makepath=True,
    )
    client.stop()
    client.close()
    conf = {
        "storm.zookeeper.servers": [zookeeper.host],
        "storm.zookeeper.port": zookeeper.port,
        "storm.zookeeper.root": root,
    }
    options = [w for key, value in conf.items() for w in ("-c", f"{key}={json.dumps(value)}")]

    def call(*arguments: str, lines: str = "") -> tuple[int, str, str]:
        monkeypatch.setattr("sys.stdin", io.StringIO(lines))
        status = run([*options, *arguments])
        captured = capsys.readouterr()
        return status, captured.out, captured.err

    return call


def test_heartbeats_are_listed_and_decoded(command: Any) -> None:
    assert command("heartbeats", "list", "/workerbeats")[:2] == (0, "words-1-17\n")
    path = "/workerbeats/words-1-17"
    assert json.loads(command("heartbeats", "list", path, "--json")[1]) == ["s-1-6700"]
    beat = json.loads(command("heartbeats", "get", f"{path}/s-1-6700")[1])
    assert beat["topology_id"] == "words-1-17"
    assert list(beat["executor_stats"]) == ["1-4"]


def test_a_nimbus_that_refuses_to_show_heartbeats_is_quoted(command: Any) -> None:
    """What is in ZooKeeper is shown all the same."""
    with fake_nimbus() as nimbus:
        nimbus.answers["getWorkerHeartbeats"] = storm.AuthorizationException(msg="not yours")
        pairs = nimbus.conf.items()
        conf = [w for key, value in pairs for w in ("-c", f"{key}={json.dumps(value)}")]
        status, out, err = command("heartbeats", "list", "/workerbeats/words-1-17", *conf)
    assert (status, out) == (0, "s-1-6700\n")
    assert "what workers report to Nimbus is not shown" in err
    assert "not yours" in err


def test_heartbeats_that_nimbus_has_are_listed_below_their_topology(command: Any) -> None:
    reported = [
        WorkerReport(
            "words-1-17", WorkerSlot("s-2", port), (Executor(1, 4),), 1000, (0, 0),
            codec.encode_heartbeat(BEAT),
        )
        for port in (6700, 6701)
    ]  # fmt: skip
    path = "/workerbeats/words-1-17"
    with fake_nimbus() as nimbus:
        nimbus.answers["getWorkerHeartbeats"] = [
            convert.to_worker_report(one, alone=True) for one in reported
        ]
        pairs = nimbus.conf.items()
        conf = [w for key, value in pairs for w in ("-c", f"{key}={json.dumps(value)}")]
        found = command("heartbeats", "list", path, *conf)
        assert found[:2] == (0, "s-1-6700\ns-2-6700\ns-2-6701\n")
        assert command("heartbeats", "list", f"{path}/s-1-6700", *conf)[:2] == (0, "")
        beat = json.loads(command("heartbeats", "get", f"{path}/s-2-6701", *conf)[1])
        assert list(beat["executor_stats"]) == ["1-4"]


def test_what_is_not_there_or_is_no_heartbeat_is_named(command: Any) -> None:
    status, _, err = command("heartbeats", "get", "/workerbeats/nope")
    assert (status, "there is no node /workerbeats/nope" in err) == (1, True)
    assert command("heartbeats", "list", "/nope")[0] == 1
    assert command("admin", "zk_cli", "-w", lines="create /damaged nonsense\n")[0] == 0
    status, _, err = command("heartbeats", "get", "/damaged")
    assert (status, "/damaged" in err, "Traceback" in err) == (1, True, False)


def test_credentials_are_printed(command: Any) -> None:
    status, out, _ = command("admin", "creds", "words-1-17")
    assert status == 0
    assert json.loads(out) == {"creds": {"k": "v"}, "owner": "ann"}
    status, _, err = command("admin", "creds", "nope")
    assert status == 1
    assert "upload-credentials" in err
    assert command("admin", "creds", "../storms")[0] == 2


def test_zk_cli_changes_nodes_only_if_allowed(command: Any) -> None:
    status, out, err = command("admin", "zk_cli", lines="set /workerbeats x\nls /\n")
    assert (status, out) == (1, "credentials\nworkerbeats\n")
    assert "start zk_cli with --write" in err
    lines = (
        "create /new 'two words'\nget /new\nset /new x\nget /new\ncreate /new/below\n"
        "deleteall /new\nls /\nquit\nls /\n"
    )
    status, out, err = command("admin", "zk_cli", "--write", lines=lines)
    assert (status, err) == (0, "")
    assert out == "two words\nx\ncredentials\nworkerbeats\n"


@pytest.mark.parametrize(
    "line", ["ls", "ls /a /b", "ls a", "ls /../b", "ls '", "nonsense", "get /nope", "delete /nope"]
)
def test_zk_cli_survives_what_it_cannot_do(command: Any, line: str) -> None:
    status, out, err = command("admin", "zk_cli", "-w", lines=f"{line}\nls /\n")
    assert (status, out) == (1, "credentials\nworkerbeats\n")
    assert err.startswith("error: ")


def test_zk_cli_begins_at_the_top_if_asked(command: Any) -> None:
    status, out, _ = command("admin", "zk_cli", "--no-root", lines="ls /\n")
    assert status == 0
    assert "zookeeper\n" in out
