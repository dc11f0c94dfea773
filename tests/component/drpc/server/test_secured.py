"""A DRPC server of a secured cluster: who calls, who serves, and whose answers count."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from tests.component.drpc.conftest import until
from tests.support.certificates import Certificates as Authority
from tests.support.identity_provider import AUDIENCE, ProviderKeys, ProviderServer, signed
from tests.support.nimbus_service import package, topology
from tests.support.secured_nimbus import Certificates, SecuredNimbus, secured_nimbus

from squall_cli.doctor import node
from squall_cli.doctor.doors import Answer
from squall_cli.doctor.node import listeners_of, probe
from squall_common.authentication.worker_identity import WorkerCredentials, identity_json
from squall_common.config.load import load_conf
from squall_common.config.options.typed import ClientOptions, DrpcOptions
from squall_common.daemon.ports import free_ports
from squall_common.errors import ConfigError
from squall_common.security.identity import Role
from squall_drpc.batches import INVOCATIONS, Settlement
from squall_drpc.client import AsyncDRPCClient, DRPCError
from squall_drpc.server.daemon import DrpcServer
from squall_thrift import storm
from squall_thrift.client import ThriftApplicationError, ThriftClient, ThriftTransportError
from squall_thrift.serving.authentication import Credentials

LISTS = """
drpc.authorizer.acl:
  shout:
    client.users: [bob]
    invocation.user: carol
  other:
    client.users: [bob]
    invocation.user: dora
