"""Addresses of servers."""

from __future__ import annotations

import pytest

from squall_common.errors import InvalidTopologyError
from squall_connectors.base.address import parse_address, require_at_least, secret_of, with_secrets

PORTS = {"mqtt": 1883, "mqtts": 8883}


def test_a_url_has_its_parts_decoded_and_its_port_by_default() -> None:
    address = parse_address("X", "mqtts://a%40b:p%2Fw@broker/%2Fhost", PORTS)
    assert (address.scheme, address.host, address.port) == ("mqtts", "broker", 8883)
    assert (address.user, address.password, address.path) == ("a@b", "p/w", "/host")
    assert parse_address("X", "mqtt://[::1]:99", PORTS).port == 99


def test_its_text_has_no_secret() -> None:
    address = parse_address("X", "mqtt://me:secret@[::1]:99/v", PORTS)
    assert str(address) == "mqtt://[::1]:99"
    assert "secret" not in repr(address)


@pytest.mark.parametrize(
    "url", ["broker", "amqp://me:secret@host", "mqtt://me:secret@", "mqtt://h:secret", ""]
)
def test_what_is_no_address_is_refused_without_its_secret(url: str) -> None:
    with pytest.raises(InvalidTopologyError, match=r"X: url .*expected mqtt://") as error:
        parse_address("X", url, PORTS)
    assert "secret" not in str(error.value)


def test_a_secret_must_be_set(monkeypatch: pytest.MonkeyPatch) -> None:
    assert secret_of("X", None) is None
    with pytest.raises(InvalidTopologyError, match="variable SOME_SECRET is not set"):
        secret_of("X", "SOME_SECRET")
    monkeypatch.setenv("SOME_SECRET", "x")
    assert secret_of("X", "SOME_SECRET") == "x"


def test_a_number_below_the_least_is_refused_by_name() -> None:
    require_at_least("X", 1, one=1, two=2)
    with pytest.raises(InvalidTopologyError, match="X: two is 0; at least 1"):
        require_at_least("X", 1, one=1, two=0)


def test_settings_get_the_secrets_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PASSWORD", "right")
    given = with_secrets("X", {"user": "app"}, {"password": "PASSWORD"})
    assert given == {"user": "app", "password": "right"}
    with pytest.raises(InvalidTopologyError, match="NOT_THERE is not set in the worker"):
        with_secrets("X", {}, {"password": "NOT_THERE"})
