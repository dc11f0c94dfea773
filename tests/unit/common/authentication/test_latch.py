"""A daemon of a secured cluster starts with its own certificate, or not at all."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.support.secured_nimbus import Certificates

from squall_common.authentication.latch import LATCH, require_role
from squall_common.config.load import default_conf
from squall_common.config.options.typed import NimbusOptions
from squall_common.errors import ConfigError
from squall_common.security.identity import Role


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("certificates")).create()


def options(conf: dict[str, Any]) -> NimbusOptions:
    return NimbusOptions.read({**default_conf(), **conf})


def test_an_open_cluster_needs_nothing(tmp_path: Path) -> None:
    assert require_role(options({}), Role.NIMBUS, str(tmp_path)) is None
    assert not (tmp_path / LATCH).exists()


def test_a_daemon_that_was_secured_does_not_start_open(
    tmp_path: Path, certificates: Certificates
) -> None:
    conf = certificates.conf(Role.NIMBUS, "n1")
    for _ in range(2):
        trusted = require_role(options(conf), Role.NIMBUS, str(tmp_path))
        assert trusted is not None
        assert trusted.cluster == "test"
    with pytest.raises(ConfigError, match="belongs to the secured cluster 'test'"):
        require_role(options({}), Role.NIMBUS, str(tmp_path))
    (tmp_path / LATCH).write_text("{")
    with pytest.raises(ConfigError, match="cannot be read"):
        require_role(options({}), Role.NIMBUS, str(tmp_path))


def test_a_daemon_does_not_move_to_another_cluster(
    tmp_path: Path, certificates: Certificates
) -> None:
    other = Certificates(tmp_path / "certificates", "other").create()
    require_role(options(certificates.conf(Role.NIMBUS, "n1")), Role.NIMBUS, str(tmp_path))
    with pytest.raises(ConfigError, match="that of 'other'"):
        require_role(options(other.conf(Role.NIMBUS, "n1")), Role.NIMBUS, str(tmp_path))


def test_a_certificate_of_another_role_or_ca_is_refused(
    tmp_path: Path, certificates: Certificates
) -> None:
    user = certificates.conf(Role.USER, "alice")
    foreign = Certificates(tmp_path / "certificates").create().conf(Role.NIMBUS, "n1")
    mine = certificates.conf(Role.NIMBUS, "n1")
    mixed = {**foreign, "storm.security.ca": mine["storm.security.ca"]}
    keys = {**mine, "storm.security.key": user["storm.security.key"]}
    alone = {"storm.security.certificate": mine["storm.security.certificate"]}
    for conf, reason in (
        (user, "must be that of a nimbus; user:alice"),
        ({"storm.security.ca": mine["storm.security.ca"]}, "none is set"),
        (mixed, "CA has not issued"),
        (keys, "is not the key of"),
        (alone, "storm.security.ca is not"),
        ({**mine, "storm.security.ca": str(tmp_path / "none")}, "cannot read"),
        ({**mine, "storm.security.ca": mine["storm.security.certificate"]}, "not the certificate"),
    ):
        with pytest.raises(ConfigError, match=reason):
            require_role(options(conf), Role.NIMBUS, str(tmp_path / "daemon"))
    assert not (tmp_path / "daemon").exists()


def test_a_key_that_others_may_read_is_refused(tmp_path: Path, certificates: Certificates) -> None:
    conf = certificates.conf(Role.NIMBUS, "n2")
    Path(conf["storm.security.key"]).chmod(0o640)
    with pytest.raises(ConfigError, match="may be read by others"):
        require_role(options(conf), Role.NIMBUS, str(tmp_path))
