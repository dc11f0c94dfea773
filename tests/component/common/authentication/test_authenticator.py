"""Users of an identity provider, at the port of Nimbus and in the UI: what their tokens are good
for, and what they are not."""

from __future__ import annotations

import json
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from tests.support.certificates import Certificates as Authority
from tests.support.identity_provider import AUDIENCE, ProviderKeys, ProviderServer, signed
from tests.support.nimbus_service import eventually, package, topology
from tests.support.secured_nimbus import Certificates
from tests.support.secured_site import Site, running

from squall_thrift import storm
from squall_thrift.client import ThriftTransportError


@dataclass(slots=True)
class Federated:
    """A site, and its provider."""

    site: Site
    provider: ProviderServer
    certificates: Certificates

    def token(self, user: str, *groups: str, **changes: Any) -> str:
        now = int(time.time())
        claims = {
            "iss": self.provider.url, "aud": AUDIENCE, "sub": user, "iat": now, "exp": now + 300,
            "groups": list(groups), **changes,
        }  # fmt: skip
        return signed(claims, self.provider.keys)

    def client(self, token: str) -> Any:
        return self.site.nimbus.client(self.certificates.by_token(token))

    def audit(self) -> list[dict[str, Any]]:
        folder = Path(self.site.nimbus.local.conf["storm.local.dir"]) / "logs"
        text = (folder / "nimbus-audit.log").read_text()
        return [json.loads(line) for line in text.splitlines()]


@pytest.fixture
async def federated(tmp_path: Path) -> AsyncIterator[Federated]:
    (tmp_path / "authority").mkdir()
    authority = Authority.make(tmp_path / "authority")
    certificates = Certificates(tmp_path / "certificates").create()
    async with ProviderServer(authority.for_server(), ProviderKeys()) as provider:
        conf = {
            "storm.oidc.issuer": provider.url,
            "storm.oidc.audience": AUDIENCE,
            "storm.oidc.claim.groups": "groups",
            "storm.oidc.ca": str(authority.ca),
        }
        async with running(tmp_path / "site", certificates, conf) as site:
            yield Federated(site, provider, certificates)


async def test_a_user_of_the_provider_is_a_user_here(federated: Federated) -> None:
    """Submits, and owns it; its groups are those of the token, besides the site's."""
    site = federated.site
    async with federated.client(federated.token("alice")) as alice:
        location = await alice.call("beginFileUpload")
        await alice.call("uploadChunk", location, package())
        await alice.call("finishFileUpload", location)
        conf = json.dumps({"topology.groups": ["operators"]})
        await alice.call("submitTopology", "count", location, conf, topology())
        [summary] = await alice.call("getTopologySummaries")
        assert summary.owner == "alice"
        # No token makes another, the provider's neither.
        with pytest.raises(storm.AuthorizationException):
            await alice.call("createToken", None, 3_600, "", None, None)
    async with federated.client(federated.token("dave", "operators")) as dave:
        await dave.call("deactivate", "count")
    async with federated.client(federated.token("dave", "others")) as dave:
        with pytest.raises(storm.NotAliveException):
            await dave.call("activate", "count")
    lines = [one for one in federated.audit() if one["decision"] == "allowed"]
    assert [(one["action"], one["principal"]) for one in lines] == [
        ("submitTopology", "user:alice"),
        ("deactivate", "user:dave"),
    ]
    # In the UI, which shows the token to Nimbus, by a header and by a session.
    status, text = await site.ask("/api/v1/topology/summary", federated.token("alice"))
    assert (status, [one["name"] for one in json.loads(text)["topologies"]]) == (200, ["count"])
    status, text = await site.ask("/api/v1/topology/summary", federated.token("eve"))
    assert (status, json.loads(text)["topologies"]) == (200, [])
    session = await site.log_in(federated.token("dave", "operators"))
    cookie = {"Cookie": f"__Host-squall-ui={session}"}
    status, text = await site.ask("/api/v1/topology/summary", headers=cookie)
    assert (status, [one["name"] for one in json.loads(text)["topologies"]]) == (200, ["count"])


async def test_other_tokens_are_refused_with_a_reason_in_the_log_alone(
    federated: Federated,
) -> None:
    now = int(time.time())
    stolen = signed(
        {"iss": federated.provider.url, "aud": AUDIENCE, "sub": "root", "iat": now, "exp": now + 9},
        ProviderKeys(),
    )
    for token, reason in (
        (federated.token("alice", aud="another"), "its audience"),
        (federated.token("alice", exp=now - 100), "has expired"),
        (federated.token("alice|7"), "is not a name"),
        (stolen, "its signature is wrong"),
    ):
        with pytest.raises(ThriftTransportError, match="refused") as refused:
            async with federated.client(token):
                pass
        assert reason not in str(refused.value)
        status, text = await federated.site.ask("/api/v1/topology/summary", token)
        assert status == 401
        assert reason not in text
    reasons = [one["reason"] for one in federated.audit() if one["action"] == "authenticate"]
    assert "its audience" in reasons[0]
    assert not any(token.rpartition(".")[2] in json.dumps(federated.audit()) for token in [stolen])


async def test_revoking_a_users_tokens_ends_those_of_the_provider(federated: Federated) -> None:
    site = federated.site
    token = federated.token("alice")
    session = await site.log_in(token)
    cookie = {"Cookie": f"__Host-squall-ui={session}"}
    async with federated.client(token) as alice:
        assert await alice.call("getTopologySummaries") == []
        async with site.nimbus.user("alice") as by_certificate:
            await by_certificate.call("revokeTokens", None)
        with pytest.raises(storm.AuthorizationException):  # also on a connection that is open
            await alice.call("getTopologySummaries")
    with pytest.raises(ThriftTransportError, match="refused"):
        async with federated.client(token):
            pass

    async def ended() -> bool:
        return (await site.ask("/api/v1/topology/summary", headers=cookie))[0] == 401

    await eventually(ended, "the session of that token has ended")
    assert (await site.ask("/api/v1/topology/summary", token))[0] == 401
    async with federated.client(federated.token("bob")) as bob:  # nobody else's
        assert await bob.call("getTopologySummaries") == []


async def test_a_token_with_many_groups_is_taken_at_every_port(federated: Federated) -> None:
    """Of 15,000 characters: by Nimbus, in a header, at the login and with its session."""
    site = federated.site
    token = federated.token("alice", *(f"department-{number:040}" for number in range(190)))
    assert 13_000 < len(token) < 16_000
    async with federated.client(token) as alice:
        assert await alice.call("getTopologySummaries") == []
    status, _ = await site.ask("/api/v1/topology/summary", token)
    assert status == 200
    session = await site.log_in(token)
    cookie = {"Cookie": f"__Host-squall-ui={session}"}
    status, _ = await site.ask("/api/v1/topology/summary", headers=cookie)
    assert status == 200


async def test_logviewers_go_by_the_user_and_the_groups_of_the_provider(
    federated: Federated,
) -> None:
    topology_id = await federated.site.submit("alice", "count", {"logs.groups": ["auditors"]})
    path = f"/api/v1/part?file={topology_id}/6700/worker.log"
    for token, reads in (
        (federated.token("alice"), True),
        (federated.token("dave", "auditors"), True),
        (federated.token("dave", "others"), False),
    ):
        status, _ = await federated.site.ask(path, token, logs=True)
        assert (status == 200) == reads
