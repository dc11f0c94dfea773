"""The UI and a logviewer of a secured cluster, over a real Nimbus: who gets what."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from tests.support.nimbus_service import eventually
from tests.support.secured_nimbus import Certificates
from tests.support.secured_site import COOKIE, Site, running

from squall_common.authentication.groups import Groups
from squall_common.security.identity import Role
from squall_thrift import storm

LIMITS = ["getLeader", "getTopologySummaries", "getClusterInfo"]


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("certificates")).create()


@pytest.fixture
async def site(tmp_path: Path, certificates: Certificates) -> AsyncIterator[Site]:
    async with running(tmp_path, certificates) as found:
        yield found


def audit(site: Site, name: str = "nimbus") -> list[dict[str, Any]]:
    folder = site.artifacts.parent
    if name == "nimbus":
        folder = Path(site.nimbus.local.conf["storm.local.dir"]) / "logs"
    return [json.loads(line) for line in (folder / f"{name}-audit.log").read_text().splitlines()]


async def test_each_user_sees_and_changes_their_own(site: Site) -> None:
    alice, eve = await site.token("alice"), await site.token("eve")
    topology_id = await site.submit("alice", "count")
    assert (await site.ask("/api/v1/topology/summary"))[0] == 401
    assert (await site.ask("/live/cluster/state"))[0] == 401
    assert (await site.ask("/topology/x"))[0] == 303
    status, text = await site.ask("/api/v1/topology/summary", alice)
    assert [one["name"] for one in json.loads(text)["topologies"]] == ["count"]
    # Just after hers was answered: no answer is shared.
    assert json.loads((await site.ask("/api/v1/topology/summary", eve))[1])["topologies"] == []
    state = json.loads((await site.ask("/live/cluster/state", eve))[1])["state"]
    assert state["topologies"] == []
    for path, method in (
        (f"/api/v1/topology/{topology_id}", "GET"),
        (f"/live/topology/{topology_id}/state", "GET"),
        (f"/reports/{topology_id}", "GET"),
        (f"/api/v1/topology/{topology_id}/kill/0", "POST"),
    ):
        status, text = await site.ask(path, eve, method=method)
        assert status == 404, (path, text)
        other = await site.ask(path.replace(topology_id, "none-1-1"), eve, method=method)
        assert other == (404, text.replace(topology_id, "none-1-1"))
    status, _ = await site.ask(f"/api/v1/topology/{topology_id}/deactivate", alice, method="POST")
    assert status == 200
    done = next(one for one in audit(site) if one["action"] == "deactivate")
    assert done["principal"] == "user:alice (by ui:ui1)"


async def test_a_browser_logs_in_and_out_and_its_streams_end(site: Site) -> None:
    session = await site.log_in(await site.token("alice"))
    cookie = {"Cookie": f"{COOKIE}={session}"}
    status, text = await site.ask("/", headers=cookie)
    assert status == 200
    assert 'data-user="alice"' in text
    for wrong in ({"Origin": "https://evil.example"}, {"Sec-Fetch-Site": "cross-site"},
                  {"Origin": f"http://127.0.0.1:{site.ui.port}"}):  # fmt: skip
        for path in ("/api/v1/topology/x/kill/0", "/login", "/logout", "/login/code"):
            assert (await site.ask(path, method="POST", headers={**cookie, **wrong}))[0] == 403
        assert (await site.ask("/live/cluster", headers={**cookie, **wrong}))[0] == 403
    rebound = {**cookie, "Host": "evil.example"}
    assert (await site.ask("/api/v1/topology/summary", headers=rebound))[0] == 421
    # The cookie of one daemon is none of another's.
    other = {"Cookie": f"__Host-squall-logviewer={session}"}
    assert (await site.ask("/api/v1/files", headers=other, logs=True))[0] == 401
    async with site.session.get(site.url("/live/cluster"), headers=cookie) as stream:
        assert stream.status == 200
        assert await stream.content.readuntil(b"\n\n")
        assert (await site.ask("/logout", method="POST", headers=cookie))[0] == 303
        await ended(stream)
    assert (await site.ask("/api/v1/topology/summary", headers=cookie))[0] == 401
    assert [one["action"] for one in audit(site, "ui") if one["decision"] == "allowed"] == [
        "login",
        "logout",
    ]


async def test_the_form_of_a_stranger_is_bounded_in_size_fields_and_time(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    form = {"Content-Type": "application/x-www-form-urlencoded"}
    ends = asyncio.Event()

    async def pieces(*found: bytes, wait: bool = False) -> AsyncIterator[bytes]:
        for one in found:
            yield one
        if wait:
            await ends.wait()

    async def status(body: AsyncIterator[bytes]) -> int:
        async with site.session.post(site.url("/login"), data=body, headers=form) as answer:
            return answer.status

    async with asyncio.timeout(20):
        # Without a Content-Length.
        assert await status(pieces(b"token=", b"x" * 40_000)) == 413
        assert await status(pieces(b"a&" * 10_000)) == 400
        assert await status(pieces(b"token=%ff\xff")) == 400
        assert await status(pieces(b"token=x")) == 401
        monkeypatch.setattr("squall_common.daemon.web.BODY_SECS", 0.1)
        assert await status(pieces(b"token=", wait=True)) == 408
    alice = {"Authorization": f"Bearer {await site.token('alice')}"}
    for path in ("/api/v1/topology/x/kill/0", "/reports/x"):
        slow = pieces(b"{", wait=True)
        async with (
            asyncio.timeout(20),
            site.session.post(site.url(path), data=slow, headers=alice) as answer,
        ):
            assert answer.status == 408, path


async def ended(stream: aiohttp.ClientResponse) -> None:
    async with asyncio.timeout(20):
        try:
            while await stream.content.readany():
                pass
        except aiohttp.ClientError:
            pass


async def test_a_token_that_is_revoked_ends_sessions_streams_and_logins(site: Site) -> None:
    token = await site.token("alice")
    session = await site.log_in(token)
    cookie = {"Cookie": f"{COOKIE}={session}"}
    assert site.ui.secured is not None
    async with site.session.get(site.url("/live/cluster"), headers=cookie) as stream:
        assert await stream.content.readuntil(b"\n\n")
        async with site.nimbus.user("alice") as client:
            await client.call("revokeTokens", None)
        await site.ui.secured.revocations.refresh()  # every ten seconds
        await ended(stream)
    for headers in (cookie, {"Authorization": f"Bearer {token}"}):
        assert (await site.ask("/api/v1/topology/summary", headers=headers))[0] == 401
    status, text = await site.ask("/login", method="POST", data={"token": token})
    assert status == 401
    assert "The token was refused" in text
    assert "was revoked" in audit(site, "ui")[-1]["reason"]
    # Nor after a restart without Nimbus: what is revoked is on the disk.
    kept = (site.artifacts.parent.parent / "ui" / "ui" / "security" / "token-register.jws").stat()
    assert kept.st_mode & 0o777 == 0o600


async def test_a_limited_token_does_what_it_lists(site: Site) -> None:
    await site.submit("alice", "count")
    topology_id = await site.submit("alice", "sum")
    token = await site.token("alice", actions=[*LIMITS, "activate"], topologies=["count"])
    assert (await site.ask("/api/v1/nimbus/summary", token))[0] == 200
    assert (await site.ask("/api/v1/owner-resources", token))[0] == 403
    for path in ("activate", "deactivate"):
        status, _ = await site.ask(f"/api/v1/topology/{topology_id}/{path}", token, method="POST")
        assert status in (403, 404)


async def test_a_code_logs_in_once_by_a_button_on_our_own_page(site: Site) -> None:
    token = await site.token("alice")
    status, text = await site.ask("/login/code", token, method="POST")
    assert status == 200
    link = json.loads(text)["login"]
    from_file = {"Sec-Fetch-Site": "cross-site", "User-Agent": "Mozilla/5.0"}
    status, text = await site.ask(link, headers=from_file)
    assert status == 200
    assert "Log in as alice" in text
    assert token not in text
    code = link.partition("code=")[2]
    foreign = {"Origin": "https://evil.example"}
    assert (await site.ask("/login", method="POST", data={"code": code}, headers=foreign))[0] == 403
    assert (await site.ask("/login", method="POST", data={"code": code}))[0] == 303
    assert (await site.ask("/login", method="POST", data={"code": code}))[0] == 401
    session = await site.log_in(token)
    cookie = {"Cookie": f"{COOKIE}={session}"}  # a page's script gets no code
    assert (await site.ask("/login/code", method="POST", headers=cookie))[0] == 401


async def test_a_certificate_counts_where_the_ui_may_act_for_users(
    tmp_path: Path, certificates: Certificates
) -> None:
    conf = {"nimbus.impersonation.acl": {"ui:ui1": {"hosts": ["127.0.0.1"], "groups": ["dev"]}}}
    async with running(tmp_path, certificates, conf) as site:
        topology_id = await site.submit("alice", "count")
        for user, expected in (("alice", 200), ("eve", 503)):  # eve is in none of the groups
            connector = aiohttp.TCPConnector(ssl=certificates.credentials(Role.USER, user).context)
            async with (
                aiohttp.ClientSession(connector=connector) as session,
                session.get(site.url(f"/api/v1/topology/{topology_id}")) as answer,
            ):
                assert answer.status == expected
        daemon = certificates.credentials(Role.SUPERVISOR, "node-9").context
        async with (
            aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=daemon)) as session,
            session.get(site.url("/api/v1/topology/summary")) as answer,
        ):
            assert answer.status == 403


async def test_logs_are_for_whom_the_topology_names_and_outlive_it(site: Site) -> None:
    lists = {"logs.users": ["dave"], "topology.readonly.users": ["carol"]}
    topology_id = await site.submit("alice", "count", lists)
    (site.artifacts.parent / "nimbus.log").write_text("nimbus leads\n")
    tokens = {name: await site.token(name) for name in ("alice", "dave", "carol", "eve", "root")}
    file = f"{topology_id}/6700/worker.log"

    async def check() -> None:
        for name, token in tokens.items():
            reads = name in ("alice", "dave", "root")
            for path in (
                f"/api/v1/part?file={file}", f"/api/v1/log?file={file}",
                f"/api/v1/download?file={file}", f"/api/v1/search?file={file}&search-string=a",
            ):  # fmt: skip
                status, text = await site.ask(path, token, logs=True)
                assert (status == 200) == reads, (name, path, text)
                assert reads or text == _absent(file)
            status, text = await site.ask("/api/v1/listLogs", token, logs=True)
            assert json.loads(text) == ([file] if reads else [])
            path = f"/api/v1/deepSearch/{topology_id}?search-string=secret"
            assert bool(json.loads((await site.ask(path, token, logs=True))[1])) == reads
            path = "/api/v1/part?file=nimbus.log&is-daemon=yes"
            status, _ = await site.ask(path, token, logs=True)
            assert status == (200 if name == "root" else 403)

    await check()
    # The UI's pages get them through the UI. (Nimbus names itself as a host.)
    [host] = {
        one["host"]
        for one in json.loads((await site.ask("/api/v1/nimbus/summary", tokens["alice"]))[1])[
            "nimbuses"
        ]
    }
    for name in ("alice", "eve"):
        status, text = await site.ask(f"/logs/of/{host}/part?file={file}", tokens[name])
        assert (status == 200) == (name == "alice"), text
    async with site.nimbus.user("alice") as client:
        await client.call("killTopologyWithOpts", "count", storm.KillOptions(wait_secs=0))

        async def gone() -> bool:
            return not await client.call("getTopologySummaries")

        await eventually(gone, "the topology is gone", 30.0)
    await check()
    assert (await site.ask("/api/v1/part?file=ui-audit.log&is-daemon=yes", tokens["root"],
                           logs=True))[0] == 404  # fmt: skip


async def test_a_stranger_gets_the_login_of_the_logviewer_and_no_log(site: Site) -> None:
    status, text = await site.ask("/login", logs=True)
    assert status == 200
    assert "Log in" in text
    assert (await site.ask("/static/app.css", logs=True))[0] == 200
    wrong = {"token": "wrong"}
    assert (await site.ask("/login", logs=True, method="POST", data=wrong))[0] == 401
    token = {"token": await site.token("alice")}
    assert (await site.ask("/login", logs=True, method="POST", data=token))[0] == 303
    assert (await site.ask("/logout", logs=True, method="POST"))[0] == 303
    for path in ("/", "/api/v1/files", "/api/v1/daemonlog?file=nimbus.log"):
        assert (await site.ask(path, logs=True))[0] == 401


async def test_a_session_has_the_groups_that_its_user_is_in_now(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    member_of = {"eve": frozenset({"ops"})}

    async def of(self: Groups, user: str) -> frozenset[str]:
        return member_of.get(user, frozenset())

    monkeypatch.setattr(Groups, "of", of)
    topology_id = await site.submit("alice", "count", {"logs.groups": ["ops"]})
    form = {"token": await site.token("eve")}
    async with site.session.post(
        site.url("/login", logs=True), data=form, allow_redirects=False
    ) as answer:
        session = answer.cookies["__Host-squall-logviewer"].value
    cookie = {"Cookie": f"__Host-squall-logviewer={session}"}
    path = f"/api/v1/part?file={topology_id}/6700/worker.log"
    assert (await site.ask(path, headers=cookie, logs=True))[0] == 200
    member_of.clear()
    assert (await site.ask(path, headers=cookie, logs=True))[0] == 404


def _absent(file: str) -> str:
    return json.dumps(
        {"error": "404 Not Found", "errorMessage": f"there is no file {file} here"},
        separators=(",", ":"),
    )
