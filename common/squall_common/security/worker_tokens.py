"""Tokens of workers: what a worker shows to Nimbus and to DRPC servers.

Nimbus issues one for a slot that it has assigned itself, to the supervisor of that node. It says
which topology runs there, and whose it is; a worker has no certificate. It lives for a day, its
supervisor gets the next one after a third of that, and it ends before its time when its slot does:
whoever verifies it asks for that (`authentication.authenticator`). It is a signed text like a
user's token, of a type of its own: where one counts, the other does not.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from cryptography import x509

from squall_common.security import jws
from squall_common.security.identity import Channel, IdentityError, Principal, Role, check_name
from squall_common.security.jws import SignatureError
from squall_common.security.signing import LEEWAY_SECS, SigningKey, Trust, Use
from squall_common.security.tokens import TokenError

LIFE_SECS = 24 * 3600
RENEW_SECS = LIFE_SECS / 3

_TYP = "squall-worker-token"
_PORT_MAX = 65_535


@dataclass(frozen=True, slots=True)
class WorkerToken:
    """What a token of a worker says. `node` is its supervisor's id; times are seconds since the
    epoch."""

    topology_id: str
    owner: str
    node: str
    port: int
    issued: int
    expires: int
    # The CA that stands behind it, of one that was verified here.
    issuer: x509.Certificate | None = field(default=None, compare=False, repr=False)


def make_worker_token(
    topology_id: str, owner: str, node: str, port: int, now: float
) -> WorkerToken:
    """A new one. Raises TokenError for an owner that is not a user, as that of a topology from
    before the cluster was secured."""
    try:
        check_name(owner)
    except IdentityError as error:
        raise TokenError(f"the owner of {topology_id}: {error}") from error
    return WorkerToken(topology_id, owner, node, port, int(now), int(now) + LIFE_SECS)


def sign_worker_token(token: WorkerToken, key: SigningKey) -> str:
    """The text that the worker shows. Raises SignatureError if the key may not sign any more."""
    payload = {
        "aud": f"squall:{key.cluster}",
        "cluster": key.cluster,
        "sub": token.topology_id,
        "owner": token.owner,
        "node": token.node,
        "port": token.port,
        "iat": token.issued,
        "exp": token.expires,
    }
    return key.sign(payload, _TYP, token.issued)


def is_worker_token(text: str) -> bool:
    """Whether a text says that it is a worker's token. Nothing in it is to be believed yet."""
    try:
        return jws.parse(text).header.get("typ") == _TYP
    except SignatureError:
        return False


def slot_named(text: str) -> tuple[int, str] | None:
    """The port and the topology that a text names, for who trusts its sender: its signature is not
    looked at. None for what is not a worker's token."""
    try:
        parsed = jws.parse(text)
    except SignatureError:
        return None
    port, topology_id = parsed.payload.get("port"), parsed.payload.get("sub")
    if parsed.header.get("typ") != _TYP or not isinstance(topology_id, str):
        return None
    return (port, topology_id) if isinstance(port, int) else None


def verify_worker_token(text: str, trust: Trust, now: float) -> WorkerToken:
    """What a token says, if its signature and its time are right. Raises TokenError."""
    try:
        signed = trust.verify(text, _TYP, Use.TOKEN)
        token = replace(_read(signed.payload, trust.cluster), issuer=signed.issuer)
    except (SignatureError, IdentityError) as error:
        raise TokenError(f"worker token: {error}") from None
    if token.issued > now + LEEWAY_SECS:
        raise TokenError(f"the token of a worker of {token.topology_id} is not valid yet")
    if token.expires <= now - LEEWAY_SECS:
        raise TokenError(f"the token of a worker of {token.topology_id} has expired")
    return token


def worker_name(token: WorkerToken) -> str:
    """The slot of a token, with its topology: ID/NODE:PORT."""
    return f"{token.topology_id}/{token.node}:{token.port}"


def parse_worker_name(name: str) -> tuple[str, str, int] | None:
    """The inverse: topology, node and port; None for another text.

    >>> parse_worker_name("wordcount-1-17/node-7:6700")
    ('wordcount-1-17', 'node-7', 6700)
    """
    topology_id, _, slot = name.partition("/")
    node, _, port = slot.rpartition(":")
    if not topology_id or not node or not (port.isascii() and port.isdigit() and len(port) <= 5):
        return None
    return topology_id, node, int(port)


def worker_principal(token: WorkerToken, host: str = "") -> Principal:
    """The caller that a verified token names."""
    return Principal(
        Role.WORKER,
        worker_name(token),
        Channel.TOKEN,
        host=host,
        expires=token.expires + LEEWAY_SECS,
        topology_id=token.topology_id,
        node=token.node,
        port=token.port,
        owner=token.owner,
    )


def _read(payload: Mapping[str, Any], cluster: str) -> WorkerToken:
    if payload.get("aud") != f"squall:{cluster}":
        raise SignatureError(f"its audience is {payload.get('aud')!r}")
    texts = tuple(payload.get(key) for key in ("sub", "owner", "node"))
    numbers = tuple(payload.get(key) for key in ("port", "iat", "exp"))
    if not all(isinstance(one, str) and one for one in texts):
        raise SignatureError("it lacks a topology, an owner or a node")
    if not all(type(one) is int for one in numbers):
        raise SignatureError("it lacks a port or a time")
    token = WorkerToken(*texts, *numbers)  # type: ignore[arg-type]
    check_name(token.owner)
    if not 0 < token.port <= _PORT_MAX or not 0 < token.expires - token.issued <= LIFE_SECS:
        raise SignatureError("its port or its lifetime is not that of a worker's token")
    return token
