"""Foreign parties of a real cluster. A bolt logs in to one that knows nothing of the cluster but
its issuer's URL: authlib verifies the token through discovery and the keys. And users of an
identity provider use the cluster."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import ssl
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from authlib.integrations.flask_client import OAuth
from flask import Flask
from joserfc.errors import JoseError
from tests.integration.test_credentials import in_processes
from tests.integration.test_curve import files_with, znode_values
from tests.support.devcluster import ROOT, DevCluster, wait_for
from tests.support.foreign_party import Party, PublicProxy
from tests.support.identity_provider import AUDIENCE as PROVIDER_AUDIENCE
from tests.support.identity_provider import ProviderKeys, signed

from squall_common.authentication.credentials import credentials_of
from squall_common.config.load import default_conf
from squall_common.config.options.typed import ClientOptions
from squall_common.security.identity import Role
from squall_common.security.jws import parse
from squall_thrift import storm
from squall_thrift.client import ThriftClient

pytestmark = [pytest.mark.integration, pytest.mark.timeout(400)]

TOPOLOGY = ROOT / "tests" / "topologies" / "outside"
AUDIENCE, OTHER = "https://vault.example.org", "https://other.example.org"


class Site:
    """A cluster with an issuer, the proxy in front of it, and a party that topologies log in to."""

    def __init__(self, cluster: DevCluster, proxy: PublicProxy, party: Party) -> None:
        self.cluster = cluster
        self.proxy = proxy
        self.party = party
        self.issuer = f"{proxy.url}/prod"

    def verified(self, token: str, audience: str) -> dict[str, Any]:
        """What authlib says about a token, as the party that is this audience."""
        app = OAuth(Flask("party")).register(
            "squall",
            client_id=audience,
            server_metadata_url=f"{self.issuer}/.well-known/openid-configuration",
        )
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("REQUESTS_CA_BUNDLE", str(self.proxy.ca))
            # Nothing of a login by a browser: a token alone.
            shown = {"id_token": token, "access_token": "-"}
            found = app.parse_id_token(shown, nonce=None, leeway=0)
        return dict(found)

    def keys(self) -> Any:
        context = ssl.create_default_context(cafile=str(self.proxy.ca))
        url = f"{self.issuer}/.well-known/jwks.json"
        with urllib.request.urlopen(url, context=context, timeout=30) as answer:
            return json.load(answer)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    folder: Path = tmp_path_factory.mktemp("outside")
    running: list[DevCluster] = []

    def origin() -> tuple[str, ssl.SSLContext]:
        [cluster] = running
        ca = cluster.data_dir / "security" / "ca" / "ca.pem"
        port = cluster.state()["ui"]["port"]
        return f"https://127.0.0.1:{port}", ssl.create_default_context(cafile=str(ca))

    with Party() as party, PublicProxy(folder / "proxy", origin) as proxy:
        login = f"{proxy.url}/login"
        proxy.documents["/login/.well-known/openid-configuration"] = {
            "issuer": login,
            "jwks_uri": f"{login}/keys",
        }
        overrides = (
            f"storm.identity.issuer={proxy.url}/prod",
            f"storm.oidc.issuer={login}",
            f"storm.oidc.audience={PROVIDER_AUDIENCE}",
            f"storm.oidc.ca={proxy.ca}",
        )
        with DevCluster.start(folder / "c", secure=True, slots=2, overrides=overrides) as cluster:
            running.append(cluster)
            for name in ("mine", "other"):
                audience = AUDIENCE if name == "mine" else OTHER
                cluster.storm(
                    *("jar", TOPOLOGY, "outside_topology.py"),
                    *(name, f"{party.url}/{name}", audience),
                )
            yield Site(cluster, proxy, party)


def tokens(site: Site, audience: str) -> list[str]:
    """Those that components have shown for an audience, the oldest first."""
    shown = [one["token"] for one in site.party.got("token")]
    return [one for one in shown if parse(one).payload["aud"] == audience]


def _wait_for_both(site: Site) -> None:
    def probe() -> bool:
        return bool(tokens(site, AUDIENCE) and tokens(site, OTHER))

    wait_for("both to log in", probe, 120)


def test_a_bolt_logs_in_and_authlib_verifies_who_it_is(site: Site) -> None:
    shown = wait_for("a bolt to log in", lambda: tokens(site, AUDIENCE), 120)
    claims = site.verified(shown[0], AUDIENCE)
    state = json.loads(site.cluster.storm("list", "--json").stdout)
    [mine] = [one for one in state if one["name"] == "mine"]
    cluster = parse(shown[0]).payload["cluster"]
    assert claims["sub"] == f"{cluster}/{mine['owner']}/mine"
    assert (claims["iss"], claims["aud"]) == (site.issuer, AUDIENCE)
    assert claims["topology_id"] == mine["id"]
    refused = wait_for("what is not declared", lambda: site.party.got("refused"))
    assert "https://undeclared.example.org" in refused[0]["refused"]
    with pytest.raises(JoseError):  # for another party
        site.verified(shown[0], OTHER)
    head, body, signature = shown[0].split(".")
    changed = signature[:-8] + ("A" * 8 if signature[-8:] != "A" * 8 else "B" * 8)
    with pytest.raises(JoseError):
        site.verified(f"{head}.{body}.{changed}", AUDIENCE)


def test_a_worker_gets_none_of_another_topology_nor_does_anyone_else(site: Site) -> None:
    _wait_for_both(site)
    state = json.loads(site.cluster.storm("list", "--json").stdout)
    ids = {one["name"]: one["id"] for one in state}
    identity = wait_for("the token of a worker of mine", lambda: _identity(site, ids["mine"]))
    answers = asyncio.run(_ask(site, identity, ids))
    assert answers == {
        "mine": AUDIENCE,
        "mine, other audience": "ThriftApplicationError",
        "other": "NotAliveException",
        "administrator": "AuthorizationException",
    }


def _identity(site: Site, topology_id: str) -> str | None:
    """The token by which a worker of a topology proves its slot."""
    for path in files_with(site.cluster, b'{"token": "'):
        if path.name == "identity.json":
            token: str = json.loads(path.read_text())["token"]
            if parse(token).payload["sub"] == topology_id:
                return token
    return None


async def _ask(site: Site, identity: str, ids: dict[str, str]) -> dict[str, str]:
    conf = {**default_conf(), **yaml.safe_load(site.cluster.conf_file.read_text())}
    file = site.cluster.data_dir / "worker-token"
    file.touch(mode=0o600)
    file.write_text(identity)
    as_worker = ClientOptions.read({**conf, "storm.security.token.file": str(file)})
    nimbus, answers = site.cluster.state()["nimbus"], {}
    for who, options, asked in (
        ("mine", as_worker, (ids["mine"], AUDIENCE)),
        ("mine, other audience", as_worker, (ids["mine"], OTHER)),
        ("other", as_worker, (ids["other"], OTHER)),
        ("administrator", ClientOptions.read(conf), (ids["mine"], AUDIENCE)),
    ):
        own = credentials_of(options, Role.NIMBUS)
        async with ThriftClient(
            storm.Nimbus, nimbus["host"], nimbus["port"], credentials=own
        ) as client:
            try:
                token = await client.call("getIdentityToken", *asked)
                answers[who] = str(parse(token).payload["aud"])
            except Exception as error:
                answers[who] = type(error).__name__
    file.unlink()
    return answers


def test_a_token_is_nowhere_but_in_its_worker(site: Site) -> None:
    """Not on a disk, in a log, in ZooKeeper, nor in an environment or a command line."""
    shown = wait_for("a bolt to log in", lambda: tokens(site, AUDIENCE), 120)
    signature = shown[-1].rpartition(".")[2].encode()
    assert files_with(site.cluster, signature) == []
    assert not [value for value in znode_values(site.cluster) if signature in value]
    assert not in_processes(signature)
    assert signature not in site.cluster.messages().encode()
    keys = files_with(site.cluster, b'"private": "-----BEGIN')
    assert [(path.name, path.stat().st_mode & 0o777) for path in keys] == [
        ("outside-keys.json", 0o600)
    ]


def test_a_nimbus_that_dies_takes_no_token_back(site: Site) -> None:
    """The bolt goes on logging in, and the party goes on believing it, while Nimbus is away and
    after it."""
    # Nor does the other one start without a token while Nimbus is away.
    _wait_for_both(site)
    shown = tokens(site, AUDIENCE)
    keys = site.keys()
    assert len(keys["keys"]) == 1
    errors = len(site.party.got("error"))  # before it had one
    nimbus = site.cluster.state()["nimbus"]["pid"]
    os.kill(nimbus, signal.SIGKILL)
    before = len(tokens(site, AUDIENCE))
    wait_for("it to log in again", lambda: len(tokens(site, AUDIENCE)) > before + 5)
    assert site.verified(tokens(site, AUDIENCE)[-1], AUDIENCE)
    wait_for(
        "Nimbus to be back",
        lambda: site.cluster.storm("list", check=False).returncode == 0,
        120,
    )
    assert site.verified(shown[0], AUDIENCE)
    assert site.keys() == keys
    assert len(site.party.got("error")) == errors


def test_users_of_an_identity_provider_use_commands_and_pages(site: Site) -> None:
    """A new key of the provider's counts, one that is not its does not; and the topology of a user
    is that user's."""
    keys, now = ProviderKeys(), int(time.time())
    login = f"{site.proxy.url}/login"
    site.proxy.documents["/login/keys"] = keys.jwks()
    claims = {"iss": login, "aud": PROVIDER_AUDIENCE, "iat": now, "exp": now + 3_600}
    ann = _shown(site, "ann", signed({**claims, "sub": "ann"}, keys))
    bob = _shown(site, "bob", signed({**claims, "sub": "bob"}, keys))
    thief = _shown(site, "thief", signed({**claims, "sub": "ann"}, ProviderKeys()))
    url = f"{site.party.url}/anns"
    site.cluster.storm("jar", *ann, TOPOLOGY, "outside_topology.py", "anns", url, AUDIENCE)
    [listed] = json.loads(site.cluster.storm("list", "--json", *ann).stdout)
    assert (listed["name"], listed["owner"]) == ("anns", "ann")
    assert json.loads(site.cluster.storm("list", "--json", *bob).stdout) == []
    for options, command in ((bob, "kill"), (thief, "kill")):
        assert site.cluster.storm(command, "anns", *options, check=False).returncode == 1
    refused = site.cluster.storm("list", *thief, check=False)
    assert "refused the certificate or the token" in refused.stderr
    refused = site.cluster.storm("token", "create", *ann, check=False)
    assert "no token makes another" in refused.stderr
    token = Path(ann[1].partition("=")[2]).read_text()
    context = ssl.create_default_context(
        cafile=str(site.cluster.data_dir / "security" / "ca" / "ca.pem")
    )
    request = urllib.request.Request(
        f"https://127.0.0.1:{site.cluster.state()['ui']['port']}/api/v1/topology/summary",
        headers={"Authorization": f"Bearer {token}"},
    )
    with urllib.request.urlopen(request, context=context, timeout=60) as answer:
        assert [one["name"] for one in json.load(answer)["topologies"]] == ["anns"]
    site.cluster.storm("kill", "anns", "-w", "0", *ann)


def _shown(site: Site, name: str, token: str) -> list[str]:
    """Options of a command by which it shows a token, and no certificate."""
    file = site.cluster.data_dir / f"token-{name}"
    file.touch(mode=0o600)
    file.write_text(token)
    return ["-c", f"storm.security.token.file={file}"]
