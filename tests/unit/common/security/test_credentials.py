"""Credentials of topologies: what is stored, and what is refused."""

from __future__ import annotations

import json

import pytest

from squall_common.errors import SquallError
from squall_common.security.credentials import (
    BYTES_MAX,
    KEYS_MAX,
    TopologyCredentials,
    check_credentials,
)

ID = "words-1-17"
ONE = TopologyCredentials(ID, 3, {"user": "ann", "password": "hunter2"})


def test_they_are_read_as_they_were_written_and_no_two_writings_are_alike() -> None:
    first, second = ONE.to_bytes(), ONE.to_bytes()
    assert TopologyCredentials.from_bytes(first, ID) == ONE
    assert first != second, "a hash of them says nothing about a value that can be guessed"


def test_a_value_is_in_no_repr() -> None:
    assert "hunter2" not in repr(ONE)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"[]",
        b"[" * 10_000,
        ONE.to_bytes().replace(b"words-1-17", b"words-1-18"),
        json.dumps({"topology": ID, "number": 0, "credentials": {}}).encode(),
        json.dumps({"topology": ID, "number": True, "credentials": {}}).encode(),
        json.dumps({"topology": ID, "number": 1, "credentials": ["hunter2"]}).encode(),
        json.dumps({"topology": ID, "number": 1, "credentials": {"hunter2": 1}}).encode(),
    ],
)
def test_others_are_refused_without_quoting_them(data: bytes) -> None:
    with pytest.raises(ValueError, match="not credentials of words-1-17") as caught:
        TopologyCredentials.from_bytes(data, ID)
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    ("values", "why"),
    [
        ({"": "hunter2"}, "name of a credential"),
        ({"a\n": "hunter2"}, "name of a credential"),
        ({"a": 7}, "is not a text"),
        ({"a": "\ud800"}, "surrogate"),
        ({"a": "x" * BYTES_MAX}, "bytes"),
        ({str(n): "x" for n in range(KEYS_MAX + 1)}, "too many"),
    ],
)
def test_what_would_not_be_kept_is_refused_by_name(values: dict[str, str], why: str) -> None:
    with pytest.raises(SquallError, match=why) as caught:
        check_credentials(values)
    assert "hunter2" not in str(caught.value)
    check_credentials({"user": "ann", "empty": "", "umlaut": "ä"})
