"""What a site may set of the legacy port."""

from __future__ import annotations

import os
import re
import time
from pathlib import Path
from typing import Any

import pytest
from tests.support.legacy import DIGEST, KERBEROS, jaas_file
from tests.support.secured_nimbus import Certificates

from squall_common.authentication.files import Trusted
from squall_common.authentication.groups import Groups, fixed_groups
from squall_common.config.load import load_conf
from squall_common.config.options.typed import NimbusOptions
from squall_common.errors import ConfigError
from squall_common.security.acl import ClusterAcl
from squall_common.security.audit import AuditLog
from squall_common.security.identity import Role
from squall_nimbus.legacy.authenticator import LegacyAuthenticator
from squall_nimbus.legacy.build import legacy_authenticator
from squall_thrift.serving.authentication import Challenge, RefusedError


def built(
    folder: Path, conf: dict[str, Any], trusted: Trusted | None = None
) -> LegacyAuthenticator | None:
    if trusted is None:
        trusted = Certificates(folder / "certificates").create().trusted(Role.NIMBUS, "n1")
    audit = AuditLog(lambda line: None, lambda: 0.0)
    options = NimbusOptions.read(conf)
    groups = Groups(fixed_groups({}))
    return legacy_authenticator(options, trusted, ClusterAcl(), groups, audit, time.time)


def site(folder: Path) -> dict[str, Any]:
    users = jaas_file(folder / "jaas", "StormServer", {"user_alice": "a"})
    return {
        "nimbus.legacy.thrift.port": 6630,
        "storm.thrift.transport": DIGEST,
        "java.security.auth.login.config": users,
    }


def test_there_is_no_such_port_unless_it_is_named(tmp_path: Path) -> None:
    assert built(tmp_path, {}) is None


def test_three_keys_make_the_port(tmp_path: Path) -> None:
    found = built(tmp_path, site(tmp_path))
    assert found is not None
    assert found.context is None


async def test_clients_reach_nimbus_by_the_names_of_its_newest_certificate(tmp_path: Path) -> None:
    """A certificate with other hosts is taken up without a restart."""
    certificates = Certificates(tmp_path / "certificates").create()
    trusted = certificates.trusted(Role.NIMBUS, "n1")
    found = built(tmp_path, site(tmp_path), trusted)
    assert found is not None

    async def refusal(host: str) -> str:
        """Why a response for a host is refused: for its host, or only for its password."""
        dialogue = found.begin("DIGEST-MD5", None, "127.0.0.1:1")
        asked = await dialogue.step(b"")
        assert isinstance(asked, Challenge)
        values = dict(re.findall(r'([a-z-]+)="([^"]*)', asked.data.decode()))
        text = (
            f'username="alice",realm="{values["realm"]}",nonce="{values["nonce"]}",cnonce="c",'
            f'nc=00000001,qop=auth,digest-uri="storm_thrift_server/{host}",response={"0" * 32}'
        )
        with pytest.raises(RefusedError) as error:
            await dialogue.step(text.encode())
        return str(error.value)

    assert "it is for another server" in await refusal("new.example.org")
    assert "password" in await refusal("localhost")
    certificates.issue(Role.NIMBUS, "n1", hosts=["New.example.org"])
    assert trusted.refresh() is None
    assert "password" in await refusal("new.example.org")
    assert "it is for another server" in await refusal("localhost")


@pytest.mark.parametrize(
    ("key", "why"),
    [
        ("nimbus.legacy.thrift.port", "nimbus.legacy.thrift.port is not set"),
        ("storm.thrift.transport", "names no mechanism"),
        ("java.security.auth.login.config", "java.security.auth.login.config is not set"),
    ],
)
def test_two_of_the_three_keys_are_refused(tmp_path: Path, key: str, why: str) -> None:
    conf = site(tmp_path)
    del conf[key]
    with pytest.raises(ConfigError, match=why):
        built(tmp_path, conf)


def test_a_file_of_users_without_a_port_is_refused(tmp_path: Path) -> None:
    path = site(tmp_path)["java.security.auth.login.config"]
    with pytest.raises(ConfigError, match=r"nimbus\.legacy\.thrift\.port is not"):
        built(tmp_path, {"java.security.auth.login.config": path})


def test_the_port_is_not_that_of_everyone_else(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="are both 6630"):
        built(tmp_path, {**site(tmp_path), "nimbus.thrift.port": 6630})


@pytest.mark.parametrize(
    "plugin", ["tls.TlsTransportPlugin", "plain.PlainSaslTransportPlugin", "kerberos.Other"]
)
def test_other_transports_of_storms_are_refused_by_name(plugin: str) -> None:
    transport = f"org.apache.storm.security.auth.{plugin}"
    with pytest.raises(ConfigError, match=r"storm\.thrift\.transport"):
        load_conf(
            overrides={"storm.security.ca": "/ca.pem", "storm.thrift.transport": transport}, env={}
        )


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"principal": "nimbus/host@REALM"}, "needs keyTab and principal"),
        ({"keyTab": "/none"}, "needs keyTab and principal"),
        ({"keyTab": "/none", "principal": "nimbus@REALM"}, "is not SERVICE/HOST@REALM"),
        ({"keyTab": "/none", "principal": "nimbus/host"}, "is not SERVICE/HOST@REALM"),
        ({"keyTab": "/none", "principal": "nimbus/host@REALM"}, "keyTab: cannot read /none"),
    ],
)
def test_kerberos_needs_the_key_of_nimbus(
    tmp_path: Path, options: dict[str, str], why: str
) -> None:
    module = "com.sun.security.auth.module.Krb5LoginModule"
    path = jaas_file(tmp_path / "kerberos", "StormServer", options, module=module)
    os.chmod(path, 0o644)  # it has no secret
    conf = {
        **site(tmp_path),
        "storm.thrift.transport": KERBEROS,
        "java.security.auth.login.config": path,
    }
    with pytest.raises(ConfigError, match=why):
        built(tmp_path, conf)


def test_kerberos_needs_its_own_module(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="has 0 modules Krb5LoginModule"):
        built(tmp_path, {**site(tmp_path), "storm.thrift.transport": KERBEROS})


def test_names_of_kerberos_are_for_kerberos(tmp_path: Path) -> None:
    short = "org.apache.storm.security.auth.KerberosPrincipalToLocal"
    with pytest.raises(ConfigError, match=r"storm\.principal\.tolocal is .*KerberosPrincipal"):
        built(tmp_path, {**site(tmp_path), "storm.principal.tolocal": short})
