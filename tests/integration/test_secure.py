"""`storm dev --secure`: a secured cluster, from outside."""

from __future__ import annotations

import asyncio
import getpass
import json
import os
import signal
import ssl
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.devcluster import EXAMPLES, STORM, DevCluster, environment, wait_for
from tests.support.ledger import Ledger, text
from tests.support.live_files import found
from tests.support.submit import LEDGER

from squall_common.authentication.worker_identity import WorkerCredentials
from squall_common.security.identity import Role
from squall_thrift import storm
from squall_thrift.client import ThriftClient, ThriftTransportError

sys.path.append(str(EXAMPLES / "reach"))
from followers import World

WORLD = World()

pytestmark = [pytest.mark.integration, pytest.mark.timeout(400)]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DevCluster]:
    folder: Path = tmp_path_factory.mktemp("secure")
    lists = folder / "functions.yaml"
    lists.write_text("drpc.authorizer.acl: {reach: {client.users: [bob], invocation.user: bob}}")
    overrides = (f"drpc.authorizer.acl.filename={lists}",)
    with DevCluster.start(folder, secure=True, slots=3, overrides=overrides) as cluster:
        yield cluster


def as_user(cluster: DevCluster, name: str) -> list[str]:
    """Options of a command by which it shows a user's certificate."""
    stem = cluster.data_dir / "people" / f"user-{name}"
    if not stem.with_suffix(".pem").exists():
        cluster.storm(
            *("admin", "ca", "issue", "user", name),
            *("--dir", cluster.data_dir / "security" / "ca", "--out", stem.parent),
        )
    return [
        *("-c", f"storm.security.certificate={stem}.pem"),
        *("-c", f"storm.security.key={stem}.key"),
    ]


def submit(cluster: DevCluster, ledger: Ledger, name: str, *options: str) -> None:
    cluster.storm(
        *("jar", *options, "--wait", LEDGER, "ledger_topology.py"),
        *(name, str(ledger.port), "1", "{}"),
    )


def tokens_in(cluster: DevCluster, token: bytes) -> set[str]:
    """Every file of the cluster that holds a token."""
    names = set()
    for path in found(cluster.data_dir):
        try:
            if path.is_file() and not path.is_symlink() and token in path.read_bytes():
                names.add(path.name)
        except OSError:
            continue  # a worker's folder that went meanwhile
    return names


def test_commands_work_and_others_see_nothing(cluster: DevCluster, tmp_path: Path) -> None:
    """With the token of whoever started the cluster; bob's topology is bob's."""
    me, bob, eve = getpass.getuser(), as_user(cluster, "bob"), as_user(cluster, "eve")
    with Ledger(text(300)) as ledger, Ledger(text(300)) as other:
        submit(cluster, ledger, "mine")
        submit(cluster, other, "bobs", *bob)
        ledger.wait_done(timeout_secs=60)
        other.wait_done(timeout_secs=60)
        owners = {name: one["owner"] for name, one in cluster.topologies().items()}
        assert owners == {"mine": me, "bobs": "bob"}
        assert json.loads(cluster.storm("list", "--json", *bob).stdout)[0]["name"] == "bobs"
        assert json.loads(cluster.storm("list", "--json", *eve).stdout) == []
        for options, name in ((eve, "bobs"), (eve, "none")):
            refused = cluster.storm("kill", name, *options, check=False)
            assert refused.returncode == 1
            assert refused.stderr.startswith(f"error: {name} is not alive")
        cluster.storm("deactivate", "mine")
        (tmp_path / "words").write_text("a b c")
        cluster.storm("blobstore", "create", "words", "-f", tmp_path / "words")
        assert cluster.storm("blobstore", "cat", "words").stdout == "a b c"
        assert "words" not in cluster.storm("blobstore", "list", *eve).stdout
        cluster.storm("kill", "bobs", "-w", "0", "--wait", *bob)
        cluster.storm("kill", "mine", "-w", "0", "--wait")
    lines = [
        json.loads(line)
        for line in (cluster.data_dir / "logs" / "nimbus-audit.log").read_text().splitlines()
    ]
    killed = [one for one in lines if one["action"] == "killTopology"]
    assert {(one["principal"], one["decision"]) for one in killed} == {
        ("user:bob", "allowed"),
        ("user:eve", "refused"),
        (f"user:{me}", "allowed"),
    }


