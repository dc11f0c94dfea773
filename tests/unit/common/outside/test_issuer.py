"""What can be an issuer, and the documents below it."""

from __future__ import annotations

import pytest

from squall_common.errors import ConfigError
from squall_common.outside.issuer import (
    check_issuer,
    discovery_document,
    discovery_path,
    host_of,
    keys_path,
)


@pytest.mark.parametrize(
    "issuer",
    [
        "http://id.example.org",
        "id.example.org",
        "https://",
        "https:///prod",
        "https://id.example.org/",
        "https://id.example.org/prod/",
        "https://id.example.org?a=b",
        "https://id.example.org#a",
        "https://alice@id.example.org",
        "https://id.example.org:0",
        "https://id.example.org:99999",
        "https://id.example.org/a//b",
        "https://id.example.org/../b",
        "https://id.example.org/{id}",
        "https://id.example.org/a b",
        "https://id.example.org/ä",
        "https://id.example.org/" + "a" * 1_000,
        "https://[::1",
    ],
)
def test_only_a_plain_https_url_is_an_issuer(issuer: str) -> None:
    with pytest.raises(ConfigError, match=r"storm\.identity\.issuer"):
        check_issuer(issuer)


@pytest.mark.parametrize("issuer", ["https://id.example.org", "https://[::1]:8443/prod/a"])
def test_the_documents_lie_below_the_issuer(issuer: str) -> None:
    assert check_issuer(issuer) == issuer
    where = f"https://{'[::1]:8443' if host_of(issuer) == '::1' else 'id.example.org'}"
    assert f"{where}{discovery_path(issuer)}" == f"{issuer}/.well-known/openid-configuration"
    document = discovery_document(issuer)
    assert document["issuer"] == issuer
    assert document["jwks_uri"] == f"{where}{keys_path(issuer)}"
