"""`storm doctor` asks real listeners what they say to a stranger."""

from __future__ import annotations

import asyncio
import json
import socket
from pathlib import Path
from typing import Self

import jsonschema
import pytest
from aiohttp import web
from kazoo.exceptions import NoAuthError
from kazoo.security import ACL, make_acl
from tests.support.json_schemas import schemas
from tests.support.legacy import DIGEST, jaas_file
from tests.support.nimbus_service import LocalNimbus
from tests.support.secured_nimbus import Certificates, secured_nimbus
from tests.support.servers import free_port

from squall_cli.doctor import node
from squall_cli.doctor.doors import Answer
from squall_cli.doctor.node import probe
from squall_cli.main import run
from squall_common.config.options.typed import NimbusOptions
from squall_common.daemon.web import Route, WebServer
from squall_nimbus.service.limits import LIMITS
from squall_thrift import storm
from squall_thrift.serving.server import ThriftServer

LOCAL = "127.0.0.1"
READ_ACL = make_acl("world", "anyone", read=True)
WORLD = make_acl("world", "anyone", all=True)


async def test_a_stranger_gets_an_answer_of_an_open_nimbus_and_none_of_a_secured_one(
    tmp_path: Path,
) -> None:
    async with LocalNimbus(tmp_path / "open") as local:
        server = ThriftServer(storm.Nimbus, local.service, limits=LIMITS)
        await server.start()
        found = await probe("Nimbus", LOCAL, server.port, storm.Nimbus, ("getLeader",))
        assert found.answer is Answer.ANSWERS
        await server.stop(1.0)
        found = await probe("Nimbus", LOCAL, server.port, storm.Nimbus, ("getLeader",))
        assert found.answer is Answer.NOTHING_LISTENS
    certificates = Certificates(tmp_path / "certificates").create()
    async with secured_nimbus(tmp_path / "secured", certificates) as secured:
        port = secured.server.port
        found = await probe("Nimbus", LOCAL, port, storm.Nimbus, ("getLeader",))
        assert found.answer is Answer.REFUSES
        # Over HTTP it is no door either.
        assert (await probe("UI", LOCAL, port, None, ("/",))).answer is Answer.REFUSES


async def test_the_port_for_java_clients_is_a_door_and_refuses_strangers(tmp_path: Path) -> None:
    users = jaas_file(tmp_path / "jaas", "StormServer", {"user_alice": "a"})
    conf = {
        "nimbus.legacy.thrift.port": free_port(),
        "storm.thrift.transport": DIGEST,
        "java.security.auth.login.config": users,
    }
    certificates = Certificates(tmp_path / "certificates").create()
    async with secured_nimbus(tmp_path / "secured", certificates, conf) as secured:
        doors = [one for one in node.listeners_of(secured.local.conf) if "Java" in one[0]]
        assert [(await probe(*door)).answer for door in doors] == [Answer.REFUSES]


async def test_a_page_that_asks_no_one_is_open_and_one_that_hangs_is_unknown(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def page(_: web.Request) -> web.Response:
        return web.Response(text="figures")

    server = WebServer([Route("GET", "/metrics", page, "getClusterInfo")], name="metrics")
    await server.start()
    try:
        found = await probe("Nimbus metrics", LOCAL, server.port, None, ("/metrics",))
        assert found.answer is Answer.ANSWERS
        assert found.loopback
    finally:
        await server.stop()
    monkeypatch.setattr(node, "_PROBE_SECS", 0.2)
    with socket.create_server((LOCAL, 0)) as silent:
        found = await probe("UI", LOCAL, silent.getsockname()[1], None, ("/",))
    assert found.answer is Answer.SILENT


def test_the_command_names_what_is_open_and_ends_with_1(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(node, "_PROBE_SECS", 1.5)
    monkeypatch.setenv("HOME", str(tmp_path))
    token = tmp_path / ".storm" / "token"
    token.parent.mkdir()
    token.write_text("x.y.z")
    token.chmod(0o644)
    # (Port 1 is no one's: neither a daemon nor ZooKeeper is there.)
    settings = [f"{name}.port=1" for name in ("nimbus.thrift", "drpc", "ui", "storm.zookeeper")]
    options = [word for setting in settings for word in ("-c", setting)]
    options += ["-c", f"storm.local.dir={tmp_path}"]
    assert run(["doctor", "--security", "--json", *options]) == 1
    found = json.loads(capsys.readouterr().out)
    jsonschema.validate(found, schemas()["storm doctor"])
    by_id = {door["id"]: door for door in found["doors"]}
    assert found["open"] == sum(door["state"] == "open" for door in found["doors"])
    assert by_id["cluster"]["state"] == by_id[f"file {token}"]["state"] == "open"
    assert by_id["nimbus"]["state"] == "closed"
    assert by_id["zookeeper"]["state"] == "unknown"
    assert [one for one in caplog.records if one.name.startswith("kazoo")] == []
    assert "x.y.z" not in str(found)
    assert run(["doctor", "--security", *options]) == 1
    printed = capsys.readouterr().out
    assert "Other users can read the token" in printed
    assert "doors are open." in printed


async def test_the_probe_of_one_door_does_not_wait_for_another() -> None:
    with socket.create_server((LOCAL, 0)) as silent:
        port = silent.getsockname()[1]
        slow = asyncio.create_task(probe("UI", LOCAL, port, None, ("/",)))
        assert (await probe("DRPC", LOCAL, 1, None, ("/",))).answer is Answer.NOTHING_LISTENS
        assert not slow.done()
        slow.cancel()


class _ZooKeeper:
    """One whose access lists differ from child to child."""

    def __init__(self, lists: dict[str, ACL | None]) -> None:
        self._lists = lists  # None: strangers may not see the list

    def __call__(self, **_: object) -> Self:
        return self

    def start(self, timeout: float) -> None: ...

    def stop(self) -> None: ...

    def close(self) -> None: ...

    def get_children(self, path: str) -> list[str]:
        self._list(path)
        return [child.rpartition("/")[2] for child in self._lists if child != path]

    def get_acls(self, path: str) -> tuple[list[ACL], None]:
        return [self._list(path)], None

    def _list(self, path: str) -> ACL:
        found = self._lists[path]
        if found is None:
            raise NoAuthError
        return found


@pytest.mark.parametrize(
    ("lists", "allowed"),
    [
        ({"/storm": READ_ACL, "/storm/a": WORLD, "/storm/b": None}, ["read", "change"]),
        ({"/storm": READ_ACL, "/storm/b": None}, ["read"]),
        ({"/storm": None, "/storm/b": None}, []),
    ],
)
def test_one_closed_child_does_not_close_zookeeper(
    monkeypatch: pytest.MonkeyPatch, lists: dict[str, ACL | None], allowed: list[str]
) -> None:
    monkeypatch.setattr("kazoo.client.KazooClient", _ZooKeeper(lists))
    assert node._zookeeper(NimbusOptions()) == allowed


async def test_a_listener_of_another_kind_is_no_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node, "_PROBE_SECS", 60.0)  # the machine may be busy

    async def flood(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"x" * 1_000_000)
        writer.close()

    async with await asyncio.start_server(flood, LOCAL) as server:
        port = server.sockets[0].getsockname()[1]
        assert (await probe("UI", LOCAL, port, None, ("/",))).answer is Answer.REFUSES