def test_a_token_outlives_nimbus_and_ends_by_a_command(cluster: DevCluster) -> None:
    bob, file = as_user(cluster, "bob"), cluster.data_dir / "people" / "token"
    shown = ["-c", f"storm.security.token.file={file}"]
    cluster.storm("login", *shown, *bob)
    assert file.stat().st_mode & 0o777 == 0o600
    token = file.read_bytes().strip()
    assert tokens_in(cluster, token) == {"token"}
    nimbus = cluster.state()["nimbus"]["pid"]
    os.kill(nimbus, signal.SIGKILL)
    wait_for(
        "Nimbus to be back",
        lambda: cluster.storm("list", *shown, check=False).returncode == 0,
        60.0,
    )
    wait_for("its process", lambda: cluster.state()["nimbus"]["pid"] not in (None, nimbus))
    [listed] = json.loads(cluster.storm("token", "list", "--json", *shown).stdout)
    assert (listed["user"], listed["label"]) == ("bob", "login")
    refused = cluster.storm("token", "create", *shown, check=False)
    assert "no token makes another" in refused.stderr
    cluster.storm("token", "revoke", listed["id"], *shown)
    refused = cluster.storm("list", *shown, "-c", "storm.nimbus.retry.times=0", check=False)
    assert refused.returncode == 1
    assert "refused the certificate or the token" in refused.stderr
    assert "revoked" not in refused.stderr  # why is in the log alone


def test_a_revoked_certificate_is_refused(cluster: DevCluster) -> None:
    mallory = as_user(cluster, "mallory")
    once = ["-c", "storm.nimbus.retry.times=0"]
    cluster.storm("list", *mallory)
    security = cluster.data_dir / "security" / "ca"
    stem = cluster.data_dir / "people" / "user-mallory.pem"
    cluster.storm("admin", "ca", "revoke", stem, "--dir", security)
    wait_for(
        "Nimbus to read the list",
        lambda: cluster.storm("list", *mallory, *once, check=False).returncode == 1,
        90.0,
    )
    cluster.storm("list")


def test_daemons_without_proof_do_not_start(cluster: DevCluster, tmp_path: Path) -> None:
    """A daemon that was secured, with its CA taken away; with the
    certificate of another role."""
    for name, package, changes, reason in (
        ("nimbus", "squall_nimbus", {"storm.security.ca": None}, "storm.security.ca is not set"),
        ("supervisor-1", "squall_supervisor", {"storm.id": "x"}, "the certificate is that of"),
        (
            "supervisor-1",
            "squall_supervisor",
            {"supervisor.workers.share.user": False},
            "different owners must not run as one user",
        ),
        ("nimbus", "squall_drpc", {}, "must be that of a drpc"),
        ("nimbus", "squall_ui", {}, "must be that of a ui"),
        ("nimbus", "squall_ui.logviewer", {}, "must be that of a logviewer"),
    ):
        conf = json.loads((cluster.data_dir / name / "daemon-conf.json").read_bytes())
        conf |= {"nimbus.thrift.port": 0, "storm.log.dir": str(tmp_path), **changes}
        if name != "nimbus":
            conf |= {"storm.local.dir": str(tmp_path / "supervisor")}
        if changes == {"storm.security.ca": None}:
            conf |= {"storm.security.certificate": None, "storm.security.key": None}
        file = tmp_path / "conf.json"
        file.write_text(json.dumps(conf))
        ended = run_daemon(package, file)
        assert ended.returncode == 1, (package, changes)
        assert reason in ended.stderr


