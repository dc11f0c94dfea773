"""`storm dev --secure`: a secured cluster, from outside."""

from __future__ import annotations

import getpass
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.devcluster import DevCluster, environment, wait_for
from tests.support.ledger import Ledger, text
from tests.support.live_files import found
from tests.support.submit import LEDGER

pytestmark = [pytest.mark.integration, pytest.mark.timeout(400)]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DevCluster]:
    folder: Path = tmp_path_factory.mktemp("secure")
    with DevCluster.start(folder, secure=True) as cluster:
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
    certificate of another role; and DRPC, which is not secured yet."""
    for name, package, changes, reason in (
        ("nimbus", "squall_nimbus", {"storm.security.ca": None}, "storm.security.ca is not set"),
        ("supervisor-1", "squall_supervisor", {"storm.id": "x"}, "the certificate is that of"),
        (
            "supervisor-1",
            "squall_supervisor",
            {"supervisor.workers.share.user": False},
            "different owners must not run as one user",
        ),
        ("nimbus", "squall_drpc", {}, "does not authenticate its callers yet"),
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
