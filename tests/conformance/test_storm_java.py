"""Storm's own Java client, as it is published, on the legacy port of a secured Nimbus."""

from __future__ import annotations

import asyncio
import json
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tests.support import maven
from tests.support.legacy import DIGEST, jaas_file
from tests.support.nimbus_service import package, topology
from tests.support.secured_nimbus import Certificates, SecuredNimbus, secured_nimbus
from tests.support.servers import free_port
from tests.support.thirdparty import command

from squall_thrift import codec

pytestmark = pytest.mark.conformance

STORM = "2.8.3"
PROGRAM = Path(__file__).parent / "java" / "StormClient.java"
USERS = {"alice": "wonder land", "bob": 'quo"te', "root": "toor"}


class JavaClient:
    """Steps of `StormClient.java`, in one JVM."""

    def __init__(self, folder: Path, conf: dict[str, Any], *java: str) -> None:
        self.folder = folder
        self.java = java
        (folder / "storm.yaml").write_text(json.dumps(conf))  # JSON is YAML
        (folder / "topology").write_bytes(codec.to_bytes(topology()))
        (folder / "topology.jar").write_bytes(package())

    def run(self, *steps: str) -> list[str]:
        """What each step said."""
        jars = maven.jars("storm", STORM, [f"org.apache.storm:storm-server:{STORM}"])
        done = subprocess.run(
            [
                command("java"), "-Xmx256m", "-XX:TieredStopAtLevel=1", *self.java,
                f"-Djava.io.tmpdir={self.folder}", f"-Dstorm.jar={self.folder}/topology.jar",
                "-cp", f"{self.folder}:{jars}/*", str(PROGRAM),
            ],
            input="\n".join(steps),
            cwd=self.folder,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )  # fmt: skip
        lines = done.stdout.splitlines()
        said = [line.removeprefix("step: ") for line in lines if line.startswith("step: ")]
        assert len(said) == len(steps), done.stdout + done.stderr
        return said


def client_conf(port: int) -> dict[str, Any]:
    return {
        "nimbus.seeds": ["127.0.0.1"],
        "nimbus.thrift.port": port,
        "storm.nimbus.retry.times": 0,
        "storm.thrift.transport": DIGEST,
    }


@pytest.fixture
async def nimbus(tmp_path: Path) -> AsyncIterator[SecuredNimbus]:
    users = {f"user_{name}": secret for name, secret in USERS.items()}
    conf = {
        "nimbus.legacy.thrift.port": free_port(),
        "storm.thrift.transport": DIGEST,
        "java.security.auth.login.config": jaas_file(
            tmp_path / "server.jaas", "StormServer", users
        ),
    }
    certificates = Certificates(tmp_path / "certificates").create()
    async with secured_nimbus(tmp_path / "nimbus", certificates, conf) as running:
        yield running


@pytest.mark.timeout(400)  # mvn resolves Storm's jars once
async def test_storms_java_client_logs_in_by_digest_md5(
    tmp_path: Path, nimbus: SecuredNimbus
) -> None:
    """Submit, list and kill are the user's; others, wrong passwords and administrators are
    refused, and the audit log says why."""

    def user(name: str, secret: str) -> str:
        options = {"username": name, "password": secret}
        return jaas_file(tmp_path / f"{name}-{len(secret)}.jaas", "StormClient", options)

    alice, bob = user("alice", USERS["alice"]), user("bob", USERS["bob"])
    port = nimbus.local.conf["nimbus.legacy.thrift.port"]
    conf = {**client_conf(port), "java.security.auth.login.config": alice}
    client = JavaClient(tmp_path, conf)
    said = await asyncio.to_thread(
        client.run,
        "list",
        f"submit words {tmp_path}/topology",
        "list",
        f"as {bob}",
        "list",
        "kill words",
        f"as {user('alice', 'not that')}",
        "list",
        f"as {user('mallory', 'whatever')}",
        "list",
        f"as {user('root', USERS['root'])}",
        "list",
        f"as {alice}",
        "kill words",
    )
    steps = [line for line in said if line != "ok"]
    assert steps[:3] == ["ok ", "ok words", "ok "], said  # bob does not see it
    assert steps[3].startswith(("NotAliveException", "KeyNotFound")), said
    refused = steps[4:]
    assert len(refused) == 3, said
    assert len(set(refused)) == 1, said  # which of them it was, it does not say
    assert said[-1] == "ok", said
    folder = Path(nimbus.local.conf["storm.local.dir"])
    lines = [
        json.loads(line) for line in (folder / "logs" / "nimbus-audit.log").read_text().splitlines()
    ]
    assert [(one["action"], one["principal"]) for one in lines if one["decision"] == "allowed"] == [
        ("submitTopology", "user:alice"),
        ("killTopology", "user:alice"),
    ]
    why = next(one for one in lines if one["action"] == "authenticate")
    assert why["reason"] == "DIGEST-MD5: the password of 'alice' is wrong"
