"""Who the peer of a connection is: TLS, and SASL inside it.

A server with an `Authenticator` speaks TLS on its port. A peer first says by SASL how it proves who
it is (`EXTERNAL`: by the certificate that it showed; `OAUTHBEARER`: by a token), and calls after
that. No call of it is read before that: until then it has `AUTHENTICATION_SECS` in all and
`protocol.sasl.PAYLOAD_BYTES_MAX` a message. Why it was refused stands in the log, and not in what
it is answered.
"""

from __future__ import annotations

import asyncio
import ssl
from typing import Final, Protocol

from squall_thrift.protocol import sasl
from squall_thrift.protocol.sasl import SaslError, Status

AUTHENTICATION_SECS: Final = 10.0


class RefusedError(Exception):
    """A peer could not prove who it is. The text is for the log."""


class Identity(Protocol):
    """Who a peer is."""

    @property
    def principal(self) -> str:
        """Its name, for owners and for logs."""
        ...


class Authenticator(Protocol):
    """Knows the peers of a server."""

    @property
    def context(self) -> ssl.SSLContext:
        """What the server's side of TLS goes by."""
        ...

    async def accept(
        self, mechanism: str, response: bytes, certificate: bytes | None, peer: str
    ) -> Identity:
        """Return who the peer is. `certificate` is the one that it showed (DER), which TLS has
        verified; `response` is the mechanism's initial response. Raises RefusedError."""
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
    status, name = await sasl.read_message(reader, sasl.MECHANISM_BYTES_MAX)
    if status is not Status.START:
        raise SaslError(f"SASL begins with START, not with {status.name}")
    status, response = await sasl.read_message(reader)
    if status not in (Status.OK, Status.COMPLETE):
        raise SaslError(f"the peer gave up: {status.name}")
    tls = writer.get_extra_info("ssl_object")
    certificate = None if tls is None else tls.getpeercert(binary_form=True)
    try:
        identity = await authenticator.accept(
            name.decode("ascii", "replace"), response, certificate, peer
        )
    except RefusedError as error:
        writer.write(sasl.serialize(Status.BAD, b"refused"))
        await writer.drain()
        raise SaslError(str(error)) from error
    writer.write(sasl.serialize(Status.COMPLETE, b""))
    await writer.drain()
    return identity


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