"""


@dataclass(slots=True)
class Site:
    """A Nimbus, a DRPC server, and topologies of carol and of dora."""

    nimbus: SecuredNimbus
    server: DrpcServer
    folder: Path
    carols: str
    doras: str

    def user(self, name: str, role: Role = Role.USER) -> Credentials:
        return self.nimbus.certificates.credentials(role, name, server=Role.DRPC)

    def ports(self, topology_id: str) -> list[int]:
        """The slots of a topology, all on one node."""
        signed = self.nimbus.local.nimbus.signed
        assert signed is not None
        kept = signed.ledger.states.get(topology_id)
        return [] if kept is None else sorted(kept.slots.get("node-1", {}))

    def worker(self, topology_id: str, number: int = 0) -> WorkerCredentials:
        """A worker, by what its supervisor writes into its folder; `number` counts those of a
        topology."""
        port = self.ports(topology_id)[number]
        tokens = self.nimbus.local.nimbus.tokens
        assert tokens is not None
        owner = "carol" if topology_id == self.carols else "dora"
        text = tokens.of_worker(topology_id, owner, "node-1", port)
        file = self.folder / f"identity-{topology_id}-{port}.json"
        file.write_bytes(
            identity_json(text, self.nimbus.certificates.authority.certificate.read_text())
        )
        return WorkerCredentials(file, Role.DRPC)

    async def token(self, user: str) -> str:
        async with self.nimbus.user(user) as client:
            found: str = await client.call("createToken", None, 3600, "", None, None)
            return found

    @asynccontextmanager
    async def invocations(self, credentials: Credentials | None) -> AsyncIterator[ThriftClient]:
        port = self.server.workers.port
        async with ThriftClient(INVOCATIONS, "127.0.0.1", port, credentials=credentials) as client:
            yield client

    def caller(self, credentials: Credentials | None) -> AsyncDRPCClient:
        port = self.server.callers.port
        return AsyncDRPCClient("127.0.0.1", port, timeout_secs=60, credentials=credentials)

    def by_token(self, token: str) -> AsyncDRPCClient:
        """A client as a program has it, from its configuration."""
        file = self.folder / "token"
        file.touch(mode=0o600)
        file.write_text(token)
        return AsyncDRPCClient.from_conf(
            {
                "storm.security.ca": str(self.nimbus.certificates.authority.certificate),
                "storm.security.token.file": str(file),
                "drpc.servers": ["127.0.0.1"],
                "drpc.port": self.server.callers.port,
            }
        )

    def audit(self) -> list[dict[str, Any]]:
        text = (self.folder / "logs" / "drpc-audit.log").read_text()
        return [json.loads(line) for line in text.splitlines()]

    async def post(
        self, function: str, args: str, *, token: str | None = None, **more: Any
    ) -> tuple[int, str]:
        """Over HTTP; `ssl` may have a certificate."""
        context = more.pop("ssl", None) or self.nimbus.certificates.by_token("none").context
        headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        url = f"https://127.0.0.1:{self.server.http.port}/drpc/{function}"
        connector = aiohttp.TCPConnector(ssl=context)
        async with (
            aiohttp.ClientSession(connector=connector) as session,
            session.post(url, data=args, headers=headers) as answer,
        ):
            return answer.status, await answer.text()


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("certificates")).create()


def conf_of(folder: Path, certificates: Certificates, nimbus_port: int) -> dict[str, Any]:
    return {
        "nimbus.seeds": ["127.0.0.1"],
        "nimbus.thrift.port": nimbus_port,
        "storm.nimbus.retry.times": 0,
        "storm.local.dir": str(folder / "drpc"),
        "storm.log.dir": str(folder / "logs"),
        "nimbus.admins": ["root"],
        "drpc.authorizer.acl.filename": str(folder / "lists.yaml"),
        **dict.fromkeys(("drpc.port", "drpc.invocations.port", "drpc.http.port"), 0),
        **certificates.conf(Role.DRPC, "drpc1"),
    }


async def submit(nimbus: SecuredNimbus, user: str, name: str, *, workers: int = 1) -> str:
    conf = json.dumps({"topology.workers": workers})
    async with nimbus.user(user) as client:
        location = await client.call("beginFileUpload")
        await client.call("uploadChunk", location, package())
        await client.call("finishFileUpload", location)
        await client.call("submitTopology", name, location, conf, topology())
        topology_id: str = (await client.call("getTopologySummaryByName", name)).id
        return topology_id


@asynccontextmanager
async def running(
    tmp_path: Path, certificates: Certificates, more: dict[str, Any] | None = None
) -> AsyncIterator[Site]:
    [port] = free_ports(1)
    (tmp_path / "lists.yaml").write_text(LISTS)
    async with secured_nimbus(tmp_path / "nimbus", certificates, port=port) as nimbus:
        await nimbus.local.supervisor("node-1", range(6700, 6703), signed=nimbus.signed("node-1"))
        carols = await submit(nimbus, "carol", "shouts", workers=2)
        doras = await submit(nimbus, "dora", "others")
        conf = {**conf_of(tmp_path, certificates, nimbus.server.port), **(more or {})}
        server = DrpcServer(DrpcOptions.read(conf), ClientOptions.read(conf))
        await server.start()
        try:
            site = Site(nimbus, server, tmp_path, carols, doras)
            await until(lambda: len(site.ports(carols)) == 2 and len(site.ports(doras)) == 1)
            yield site
        finally:
            await server.stop(1)


@pytest.fixture
async def site(tmp_path: Path, certificates: Certificates) -> AsyncIterator[Site]:
    async with running(tmp_path, certificates) as site:
        yield site


async def fetch(worker: ThriftClient, function: str = "shout", taker: str = "t") -> Any:
    """The next request."""
    batch = await worker.call("fetchRequests", function, 1, 5000, taker, 0)
    [request] = batch.requests
    return request


async def answered(site: Site, calling: asyncio.Task[Any], result: str = "HI") -> Any:
    """What a caller gets from a worker of carol's."""
    async with site.invocations(site.worker(site.carols)) as worker:
        request = await fetch(worker)
        settlement = Settlement(request_id=request.request_id, result=result)
        await worker.call("settleRequests", [settlement])
    return await calling


async def test_callers_are_whom_the_function_names(site: Site) -> None:
    """By certificate and by token, over Thrift and over HTTP."""
    loop = asyncio.get_running_loop()
    async with site.caller(site.user("bob")) as bob:
        assert await answered(site, loop.create_task(bob.execute("shout", "hi"))) == "HI"
    token = await site.token("bob")
    async with site.by_token(token) as bob:
        assert await answered(site, loop.create_task(bob.execute("shout", "hi"))) == "HI"
    posted = loop.create_task(site.post("shout", "hi", token=token))
    assert await answered(site, posted) == (200, "HI")
    by_certificate = loop.create_task(site.post("shout", "hi", ssl=site.user("bob").context))
    assert await answered(site, by_certificate) == (200, "HI")
    async with site.caller(site.user("root")) as root:  # an administrator
        assert await answered(site, loop.create_task(root.execute("shout", "hi"))) == "HI"


