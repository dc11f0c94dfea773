"""SASL's initial responses, in bytes and both ways."""

from __future__ import annotations

import pytest

from squall_common.authentication.mechanisms import (
    ResponseError,
    bearer,
    external,
    parse_bearer,
    parse_external,
)


@pytest.mark.parametrize("act_for", [None, "alice", "a,b=c"])
def test_a_bearer_token_is_read_back(act_for: str | None) -> None:
    assert parse_bearer(bearer("abc.def.ghi", act_for)) == ("abc.def.ghi", act_for)


def test_the_bytes_are_those_of_rfc_7628() -> None:
    assert bearer("vF9dft4q", "user@example.com") == (
        b"n,a=user@example.com,\x01auth=Bearer vF9dft4q\x01\x01"
    )


def test_external_names_whom_to_act_for() -> None:
    assert parse_external(external(None)) is None
    assert parse_external(external("alice")) == "alice"


@pytest.mark.parametrize(
    "response",
    [
        b"",
        b"n,,",
        b"n,,\x01auth=Bearer SECRET",
        b"n,,\x01auth=Bearer SECRET\x01",
        b"y,,\x01auth=Bearer SECRET\x01\x01",
        b"p=tls-unique,,\x01auth=Bearer SECRET\x01\x01",
        b"n,alice,\x01auth=Bearer SECRET\x01\x01",
        b"n,,x\x01auth=Bearer SECRET\x01\x01",
        b"n,,\x01auth=Basic SECRET\x01\x01",
        b"n,,\x01auth=Bearer SECRET\x01auth=Bearer SECRET\x01\x01",
        b"n,,\x01auth=Bearer \x01\x01",
        b"\xff\xfe",
    ],
)
def test_other_responses_are_refused_without_a_word_of_them(response: bytes) -> None:
    with pytest.raises(ResponseError) as refused:
        parse_bearer(response)
    assert "SECRET" not in str(refused.value)
