"""Storm's own Java client, as it is published, on the legacy port of a secured Nimbus."""

from __future__ import annotations

import asyncio
import contextlib
import json
import subprocess
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support import maven
from tests.support.kerberos import REALM, Kdc, kdc
from tests.support.legacy import DIGEST, KERBEROS, jaas_file
from tests.support.nimbus_service import eventually, package, topology
from tests.support.secured_nimbus import Certificates, SecuredNimbus, secured_nimbus
from tests.support.servers import free_port
from tests.support.thirdparty import command

from squall_thrift import codec
from squall_thrift.protocol import sasl
from squall_thrift.protocol.sasl import Status

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
    lines = audit(Path(nimbus.local.conf["storm.local.dir"]))
    assert [(one["action"], one["principal"]) for one in lines if one["decision"] == "allowed"] == [
        ("submitTopology", "user:alice"),
        ("killTopology", "user:alice"),
    ]
    why = next(one for one in lines if one["action"] == "authenticate")
    assert why["reason"] == "DIGEST-MD5: the password of 'alice' is wrong"


@pytest.fixture(scope="module")
def realm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kdc]:
    with kdc(tmp_path_factory.mktemp("kdc")) as running:
        yield running


KRB5 = "com.sun.security.auth.module.Krb5LoginModule"


@pytest.mark.timeout(400)
async def test_storms_java_client_logs_in_by_kerberos(
    tmp_path: Path, realm: Kdc, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a keytab and with a ticket cache, against Debian's KDC; administrators, other services
    and who acts for others are refused."""
    for key in ("KRB5_CONFIG", "KRB5RCACHEDIR"):
        monkeypatch.setenv(key, realm.env[key])
    keytab = realm.principal("nimbus/127.0.0.1")
    server = {"useKeyTab": "true", "keyTab": str(keytab), "principal": f"nimbus/127.0.0.1@{REALM}"}
    conf = {
        "nimbus.legacy.thrift.port": free_port(),
        "storm.thrift.transport": KERBEROS,
        "storm.principal.tolocal": "org.apache.storm.security.auth.KerberosPrincipalToLocal",
        "java.security.auth.login.config": jaas_file(
            tmp_path / "server.jaas", "StormServer", server, module=KRB5
        ),
        "nimbus.impersonation.acl": {"bob": {"hosts": ["*"], "groups": ["*"]}},
    }

    def user(name: str) -> str:
        options = {
            "useKeyTab": "true", "keyTab": str(realm.principal(name)), "storeKey": "true",
            "useTicketCache": "false", "principal": f"{name}@{REALM}", "serviceName": "nimbus",
        }  # fmt: skip
        path = tmp_path / f"{name.replace('/', '-')}.jaas"
        return jaas_file(path, "StormClient", options, module=KRB5)

    alice, bob, root, service = map(user, ("alice", "bob", "root", "bob/admin"))
    cached = {
        "useTicketCache": "true", "ticketCache": str(realm.ticket_cache("bob")),
        "doNotPrompt": "true", "renewTGT": "false", "serviceName": "nimbus",
    }  # fmt: skip
    cache = jaas_file(tmp_path / "cache.jaas", "StormClient", cached, module=KRB5)
    certificates = Certificates(tmp_path / "certificates").create()
    async with secured_nimbus(tmp_path / "nimbus", certificates, conf) as nimbus:
        legacy = nimbus.local.nimbus.legacy
        assert legacy is not None
        reasons: list[str] = []
        monkeypatch.setattr(legacy, "refused", lambda peer, reason: reasons.append(reason))
        port = conf["nimbus.legacy.thrift.port"]
        heard = Eavesdropper(port)
        own = {
            # The leader, whose address it learns, it reaches without the eavesdropper.
            **client_conf(await heard.start()),
            "storm.thrift.transport": KERBEROS,
            "java.security.auth.login.config": alice,
        }
        client = JavaClient(tmp_path, own, f"-Djava.security.krb5.conf={realm.conf}")
        said = await asyncio.to_thread(
            client.run,
            f"submit words {tmp_path}/topology",
            "list",
            f"as {cache}",
            "list",
            "kill words",
            f"as {root}",
            "list",
            f"as {service}",
            "list",
            f"as {alice}",
            "kill words",
            f"as {bob}",
            "doas alice",
            "list",
        )
        steps = [line for line in said if line != "ok"]
        assert steps[:2] == ["ok words", "ok "], said  # bob does not see it
        assert steps[2].startswith("NotAliveException"), said
        assert len(steps) == 6, said
        assert len(set(steps[3:])) == 1, said  # why, the wire does not say
        assert said[10] == "ok", said
        folder = Path(nimbus.local.conf["storm.local.dir"])
        lines = audit(folder)

        async def all_refused() -> bool:
            return len(reasons) >= 3

        await eventually(all_refused, "three refusals")
        assert [reason.partition(":")[2] or reason for reason in reasons] == [
            "root is an administrator, who does not come in by this port",
            f" 'bob/admin@{REALM}' is not NAME@REALM",
            f" bob@{REALM} may not act for others by this port",
        ]
        # What was overheard opens nothing.
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        assert heard.first.startswith(b"\x01\0\0\0\x06GSSAPI")
        writer.write(heard.first)
        assert await sasl.read_message(reader) == (Status.BAD, b"refused")
        assert await reader.read() == b""
        assert "replay" in reasons[-1], reasons
        writer.close()
        await heard.close()
    assert [(one["action"], one["principal"]) for one in lines if one["decision"] == "allowed"] == [
        ("submitTopology", "user:alice"),
        ("killTopology", "user:alice"),
    ]


class Eavesdropper:
    """Passes connections on, and keeps what the client of the first one has said."""

    def __init__(self, to: int) -> None:
        self.first = b""
        self._to = to
        self._count = 0
        self._tasks: set[asyncio.Task[None]] = set()

    async def start(self) -> int:
        """Listen; returns the port."""
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", free_port())
        return int(self._server.sockets[0].getsockname()[1])

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._count += 1
        hear = self._keep if self._count == 1 else lambda data: None
        nimbus, onward = await asyncio.open_connection("127.0.0.1", self._to)
        async with asyncio.TaskGroup() as both:
            self._tasks.add(both.create_task(_pass_on(nimbus, writer, lambda data: None)))
            self._tasks.add(both.create_task(_pass_on(reader, onward, hear)))

    def _keep(self, data: bytes) -> None:
        self.first += data

    async def close(self) -> None:
        self._server.close()
        await asyncio.gather(*self._tasks)


async def _pass_on(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, hear: Callable[[bytes], None]
) -> None:
    with contextlib.suppress(OSError):
        while data := await reader.read(65_536):
            hear(data)
            writer.write(data)
            await writer.drain()
    writer.close()


def audit(folder: Path) -> list[dict[str, Any]]:
    text = (folder / "logs" / "nimbus-audit.log").read_text()
    return [json.loads(line) for line in text.splitlines()]
