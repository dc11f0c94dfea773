"""What an outage was, for people: the error of a client, with the server's name and what to do.

Clients say what failed in their own words: "[Errno 111] Connect call failed", without a host, or
"wrong version number" for a server that does not speak TLS. `explained` adds what a reader of the
topology's errors needs. It knows causes by the classes of exceptions, and by words of messages,
since a client that is a library in C has no classes for them.
"""

from __future__ import annotations

import re
import socket
import ssl
from collections.abc import Iterator
from dataclasses import dataclass

from squall_common.errors import SquallError, describe

_SHOWN_CHARS = 200
_CHAIN_MAX = 10


class OutageError(SquallError):
    """A server that cannot be used now: which one, why, and in `hint` what to do about it."""


@dataclass(frozen=True, slots=True)
class _Cause:
    kinds: tuple[type[BaseException], ...]
    words: tuple[str, ...]  # in lower case
    hint: str


_NO_ANSWER = "No answer came in time: is the server overloaded, or does a firewall drop packets?"
#: The most specific first: a certificate that is refused also ends the connection.
_CAUSES = (
    _Cause(
        (),
        ("hostname mismatch", "ip address mismatch", "does not match host name"),
        "The server's certificate is for another name: use a host name that it contains.",
    ),
    _Cause(
        (ssl.SSLCertVerificationError,),
        ("certificate verify failed",),
        "No authority that is trusted here has signed the server's certificate: name the file of "
        "the right one (ca_file; Kafka: ssl.ca.location, PostgreSQL: sslrootcert).",
    ),
    _Cause(
        (),
        ("wrong version number", "wrong_version_number", "to ssl negotiation", "not support ssl"),
        "The server does not speak TLS on this port: use its port for TLS, or an address without. "
        "Or it is another service.",
    ),
    _Cause(
        (),
        (
            "access_refused",
            "answers 401",
            "answers 403",
            "authentication fail",
            "authentication required",
            "authorization violation",
            "bad user name or password",
            "no password supplied",
            "noauth",
            "not authorized",
            "not authorised",
            "wrongpass",
        ),
        "Check the user and the password, and the environment variable of the worker that has it.",
    ),
    _Cause(
        (),
        ("unsupported protocol", "unsupported version", "unsupported_version"),
        "Client and server have no version in common: docs/connectors.md lists those tested.",
    ),
    _Cause(
        (socket.gaierror,),
        ("could not translate host name", "failed to resolve", "name or service not known"),
        "The node of this worker does not find the host: check its name, and DNS there.",
    ),
    _Cause(
        (ConnectionRefusedError,),
        ("connection refused",),
        "Nothing accepts connections there: is the server running, and is the port right?",
    ),
    _Cause(
        (),
        ("bytes expected", "empty response from", "invalid response size", "protocol error"),
        "What answers there speaks another protocol: is it the port of another service, or one "
        "that expects TLS?",
    ),
    _Cause((), ("keep alive timeout",), _NO_ANSWER),  # not "connection is lost", in the same text
    _Cause(
        (ConnectionResetError, BrokenPipeError, EOFError),
        (
            "connection closed",
            "connection is lost",
            "connection reset",
            "server disconnected",
            "terminating connection",
            "unexpected eof",
        ),
        "The server ended the connection. If it always does, the port may be that of another "
        "service, or expect TLS.",
    ),
    _Cause(
        (TimeoutError,),
        ("timed out", "timeout"),
        _NO_ANSWER,
    ),
)


def shown_server(url: str) -> str:
    """A server's URL as errors may show it: without user, password, path and query. What a
    password ends with is the last @, whatever characters it has."""
    scheme, separator, rest = url.strip().partition("://")
    if not separator:
        scheme, rest = "", scheme
    host = re.split("[/?]", rest.rpartition("@")[2])[0]
    return f"{scheme}{separator}{host}"[:_SHOWN_CHARS]


def shown_servers(urls: str) -> str:
    """The same of several with commas between."""
    return ",".join(map(shown_server, urls.split(",")))[:_SHOWN_CHARS]


def explained(error: BaseException, server: str | None) -> BaseException:
    """The error with the server in its message and a hint, if there is something to add. It keeps
    the traceback. An error that was written for people stays as it is."""
    if isinstance(error, SquallError):
        return error
    text = describe(error)
    hint = _hint(error)
    named = server is None or server in text
    if hint is None and named:
        return error
    message = text if named else f"{server}: {text}"
    return OutageError(message, hint=hint).with_traceback(error.__traceback__)


def outage_line(error: BaseException, server: str | None) -> str:
    """The same as one line, for logs."""
    return describe(explained(error, server)).replace("\n", " ")


def _hint(error: BaseException) -> str | None:
    chain = list(_chain(error))
    texts = [str(one).lower() for one in chain]
    for cause in _CAUSES:
        if any(isinstance(one, cause.kinds) for one in chain) or any(
            word in text for word in cause.words for text in texts
        ):
            return cause.hint
    return None


def _chain(error: BaseException) -> Iterator[BaseException]:
    """The error and what led to it."""
    one: BaseException | None = error
    for _ in range(_CHAIN_MAX):  # users' code may have made a circle
        if one is None:
            return
        yield one
        one = one.__cause__ or one.__context__
