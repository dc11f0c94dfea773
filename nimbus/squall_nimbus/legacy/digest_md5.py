"""DIGEST-MD5 (RFC 2831), the server's side, as Storm's Java clients speak it: quality of protection
`auth`, algorithm `md5-sess`, no second use of a nonce.

    server   realm="prod",nonce="...",qop="auth",charset=utf-8,algorithm=md5-sess
    client   charset=utf-8,username="alice",realm="prod",nonce="...",nc=00000001,cnonce="...",
             digest-uri="storm_thrift_server/nimbus1",maxbuf=65536,response=...,qop=auth
    server   rspauth=...

The response proves that the client knows the password, `rspauth` that the server does. Nothing here
reads a clock, a file or random numbers.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Collection
from dataclasses import dataclass
from typing import Final

MECHANISM: Final = "DIGEST-MD5"
SERVICE: Final = "storm_thrift_server"  # DigestSaslTransportPlugin has it on both sides
RESPONSE_BYTES_MAX: Final = 4096  # section 2.1.2
_FIRST_USE = b"00000001"
_PAIR = re.compile(
    rb"[ \t\r\n]*([A-Za-z0-9!#$%&\'*+.^_`|~-]+)[ \t\r\n]*=[ \t\r\n]*"
    rb'(?:"((?:[^"\\]|\\.)*)"|([^\s",=]+))[ \t\r\n]*(?:,|$)',
    re.DOTALL,
)
_ESCAPE = re.compile(rb"\\(.)", re.DOTALL)
_HEX = re.compile(rb"[0-9a-f]{32}")
_KNOWN = frozenset(
    {
        "username", "realm", "nonce", "cnonce", "nc", "qop", "digest-uri", "response",
        "maxbuf", "charset", "cipher", "authzid",
    }
)  # fmt: skip


class DigestError(ValueError):
    """A response is not one to the challenge. The text is for the log."""


@dataclass(frozen=True, slots=True)
class DigestChallenge:
    """What a server asks one client. A nonce is for one connection."""

    realm: str
    nonce: str

    def serialize(self) -> bytes:
        """The digest-challenge.

        >>> DigestChallenge("prod", "abc").serialize()
        b'realm="prod",nonce="abc",qop="auth",charset=utf-8,algorithm=md5-sess'
        """
        text = f'realm="{self.realm}",nonce="{self.nonce}"'
        return f'{text},qop="auth",charset=utf-8,algorithm=md5-sess'.encode()


@dataclass(frozen=True, slots=True, repr=False)
class DigestResponse:
    """What a client has answered, in the bytes that are hashed."""

    username: str
    user_bytes: bytes
    realm_bytes: bytes
    nonce: bytes
    cnonce: bytes
    nc: bytes
    qop: bytes
    uri: bytes
    response: bytes
    authzid: bytes | None
    utf8: bool


def parse_response(data: bytes) -> DigestResponse:
    """Read a digest-response (section 2.1.2). Raises DigestError, which quotes no value."""
    if len(data) > RESPONSE_BYTES_MAX:
        raise DigestError(f"a response has at most {RESPONSE_BYTES_MAX} bytes")
    found = _directives(data)
    if "cipher" in found:
        raise DigestError("encryption is not offered")
    charset = found.get("charset")
    if charset not in (None, b"utf-8"):
        raise DigestError("the charset is not utf-8")
    if not found.get("maxbuf", b"65536").isdigit():
        raise DigestError("maxbuf is not a number")
    for name in ("username", "nonce", "cnonce", "nc", "digest-uri", "response"):
        if not found.get(name):
            raise DigestError(f"{name} is missing")
    if _HEX.fullmatch(found["response"]) is None:
        raise DigestError("the response is not 32 hexadecimal digits")
    try:
        username = found["username"].decode("utf-8" if charset else "latin-1")
    except UnicodeDecodeError:
        raise DigestError("the username is not UTF-8") from None
    return DigestResponse(
        username,
        found["username"],
        found.get("realm", b""),
        found["nonce"],
        found["cnonce"],
        found["nc"],
        found.get("qop", b"auth"),
        found["digest-uri"],
        found["response"],
        found.get("authzid"),
        charset is not None,
    )


def _directives(data: bytes) -> dict[str, bytes]:
    found: dict[str, bytes] = {}
    at = 0
    while at < len(data):
        pair = _PAIR.match(data, at)
        if pair is None:
            raise DigestError("the response is not a list of NAME=VALUE")
        at = pair.end()
        name = pair[1].decode("ascii").lower()
        if name in found:
            raise DigestError(f"{name} is there twice")
        if name in _KNOWN:  # others are ignored (section 2.1.2, auth-param)
            found[name] = pair[3] if pair[2] is None else _ESCAPE.sub(rb"\1", pair[2])
    return found


def check_response(
    response: DigestResponse, challenge: DigestChallenge, hosts: Collection[str]
) -> None:
    """Check all but the proof: that it answers this challenge, for this server, which clients reach
    as one of `hosts` (in lower case). Raises DigestError."""
    if not hmac.compare_digest(response.nonce, challenge.nonce.encode()):
        raise DigestError("the nonce is not this connection's: an old response was sent again")
    if response.nc != _FIRST_USE:
        raise DigestError("a nonce is used once")
    if response.realm_bytes != challenge.realm.encode():
        raise DigestError("the realm is not this cluster's")
    if response.qop != b"auth":
        raise DigestError("the quality of protection is not auth")
    service, _, host = response.uri.decode("latin-1").partition("/")
    if service.lower() != SERVICE or host.lower().strip("[]") not in hosts:
        raise DigestError("it is for another server: the certificate of this one has no such name")


def proof(response: DigestResponse, password: str, *, of_server: bool = False) -> bytes:
    """What a client that knows the password has in `response` (section 2.1.2.1), or what such a
    server has in `rspauth` (section 2.1.3)."""
    user, realm = response.user_bytes, response.realm_bytes
    if response.utf8:  # text of ISO 8859-1 is hashed as such (section 2.1.2.1)
        user, realm = _narrow(user.decode()), _narrow(realm.decode("utf-8", "replace"))
        secret = _narrow(password)
    else:
        secret = password.encode("latin-1", "replace")
    a1 = _md5(b":".join((user, realm, secret))) + b":" + response.nonce + b":" + response.cnonce
    if response.authzid is not None:
        a1 += b":" + response.authzid
    a2 = (b":" if of_server else b"AUTHENTICATE:") + response.uri
    parts = (
        _hex(a1), response.nonce, response.nc, response.cnonce, response.qop, _hex(a2),
    )  # fmt: skip
    return _hex(b":".join(parts))


def _narrow(text: str) -> bytes:
    try:
        return text.encode("latin-1")
    except UnicodeEncodeError:
        return text.encode()


def _md5(data: bytes) -> bytes:
    return hashlib.md5(data, usedforsecurity=False).digest()


def _hex(data: bytes) -> bytes:
    return _md5(data).hex().encode()
