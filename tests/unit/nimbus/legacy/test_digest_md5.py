"""RFC 2831: its own examples, and what is not a response."""

from __future__ import annotations

import pytest

from squall_nimbus.legacy.digest_md5 import (
    DigestChallenge,
    DigestError,
    check_response,
    parse_response,
    proof,
)

# Section 4, both examples: IMAP and ACAP, password "secret".
EXAMPLES = [
    (
        b'charset=utf-8,username="chris",realm="elwood.innosoft.com",nonce="OA6MG9tEQGm2hh",'
        b'nc=00000001,cnonce="OA6MHXh6VqTrRk",digest-uri="imap/elwood.innosoft.com",'
        b"response=d388dad90d4bbd760a152321f2143af7,qop=auth",
        b"ea40f60335c427b5527b84dbabcdfffd",
    ),
    (
        b'username="chris",realm="elwood.innosoft.com",nonce="OA9BSXrbuRhWay",nc=00000001,'
        b'cnonce="OA9BSuZWMSpW8m",digest-uri="acap/elwood.innosoft.com",'
        b"response=6084c6db3fede7352c551284490fd0fc,qop=auth",
        b"2f0b3d7c3c2e486600ef710726aa2eae",
    ),
]
CHALLENGE = DigestChallenge("prod", "N-1")
HOSTS = frozenset({"nimbus1", "::1"})
GOOD = {
    "charset": "utf-8",
    "username": '"alice"',
    "realm": '"prod"',
    "nonce": '"N-1"',
    "nc": "00000001",
    "cnonce": '"c"',
    "digest-uri": '"storm_thrift_server/Nimbus1"',
    "maxbuf": "65536",
    "response": "0" * 32,
    "qop": "auth",
}


def written(**changed: str | None) -> bytes:
    pairs = {**GOOD, **{key.replace("_", "-"): value for key, value in changed.items()}}
    return ",".join(f"{key}={value}" for key, value in pairs.items() if value is not None).encode()


@pytest.mark.parametrize(("response", "rspauth"), EXAMPLES)
def test_the_examples_of_the_rfc(response: bytes, rspauth: bytes) -> None:
    found = parse_response(response)
    assert proof(found, "secret") == found.response
    assert proof(found, "secret", of_server=True) == rspauth
    assert proof(found, "secreT") != found.response


def test_a_response_to_the_challenge_is_accepted() -> None:
    assert b'realm="prod",nonce="N-1",qop="auth"' in CHALLENGE.serialize()
    for uri in ("storm_thrift_server/Nimbus1", "storm_thrift_server/[::1]"):
        found = parse_response(written(digest_uri=f'"{uri}"'))
        check_response(found, CHALLENGE, HOSTS)
        assert found.username == "alice"
    assert parse_response(written(qop=None)).qop == b"auth"


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"nonce": '"N-0"'}, "an old response was sent again"),
        ({"nc": "00000002"}, "used once"),
        ({"realm": '"dev"'}, "realm"),
        ({"realm": None}, "realm"),
        ({"qop": "auth-int"}, "quality of protection"),
        ({"digest_uri": '"storm_thrift_server/elsewhere"'}, "for another server"),
        ({"digest_uri": '"storm_thrift_server/nimbus1/x"'}, "for another server"),
        ({"digest_uri": '"imap/nimbus1"'}, "for another server"),
        ({"digest_uri": '"storm_thrift_server"'}, "for another server"),
    ],
)
def test_a_response_to_something_else_is_refused(changed: dict[str, str | None], why: str) -> None:
    with pytest.raises(DigestError, match=why):
        check_response(parse_response(written(**changed)), CHALLENGE, HOSTS)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\x00",
        b"username",
        b'username="alice',
        written() + b",username=bob",
        written() + b",,,",
        written(username=None),
        written(username='""'),
        written(cnonce=None),
        written(response="0" * 31),
        written(response="A" * 32),
        written(charset="latin-1"),
        written(maxbuf="-1"),
        written(cipher="rc4"),
        written().replace(b"alice", b"\xff"),
        written(cnonce='"' + "c" * 5000 + '"'),
        b'a="' + b"\\" * 4000,
    ],
)
def test_what_is_not_a_response_is_refused(data: bytes) -> None:
    with pytest.raises(DigestError):
        parse_response(data)


def test_names_beyond_latin_1_are_hashed_as_they_are_sent() -> None:
    """Section 2.1.2.1: text that ISO 8859-1 has is hashed in it, other text in UTF-8."""
    latin = parse_response(written(username='"j\u00f6rg"'))
    assert latin.username == "j\u00f6rg"
    plain = parse_response(written(charset=None).replace(b"alice", "j\u00f6rg".encode("latin-1")))
    assert proof(latin, "\u00e4") == proof(plain, "\u00e4")
    assert proof(latin, "\u0416") != proof(latin, "?")