def run_daemon(package: str, conf: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-P", "-m", package],
        env={**environment(), "SQUALL_DAEMON_CONF": str(conf)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def drpc_credentials(cluster: DevCluster, topology: str) -> WorkerCredentials:
    """Those of a worker of a topology, once it has them."""

    def identity() -> Path | None:
        for file in found(cluster.data_dir / "supervisor-1", "identity.json"):
            try:
                about = json.loads((file.parent / "launch.json").read_bytes())
            except OSError:
                continue  # a worker's folder that went meanwhile
            if about["topology_id"].startswith(f"{topology}-"):
                return file
        return None

    # A copy: the folder goes with its worker.
    copy = cluster.data_dir / "people" / f"{topology}.json"
    copy.write_bytes(wait_for(f"a token of {topology}", identity, 60.0).read_bytes())
    return WorkerCredentials(copy, Role.DRPC)


def invoke(
    cluster: DevCluster, credentials: WorkerCredentials | None, method: str, *arguments: str
) -> Any:
    """A call on the port for workers."""

    async def call() -> Any:
        port = cluster.first_state["drpc"]["invocations_port"]
        async with ThriftClient(
            storm.DistributedRPCInvocations, "127.0.0.1", port, credentials=credentials
        ) as client:
            return await client.call(method, *arguments)

    return asyncio.run(call())


def over_http(cluster: DevCluster, token: str | None) -> tuple[int, str]:
    """The function `reach` over HTTP: status and body."""
    port = cluster.first_state["drpc"]["http_port"]
    ca = cluster.data_dir / "security" / "ca" / "ca.pem"
    shown = {} if token is None else {"Authorization": f"Bearer {token}"}
    request = urllib.request.Request(
        f"https://127.0.0.1:{port}/drpc/reach/{WORLD.url(1)}", headers=shown
    )
    context = ssl.create_default_context(cafile=str(ca))
    try:
        with urllib.request.urlopen(request, timeout=60, context=context) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, ""


def test_drpc_is_for_whom_the_function_names(cluster: DevCluster) -> None:
    """Bob's topology, in two workers, serves the function; eve has a topology, a token and a
    certificate, and gets nothing. A worker reports to Nimbus while its supervisor is away."""
    bob, eve = as_user(cluster, "bob"), as_user(cluster, "eve")
    reach = EXAMPLES / "reach"
    cluster.storm("jar", *bob, reach, "reach", "--workers", "2")
    cluster.storm("jar", *eve, reach, "reach", "--name", "thief")
    answer = str(WORLD.reach(WORLD.url(1)))
    asked = ("drpc-client", "--timeout", "100", "--function", "reach", WORLD.url(1))
    assert cluster.storm(*asked, *bob).stdout.split() == [answer]
    refused = cluster.storm(*asked, *eve, check=False)
    assert refused.returncode == 1
    assert refused.stderr.startswith("error: not allowed: execute is not allowed")
    tokens = {}
    for name, options in (("bob", bob), ("eve", eve)):
        file = cluster.data_dir / "people" / f"{name}.token"
        cluster.storm("login", "-c", f"storm.security.token.file={file}", *options)
        tokens[name] = file.read_text().strip()
    assert over_http(cluster, tokens["bob"]) == (200, answer)
    assert over_http(cluster, tokens["eve"])[0] == 403
    assert over_http(cluster, None)[0] == 401
    thief, bobs = drpc_credentials(cluster, "thief"), drpc_credentials(cluster, "reach")
    for method, arguments in (
        ("fetchRequest", ("reach",)),
        ("fetchRequest", ("thief",)),  # her topology serves it, and the lists do not name it
    ):
        with pytest.raises(storm.AuthorizationException):
            invoke(cluster, thief, method, *arguments)
        with pytest.raises(ThriftTransportError):
            invoke(cluster, None, method, *arguments)
    invoke(cluster, thief, "result", "a-1", "stolen")  # as one that is late
    assert invoke(cluster, bobs, "fetchRequest", "reach").request_id == ""

    supervisor = cluster.state()["supervisors"][0]["pid"]
    os.kill(supervisor, signal.SIGSTOP)
    try:
        logs = cluster.data_dir / "logs" / "supervisor-1" / "workers-artifacts"
        wait_for(
            "a worker to report to Nimbus",
            lambda: any(
                "worker_reports_go_to way=Nimbus" in file.read_text()
                for file in logs.glob("reach-*/*/worker.log")
            ),
            60.0,
        )
    finally:
        os.kill(supervisor, signal.SIGCONT)
    cluster.storm("kill", "reach", "-w", "0", "--wait", *bob)

    def has_ended() -> bool:
        try:
            invoke(cluster, bobs, "fetchRequest", "reach")
        except (storm.AuthorizationException, ThriftTransportError):
            return True
        return False

    wait_for("the tokens of the topology's workers to end", has_ended, 60.0)
    cluster.storm("kill", "thief", "-w", "0", "--wait", *eve)
    lines = [
        json.loads(line)
        for line in (cluster.data_dir / "logs" / "drpc-audit.log").read_text().splitlines()
    ]
    refusals = {(one["action"], str(one["principal"]).split("-")[0]) for one in lines}
    assert {("execute", "user:eve"), ("fetchRequest", "worker:thief")} <= refusals


def test_old_clients_come_through_the_proxy(cluster: DevCluster) -> None:
    """Bare frames and HTTP without any proof, for whoever has started `storm proxy`."""
    bob, state = as_user(cluster, "bob"), cluster.first_state
    file = cluster.data_dir / "people" / "proxy.token"
    cluster.storm("login", "-c", f"storm.security.token.file={file}", *bob)
    with subprocess.Popen(
        [
            *STORM, "proxy", "--json", "--config", cluster.conf_file,
            "-c", f"storm.security.token.file={file}",
            "--port", "0", "--drpc-port", "0", "--ui-port", "0",
            "--ui", f"https://127.0.0.1:{state['ui']['port']}",
        ],
        env=environment(), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
    ) as process:  # fmt: skip
        try:
            assert process.stdout is not None
            ports = json.loads(process.stdout.readline())["proxy"]
            cluster.storm("jar", *bob, EXAMPLES / "reach", "reach")

            async def by_thrift() -> None:
                async with ThriftClient(storm.Nimbus, "127.0.0.1", ports["nimbus"]) as old:
                    [summary] = await old.call("getTopologySummaries")
                    assert (summary.name, summary.owner) == ("reach", "bob")
                async with ThriftClient(storm.DistributedRPC, "127.0.0.1", ports["drpc"]) as old:
                    found = await old.call("execute", "reach", WORLD.url(2), timeout_secs=100)
                    assert found == str(WORLD.reach(WORLD.url(2)))

            asyncio.run(by_thrift())
            url = f"http://127.0.0.1:{ports['ui']}/api/v1/topology/summary"
            with urllib.request.urlopen(url, timeout=60) as answer:
                assert [one["name"] for one in json.load(answer)["topologies"]] == ["reach"]
            cluster.storm("kill", "reach", "-w", "0", "--wait", *bob)
        finally:
            process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=60) == 0
