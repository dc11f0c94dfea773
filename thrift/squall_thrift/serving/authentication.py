"""Who the peer of a connection is: TLS, and SASL inside it.

A server with an `Authenticator` speaks TLS on its port. A peer first says by SASL how it proves who
it is (`EXTERNAL`: by the certificate that it showed; `OAUTHBEARER`: by a token), and calls after
that. No call of it is read before that: until then it has `AUTHENTICATION_SECS` in all and
`protocol.sasl.PAYLOAD_BYTES_MAX` a message. Why it was refused stands in the log, and not in what
it is answered. (A port for Storm's Java clients has SASL without TLS, and mechanisms of several
steps: an authenticator without a `context`.)
"""

from __future__ import annotations

import asyncio
import ssl
from dataclasses import dataclass
from typing import Final, Protocol

from squall_thrift.protocol import sasl
from squall_thrift.protocol.sasl import SaslError, Status
from squall_thrift.protocol.sasl_exchange import Event, Exchange

AUTHENTICATION_SECS: Final = 10.0


class RefusedError(Exception):
    """A peer could not prove who it is. The text is for the log."""


class Identity(Protocol):
    """Who a peer is."""

    @property
    def principal(self) -> str:
        """Its name, for owners and for logs."""
        ...


@dataclass(frozen=True, slots=True)
class Challenge:
    """What a mechanism asks the peer next."""

    data: bytes


@dataclass(frozen=True, slots=True)
class Accepted:
    """The peer has proved who it is. `data` is the mechanism's last word to it."""

    identity: Identity
    data: bytes = b""


class Mechanism(Protocol):
    """A mechanism in the middle of proving one peer."""

    async def step(self, response: bytes) -> Challenge | Accepted:
        """Take the peer's next response. Raises RefusedError, after which there is no step."""
        ...


class Authenticator(Protocol):
    """Knows the peers of a server."""

    @property
    def context(self) -> ssl.SSLContext | None:
        """What the server's side of TLS goes by; None: the port speaks no TLS."""
        ...

    def begin(self, mechanism: str, certificate: bytes | None, peer: str) -> Mechanism:
        """Begin to prove a peer by the mechanism that it has named. `certificate` is the one that
        it showed (DER), which TLS has verified. Raises RefusedError."""
        ...

    def refused(self, peer: str, reason: str) -> None:
        """Note that a peer was refused."""
        ...


async def prove_server(
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    authenticator: Authenticator,
    peer: str,
) -> Identity:
    """The server's side: learn who the peer is, and tell it that it is accepted. Raises SaslError,
    OSError, IncompleteReadError."""
    exchange = Exchange()
    status, name = await sasl.read_message(reader, sasl.MECHANISM_BYTES_MAX)
    exchange.received(status)
    tls = writer.get_extra_info("ssl_object")
    certificate = None if tls is None else tls.getpeercert(binary_form=True)
    mechanism: Mechanism | None = None
    while True:
        status, response = await sasl.read_message(reader)
        exchange.received(status)
        try:
            if mechanism is None:
                mechanism = authenticator.begin(name.decode("ascii", "replace"), certificate, peer)
            found = await mechanism.step(response)
        except RefusedError as error:
            await _answer(writer, exchange.step(Event.REFUSED), b"refused")
            raise SaslError(str(error)) from error
        if isinstance(found, Accepted):
            await _answer(writer, exchange.step(Event.ACCEPTED), found.data)
            return found.identity
        await _answer(writer, exchange.step(Event.CHALLENGED), found.data)


async def _answer(writer: asyncio.StreamWriter, status: Status | None, data: bytes) -> None:
    assert status is not None  # what the mechanism decides is always answered
    writer.write(sasl.serialize(status, data))
    await writer.drain()


class Credentials(Protocol):
    """How a client proves who it is, and knows the server."""

    @property
    def context(self) -> ssl.SSLContext:
        """What the client's side of TLS goes by. It verifies the server's name."""
        ...

    def check_server(self, certificate: bytes) -> None:
        """Look at the server's certificate (DER), which TLS has verified. Raises RefusedError if it
        is not that of the daemon that is called."""
        ...

    def initial(self) -> tuple[str, bytes]:
        """The mechanism, and its initial response. Raises RefusedError if there is none."""
        ...


async def prove_client(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, credentials: Credentials
) -> None:
    """The client's side. Raises RefusedError, SaslError, OSError, IncompleteReadError."""
    tls = writer.get_extra_info("ssl_object")
    certificate = None if tls is None else tls.getpeercert(binary_form=True)
    if certificate is None:
        raise RefusedError("the server showed no certificate")
    credentials.check_server(certificate)
    mechanism, response = credentials.initial()
    writer.write(
        sasl.serialize(Status.START, mechanism.encode()) + sasl.serialize(Status.OK, response)
    )
    await writer.drain()
    status, _ = await sasl.read_message(reader)
    if status is not Status.COMPLETE:
        raise RefusedError("the server refused the certificate or the token: its log says why")