async def test_users_of_an_identity_provider_call(
    tmp_path: Path, certificates: Certificates
) -> None:
    """Whom the function names, over Thrift and over HTTP; and no one else."""
    (tmp_path / "authority").mkdir()
    authority, now = Authority.make(tmp_path / "authority"), int(time.time())
    loop = asyncio.get_running_loop()
    async with ProviderServer(authority.for_server(), ProviderKeys()) as provider:
        conf = {
            "storm.oidc.issuer": provider.url,
            "storm.oidc.audience": AUDIENCE,
            "storm.oidc.ca": str(authority.ca),
        }
        claims = {"iss": provider.url, "aud": AUDIENCE, "iat": now, "exp": now + 3_600}
        bobs, eves = (signed({**claims, "sub": name}, provider.keys) for name in ("bob", "eve"))
        async with running(tmp_path, certificates, conf) as site:
            async with site.by_token(bobs) as bob:
                assert await answered(site, loop.create_task(bob.execute("shout", "hi"))) == "HI"
            posted = loop.create_task(site.post("shout", "hi", token=bobs))
            assert await answered(site, posted) == (200, "HI")
            assert (await site.post("shout", "hi", token=eves))[0] == 403


async def test_a_header_makes_no_one_else_of_a_caller(site: Site) -> None:
    """CVE-2026-124496: `doAsUser` asks `nimbus.impersonation.acl`, which names no one here. Beside
    a token it is refused whatever it says."""
    bearer = {"Authorization": f"Bearer {await site.token('bob')}"}
    without = site.nimbus.certificates.by_token("none").context
    for context, headers in ((site.user("eve").context, {}), (without, bearer)):
        connector = aiohttp.TCPConnector(ssl=context)
        # If it is let in, it waits for a worker.
        limit = aiohttp.ClientTimeout(total=20)
        async with (
            aiohttp.ClientSession(connector=connector, timeout=limit) as session,
            session.post(
                f"https://127.0.0.1:{site.server.http.port}/drpc/shout",
                data="hi",
                headers={**headers, "doAsUser": "bob"},
            ) as answer,
        ):
            assert answer.status == 401
    reasons = [one["reason"] for one in site.audit() if one["action"] == "authenticate"]
    assert any("nimbus.impersonation.acl does not name user:eve" in one for one in reasons)
    assert site.server.broker.under_way == 0


async def test_a_worker_calls_as_its_owner(site: Site) -> None:
    (site.folder / "lists.yaml").write_text(LISTS.replace("[bob]", "[bob, dora]"))
    secured = site.server.secured
    assert secured is not None
    assert secured.functions.refresh() is None
    async with site.caller(site.worker(site.doras)) as dora:
        calling = asyncio.get_running_loop().create_task(dora.execute("shout", "hi"))
        assert await answered(site, calling) == "HI"


async def test_others_get_nothing_and_do_not_learn_why(site: Site) -> None:
    async with site.caller(site.user("eve")) as eve:
        for function in ("shout", "none"):
            with pytest.raises(DRPCError, match="not allowed: execute is not allowed"):
                await eve.execute(function, "hi")
    async with site.caller(site.worker(site.carols)) as carol:
        with pytest.raises(DRPCError, match="not allowed"):
            await carol.execute("shout", "hi")
    assert (await site.post("shout", "hi"))[0] == 401
    assert (await site.post("shout", "hi", token="wrong"))[0] == 401
    assert (await site.post("shout", "hi", token=await site.token("eve")))[0] == 403
    worker_token = site.worker(site.carols).initial()[1].split(b"Bearer ")[1].rstrip(b"\x01")
    assert (await site.post("shout", "hi", token=worker_token.decode()))[0] == 403
    async with site.caller(None) as stranger:  # a bare frame
        with pytest.raises(DRPCError):
            await stranger.execute("shout", "hi")
    assert site.server.broker.under_way == 0
    refused = {(one["action"], one["principal"]) for one in site.audit()}
    assert ("execute", "user:eve") in refused
    assert ("authenticate", None) in refused


