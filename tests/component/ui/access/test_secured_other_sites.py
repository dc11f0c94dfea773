"""What a browser may do to our listeners for a page of another site: nothing, on any route.

The routes are those of the daemons' own tables, behind the real listener; in place of the handlers
is one that says that it was reached.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from http.cookies import SimpleCookie
from pathlib import Path

import aiohttp
import pytest
from aiohttp import web
from tests.support.route_tables import proxy_table, route_tables
from tests.support.secured_nimbus import Certificates
from tests.support.secured_site import running

from squall_common.daemon.web import Route, WebServer

REACHED = 299
DAEMONS = ("ui", "logviewer", "drpc", "metrics", "proxy")
# A browser shows these for a link elsewhere: pages, their parts, the form of a login, logs. They
# change nothing, and no page of another site reads what they answer.
LINKED = {
    "ui": {
        "/", "/configuration", "/login", "/logs", "/logs/view", "/owner/{id}", "/search",
        "/static/{path:.+}", "/supervisor/{id}", "/topology/{id}",
        "/topology/{id}/component/{component}",
        "/topology/{id}/component/{component}/executor/{tasks}",
        "/topology/{id}/{page:errors|configuration|workers|dead-letters|logs|flame}",
        "/{other:.*}",
    },
    "logviewer": {
        "/", "/api/v1/daemondownload", "/api/v1/daemonlog", "/api/v1/download",
        "/api/v1/dumps/{topo_id}/{host_port}", "/api/v1/dumps/{topo_id}/{host_port}/{filename}",
        "/api/v1/log", "/login", "/static/{path:.+}",
    },
}  # fmt: skip
FOREIGN = (
    {"Origin": "https://evil.example"},
    {"Origin": "null"},
    {"Origin": "http://127.0.0.1:1"},  # another port of this host is another site
    {"Sec-Fetch-Site": "cross-site"},
    {"Sec-Fetch-Site": "same-site"},
    {"Sec-Fetch-Site": "cross-site", "X-Requested-With": "squall"},
)
# What an image or a link of a page makes a browser send over plain http.
IMAGE = {"User-Agent": "Mozilla/5.0 (X11; Linux x86_64)"}


def table(daemon: str, folder: Path) -> list[Route]:
    return proxy_table() if daemon == "proxy" else route_tables(folder)[daemon]


async def reached(request: web.Request) -> web.Response:
    return web.Response(status=REACHED)


def path_of(route: Route) -> str:
    """A path that leads to this route."""
    parts = route.path.split("/")
    named = {"{page:errors|configuration|workers|dead-letters|logs|flame}": "errors"}
    return "/".join(named.get(part, "x") if part.startswith("{") else part for part in parts)


@asynccontextmanager
async def served(routes: Sequence[Route]) -> AsyncIterator[tuple[WebServer, aiohttp.ClientSession]]:
    server = WebServer([replace(one, handler=reached) for one in routes], name="test")
    await server.start()
    try:
        async with aiohttp.ClientSession(base_url=f"http://127.0.0.1:{server.port}") as session:
            yield server, session
    finally:
        await server.stop()


async def status(session: aiohttp.ClientSession, route: Route, headers: dict[str, str]) -> int:
    async with session.request(
        route.method, path_of(route), headers=headers, allow_redirects=False
    ) as answer:
        return answer.status


@pytest.mark.parametrize("daemon", DAEMONS)
async def test_no_route_is_for_a_page_of_another_site(daemon: str, tmp_path: Path) -> None:
    wrong = []
    async with served(table(daemon, tmp_path)) as (server, session):
        for route in server.routes:
            for headers in (*FOREIGN, *([IMAGE] if route.method == "GET" else [])):
                found = await status(session, route, dict(headers))
                if found != (REACHED if route.cross_site else 403):
                    wrong.append(f"{route.method} {route.path} with {headers}: {found}")
            for headers in ({}, {"Origin": f"http://127.0.0.1:{server.port}"}):
                if await status(session, route, headers) != REACHED:
                    wrong.append(f"{route.method} {route.path} is not for programs and our pages")
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("daemon", DAEMONS)
def test_only_reviewed_pages_are_linked_from_elsewhere(daemon: str, tmp_path: Path) -> None:
    linked = [one for one in table(daemon, tmp_path) if one.cross_site]
    assert {one.method for one in linked} <= {"GET"}
    assert {one.path for one in linked} == LINKED.get(daemon, set())


@pytest.mark.parametrize("daemon", DAEMONS)
async def test_no_route_answers_to_a_foreign_name(daemon: str, tmp_path: Path) -> None:
    """DNS rebinding: a page's own name is made to point at us."""
    wrong = []
    async with served(table(daemon, tmp_path)) as (server, session):
        for route in server.routes:
            for host in ("evil.example", f"evil.example:{server.port}", "10.1.2.3", "localhost.x"):
                found = await status(session, route, {"Host": host})
                if found != 421:
                    wrong.append(f"{route.method} {route.path} as {host}: {found}")
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("daemon", DAEMONS)
async def test_every_answer_has_the_headers_that_browsers_need(daemon: str, tmp_path: Path) -> None:
    """Refusals, too."""
    async with served(table(daemon, tmp_path)) as (server, session):
        for route in server.routes:
            for headers in ({}, {"Origin": "https://evil.example"}, {"Host": "evil.example"}):
                async with session.request(route.method, path_of(route), headers=headers) as answer:
                    assert answer.headers["X-Content-Type-Options"] == "nosniff"
                    assert answer.headers["X-Frame-Options"] == "DENY"
                    policy = answer.headers["Content-Security-Policy"]
                    assert "default-src 'none'" in policy
                    assert "frame-ancestors 'none'" in policy
                    assert "unsafe-inline" not in policy.partition("script-src")[2]
                    assert not [name for name in answer.headers if name.startswith("Access-")]


async def test_every_cookie_is_for_this_host_and_no_script(tmp_path: Path) -> None:
    """Of a real UI and a real logviewer: at a login, at a logout, and nowhere else."""
    certificates = Certificates(tmp_path / "certificates").create()
    async with running(tmp_path / "site", certificates) as site:
        token = await site.token("alice")
        for logs, name in ((False, "__Host-squall-ui"), (True, "__Host-squall-logviewer")):
            cookies = []
            for path, data in (("/login", {"token": token}), ("/logout", {})):
                async with site.session.post(
                    site.url(path, logs=logs), data=data, allow_redirects=False,
                    headers={"Authorization": f"Bearer {token}"} if path == "/logout" else {},
                ) as answer:  # fmt: skip
                    cookies += answer.headers.getall("Set-Cookie")
            assert len(cookies) == 2
            for text in cookies:
                [(found, cookie)] = SimpleCookie(text).items()
                assert found == name
                assert cookie["secure"]
                assert cookie["httponly"]
                assert (cookie["samesite"], cookie["path"]) == ("Strict", "/")
                assert not cookie["domain"]
            async with site.session.get(site.url("/login", logs=logs)) as answer:
                assert "Set-Cookie" not in answer.headers
