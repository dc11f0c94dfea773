"""Addresses of servers, given as URLs whose passwords stay out of logs and errors."""

from __future__ import annotations

import os
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote, urlsplit

from squall_common.errors import InvalidTopologyError


@dataclass(frozen=True, slots=True)
class Address:
    """A parsed URL. Its text has neither user nor password."""

    scheme: str
    host: str
    port: int
    path: str  # decoded, without the first slash; "" if there is none
    user: str | None = field(default=None, repr=False)
    password: str | None = field(default=None, repr=False)

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}:{self.port}"


def parse_address(connector: str, url: str, ports: Mapping[str, int]) -> Address:
    """The parts of a URL whose scheme is one of `ports`, which has the default port of each.
    Raises InvalidTopologyError, which names the connector and repeats nothing of a URL that may
    hold a password."""
    expected = " or ".join(f"{scheme}://HOST[:PORT]" for scheme in ports)
    try:
        parts = urlsplit(url)
        port = parts.port
    except (ValueError, AttributeError):
        raise InvalidTopologyError(f"{connector}: url is not a URL; expected {expected}") from None
    if parts.scheme not in ports or not parts.hostname:
        raise InvalidTopologyError(
            f"{connector}: url has scheme {parts.scheme!r} and host {parts.hostname!r}; "
            f"expected {expected}"
        )
    return Address(
        parts.scheme,
        parts.hostname,
        ports[parts.scheme] if port is None else port,
        unquote(parts.path[1:]),
        None if parts.username is None else unquote(parts.username),
        None if parts.password is None else unquote(parts.password),
    )


def secret_of(connector: str, variable: str | None) -> str | None:
    """The value of an environment variable of the worker; None without a name. Raises
    InvalidTopologyError if it is not set."""
    if variable is None:
        return None
    secret = os.environ.get(variable)
    if not secret:
        raise InvalidTopologyError(
            f"{connector}: the environment variable {variable} is not set in the worker"
        )
    return secret


def tls_context(ca_file: str | None) -> ssl.SSLContext:
    """TLS that trusts `ca_file`, or the system's authorities, and checks names."""
    return ssl.create_default_context(cafile=ca_file)


def with_secrets(
    connector: str, settings: Mapping[str, Any], variables: Mapping[str, str]
) -> dict[str, Any]:
    """The settings, with those whose values are in environment variables of the worker."""
    secrets = {name: secret_of(connector, variable) for name, variable in variables.items()}
    return {**settings, **secrets}


def require_at_least(connector: str, least: float, **numbers: float) -> None:
    """Raise InvalidTopologyError for the first of these arguments that is below `least`."""
    for name, number in numbers.items():
        if number < least:
            raise InvalidTopologyError(f"{connector}: {name} is {number}; at least {least}")