async def test_the_doctor_finds_its_doors_closed(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(node, "_PROBE_SECS", 60.0)  # the machine may be busy
    ports = {
        "drpc.port": site.server.callers.port,
        "drpc.invocations.port": site.server.workers.port,
        "drpc.http.port": site.server.http.port,
    }
    doors = [one for one in listeners_of({**load_conf(), **ports}) if one[2] in ports.values()]
    found = [await probe(*one) for one in doors]
    assert [one.answer for one in found] == [Answer.REFUSES] * 3


async def test_only_workers_of_the_owner_fetch(site: Site) -> None:
    """Not the owner in person, no daemon, and no worker of another's topology."""
    async with site.caller(site.user("bob")) as bob:
        calling = asyncio.get_running_loop().create_task(bob.execute("shout", "hi"))
        await until(lambda: site.server.broker.under_way)
        for credentials in (
            site.user("carol"),
            site.user("root"),
            site.user("bob"),
            site.user("node-1", Role.SUPERVISOR),
            site.user("n1", Role.NIMBUS),
            site.worker(site.doras),
        ):
            async with site.invocations(credentials) as client:
                with pytest.raises(storm.AuthorizationException):
                    await client.call("fetchRequest", "shout")
                with pytest.raises(ThriftApplicationError, match="not allowed"):
                    await client.call("fetchRequests", "shout", 1, 0, "t", 0)
        with pytest.raises(ThriftTransportError):
            async with site.invocations(None) as client:
                await client.call("fetchRequest", "shout")
        assert await answered(site, calling) == "HI"


async def test_a_result_counts_only_from_the_topology_that_fetched_the_request(site: Site) -> None:
    async with site.caller(site.user("bob")) as bob:
        calling = asyncio.get_running_loop().create_task(bob.execute("shout", "hi"))
        async with (
            site.invocations(site.worker(site.carols)) as spout,
            site.invocations(site.worker(site.carols, 1)) as bolt,
            site.invocations(site.worker(site.doras)) as thief,
        ):
            request = await fetch(spout)
            # An id can be guessed, and so can the name of a taker.
            await thief.call("result", request.request_id, "stolen")
            await thief.call("failRequest", request.request_id)
            settlement = Settlement(request_id=request.request_id, result="stolen")
            await thief.call("settleRequests", [settlement])
            assert (await thief.call("fetchRequests", "other", 1, 0, "t", 9)).requests == []
            for credentials in (site.user("carol"), site.user("root")):
                async with site.invocations(credentials) as client:
                    with pytest.raises(storm.AuthorizationException):
                        await client.call("result", request.request_id, "stolen")
                    with pytest.raises(storm.AuthorizationException):
                        await client.call("result", "none", "stolen")
                    with pytest.raises(ThriftApplicationError, match="not allowed"):
                        await client.call("settleRequests", [])
            assert not calling.done()
            # The bolt that returns results may run in another worker of the topology.
            await bolt.call("result", request.request_id, "HI")
            assert await calling == "HI"
            await bolt.call("result", request.request_id, "late")
    reasons = [one["reason"] for one in site.audit() if one["action"] == "result"]
    assert "the request was not fetched by a worker of the caller's topology" in reasons


async def test_a_request_that_nobody_has_fetched_is_answered_by_nobody(site: Site) -> None:
    async with site.caller(site.user("bob")) as bob:
        calling = asyncio.get_running_loop().create_task(bob.execute("shout", "hi"))
        await until(lambda: site.server.broker.under_way)
        [waiting] = site.server.broker._requests._pending
        async with site.invocations(site.worker(site.carols)) as worker:
            await worker.call("result", waiting, "guessed")
        assert await answered(site, calling) == "HI"


async def test_a_revoked_token_ends_the_calls_that_wait(site: Site) -> None:
    loop, token = asyncio.get_running_loop(), await site.token("bob")
    secured = site.server.secured
    assert secured is not None
    await secured.revocations.refresh()
    async with site.by_token(token) as bob:
        calling = loop.create_task(bob.execute("shout", "hi"))
        posted = loop.create_task(site.post("shout", "hi", token=token))
        await until(lambda: site.server.broker.under_way == 2)
        async with site.nimbus.user("bob") as client:
            await client.call("revokeTokens", "bob")
        await secured.revocations.refresh()  # as every ten seconds
        with pytest.raises(DRPCError, match=r"connection ended|closed the connection"):
            await calling
        with pytest.raises(aiohttp.ClientError):
            await posted
        with pytest.raises(DRPCError, match="refused the certificate or the token"):
            await bob.execute("shout", "hi")
    await until(lambda: site.server.broker.under_way == 0)
    assert (await site.post("shout", "hi", token=token))[0] == 401


async def test_the_tokens_of_workers_end_with_their_topology(site: Site) -> None:
    worker = site.worker(site.carols)
    secured = site.server.secured
    assert secured is not None
    async with site.invocations(worker) as client:
        await client.call("fetchRequest", "shout")
        await secured.slots.refresh()
        await client.call("fetchRequest", "shout")  # it lives
        async with site.nimbus.user("carol") as carol:
            await carol.call("killTopologyWithOpts", "shouts", storm.KillOptions(wait_secs=0))
        state = site.nimbus.local.state
        async with asyncio.timeout(30):
            while site.carols in await state.topology_ids():  # noqa: ASYNC110
                await asyncio.sleep(0.02)
        await secured.slots.refresh()
        with pytest.raises((storm.AuthorizationException, ThriftTransportError)):
            await client.call("fetchRequest", "shout")
    with pytest.raises(ThriftTransportError, match="refused"):
        async with site.invocations(worker):
            pass


async def test_the_token_of_a_worker_ends_with_its_slot_though_its_topology_lives(
    site: Site,
) -> None:
    """It would count for 24 hours: a worker that was left behind would go on to get requests."""
    secured = site.server.secured
    assert secured is not None
    workers = {port: site.worker(site.carols, n) for n, port in enumerate(site.ports(site.carols))}
    for worker in workers.values():
        async with site.invocations(worker) as client:
            await client.call("fetchRequest", "shout")
    await secured.slots.refresh()
    async with site.nimbus.user("carol") as carol:
        options = storm.RebalanceOptions(wait_secs=0, num_workers=1)
        await carol.call("rebalance", "shouts", options)
    await until(lambda: len(site.ports(site.carols)) == 1)
    await secured.slots.refresh()
    stays = site.ports(site.carols)[0]
    for port, worker in workers.items():
        if port == stays:
            async with site.invocations(worker) as client:
                await client.call("fetchRequest", "shout")
        else:
            with pytest.raises(ThriftTransportError, match="refused"):
                async with site.invocations(worker):
                    pass


async def test_the_lists_are_read_again_and_a_mistake_changes_nothing(site: Site) -> None:
    secured, file = site.server.secured, site.folder / "lists.yaml"
    assert secured is not None
    file.write_text("drpc.authorizer.acl: {shout: {client.user: [eve]}}")
    assert "unknown client.user" in (secured.functions.refresh() or "")
    async with site.caller(site.user("eve")) as eve:
        with pytest.raises(DRPCError, match="not allowed"):
            await eve.execute("shout", "hi")
        file.write_text(LISTS.replace("[bob]", "[eve]"))
        assert secured.functions.refresh() is None
        calling = asyncio.get_running_loop().create_task(eve.execute("shout", "hi"))
        assert await answered(site, calling) == "HI"


def test_a_server_without_lists_or_without_its_certificate_does_not_start(
    tmp_path: Path, certificates: Certificates
) -> None:
    conf = conf_of(tmp_path, certificates, 6627)
    for changes, reason in (
        ({}, "cannot be read"),
        ({"drpc.authorizer.acl.filename": None}, "no one could call"),
        (certificates.conf(Role.NIMBUS, "n1"), "must be that of a drpc"),
    ):
        changed = {**conf, **changes}
        with pytest.raises(ConfigError, match=reason):
            DrpcServer(DrpcOptions.read(changed), ClientOptions.read(changed))


async def test_the_limits_are_shares_of_users(tmp_path: Path, site: Site) -> None:
    """Two users at one address have a share each."""
    (site.folder / "lists.yaml").write_text(LISTS.replace("[bob]", "[bob, eve]"))
    conf = {
        **conf_of(tmp_path, site.nimbus.certificates, site.nimbus.server.port),
        "storm.local.dir": str(tmp_path / "second"),
        "drpc.requests.max": 4,
        "drpc.peer.percent.max": 25,
    }
    server = DrpcServer(DrpcOptions.read(conf), ClientOptions.read(conf))
    await server.start()
    loop = asyncio.get_running_loop()
    try:
        second = Site(site.nimbus, server, site.folder, site.carols, site.doras)
        async with second.caller(site.user("bob")) as bob, second.caller(site.user("eve")) as eve:
            calling = [loop.create_task(one.execute("shout", "hi")) for one in (bob, eve)]
            await until(lambda: server.broker.under_way == 2)
            with pytest.raises(DRPCError, match="of bob"):
                await bob.execute("shout", "hi")
            for one in calling:
                one.cancel()
            await asyncio.gather(*calling, return_exceptions=True)
    finally:
        await server.stop(1)
