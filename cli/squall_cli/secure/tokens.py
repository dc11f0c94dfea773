"""Gets tokens from Nimbus, by the certificate of a user."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec

from squall_cli.cluster.nimbus import call_nimbus
from squall_common.authentication.credentials import default_token_file
from squall_common.config.options.typed import ClientOptions
from squall_common.daemon.files import write_atomic
from squall_common.errors import ConfigError, SquallError


def with_certificate(
    client: ClientOptions, certificate: Path | None, key: Path | None
) -> ClientOptions:
    """The options of a client that shows a certificate: the given one, else the configured one.
    Raises ConfigError if the cluster is open, or there is no certificate."""
    if client.storm_security_ca is None:
        raise ConfigError(
            "this cluster is open (storm.security.ca is not set): it has no tokens",
            hint="docs/security.md shows how a cluster is secured.",
        )
    if certificate is not None:
        key = certificate.with_suffix(".key") if key is None else key
        return msgspec.structs.replace(
            client,
            storm_security_certificate=str(certificate.absolute()),
            storm_security_key=str(key.absolute()),
        )
    if client.storm_security_certificate is None:
        raise ConfigError(
            "a token takes a certificate: no token makes another",
            hint="Name yours with --certificate FILE (and --key FILE); who runs the CA makes it.",
        )
    return client


def create_token(
    client: ClientOptions,
    *,
    user: str | None,
    lifetime_secs: int,
    label: str = "",
    actions: Sequence[str] = (),
    topologies: Sequence[str] = (),
) -> str:
    """A new token's text. Raises NimbusError."""
    token: str = call_nimbus(
        client,
        "createToken",
        user,
        lifetime_secs,
        label,
        list(actions) or None,
        list(topologies) or None,
    )
    return token


def token_file(client: ClientOptions) -> Path:
    """Where commands look for the token."""
    named = client.storm_security_token_file
    return default_token_file() if named is None else Path(named)


def keep_token(token: str, path: Path) -> None:
    """Write a token for its owner alone. Raises SquallError."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        write_atomic(path, token.encode() + b"\n", mode=0o600)
    except OSError as error:
        raise SquallError(f"cannot write {path}: {error.strerror}") from error
