"""A UI and a logviewer of a secured cluster over a real Nimbus, in this process."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
from tests.support.nimbus_service import package, topology
from tests.support.secured_nimbus import Certificates, SecuredNimbus, secured_nimbus

from squall_common.config.options.typed import ClientOptions, LogviewerOptions, UiOptions
from squall_common.daemon.ports import free_ports
from squall_common.security.identity import Role
from squall_ui.daemon import UiServer
from squall_ui.logviewer.daemon import LogServer

COOKIE = "__Host-squall-ui"


@dataclass(slots=True)
class Site:
    """A UI and a logviewer, and requests to them."""

    nimbus: SecuredNimbus
    ui: UiServer
    logviewer: LogServer
    session: aiohttp.ClientSession
    artifacts: Path

    async def token(self, user: str, **limits: Any) -> str:
        async with self.nimbus.user(user) as client:
            actions, topologies = limits.get("actions"), limits.get("topologies")
            found: str = await client.call("createToken", None, 3600, "", actions, topologies)
            return found

    async def submit(self, user: str, name: str, conf: dict[str, Any] | None = None) -> str:
        """Submit a topology, which leaves a log; its id."""
        async with self.nimbus.user(user) as client:
            location = await client.call("beginFileUpload")
            await client.call("uploadChunk", location, package())
            await client.call("finishFileUpload", location)
            await client.call("submitTopology", name, location, json.dumps(conf or {}), topology())
            topology_id: str = (await client.call("getTopologySummaryByName", name)).id
        folder = self.artifacts / topology_id / "6700"
        folder.mkdir(parents=True)
        (folder / "worker.log").write_text(f"a secret of {user}\n")
        return topology_id

    def url(self, path: str, *, logs: bool = False) -> str:
        port = self.logviewer.port if logs else self.ui.port
        return f"https://127.0.0.1:{port}{path}"

    async def ask(
        self, path: str, token: str | None = None, *, method: str = "GET", logs: bool = False,
        headers: dict[str, str] | None = None, **more: Any,
    ) -> tuple[int, str]:  # fmt: skip
        shown = {} if token is None else {"Authorization": f"Bearer {token}"}
        async with self.session.request(
            method, self.url(path, logs=logs), headers={**shown, **(headers or {})},
            allow_redirects=False, **more,
        ) as answer:  # fmt: skip
            assert answer.headers["X-Content-Type-Options"] == "nosniff"
            assert "frame-ancestors 'none'" in answer.headers["Content-Security-Policy"]
            return answer.status, await answer.text()

    async def log_in(self, token: str) -> str:
        """Log in as a browser does; the session's id."""
        async with self.session.post(
            self.url("/login"), data={"token": token, "next": "/logs?x=1"}, allow_redirects=False
        ) as answer:
            assert (answer.status, answer.headers["Location"]) == (303, "/logs?x=1")
            cookie = answer.headers["Set-Cookie"]
            assert {"HttpOnly", "Secure", "SameSite=Strict", "Path=/"} <= set(cookie.split("; "))
            assert "Domain" not in cookie
            return answer.cookies[COOKIE].value


@asynccontextmanager
async def running(
    folder: Path,
    certificates: Certificates,
    conf: dict[str, Any] | None = None,
    *,
    logviewer_conf: dict[str, Any] | None = None,
) -> AsyncIterator[Site]:
    [port] = free_ports(1)
    async with secured_nimbus(folder / "nimbus", certificates, conf, port=port) as nimbus:
        common = {
            "nimbus.seeds": ["127.0.0.1"],
            "nimbus.thrift.port": nimbus.server.port,
            "storm.nimbus.retry.times": 0,
            "nimbus.admins": ["root"],
            "storm.log.dir": str(folder / "logs"),
            **{key: nimbus.local.conf[key] for key in _GROUPS},
            **{key: value for key, value in (conf or {}).items() if key.startswith("storm.oidc.")},
        }
        logs = {
            **common, **certificates.conf(Role.LOGVIEWER, "node-1"),
            "storm.local.dir": str(folder / "logviewer"), "logviewer.port": 0,
            **(logviewer_conf or {}),
        }  # fmt: skip
        logviewer = LogServer(LogviewerOptions.read(logs), ClientOptions.read(logs))
        await logviewer.start()
        pages = {
            **common, **certificates.conf(Role.UI, "ui1"), "ui.port": 0,
            "storm.local.dir": str(folder / "ui"), "logviewer.port": logviewer.port,
            "storm.identity.issuer": (conf or {}).get("storm.identity.issuer"),
        }  # fmt: skip
        ui = UiServer(UiOptions.read(pages), ClientOptions.read(pages))
        await ui.start()
        context = certificates.by_token("none").context
        connector = aiohttp.TCPConnector(ssl=context)
        jar = aiohttp.DummyCookieJar()
        async with aiohttp.ClientSession(connector=connector, cookie_jar=jar) as session:
            yield Site(nimbus, ui, logviewer, session, folder / "logs" / "workers-artifacts")
        await ui.stop()
        await logviewer.stop()


_GROUPS = ("storm.group.mapping.service", "storm.group.mapping.service.params")
