"""The digests of a daemon, or a command, as its configuration has them."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Protocol

from squall_common.cluster.access.digests import Digests, StoreAccess
from squall_common.cluster.access.lists import Identity
from squall_common.errors import ConfigError

PAYLOAD = "storm.zookeeper.auth.payload"
PAYLOAD_FILE = "storm.zookeeper.auth.payload.file"
SUPER_ACL = "storm.zookeeper.superACL"
# A tenant who has its topology's password can try out daemons' passwords: they must be long.
PASSWORD_CHARS_MIN = 20
DIGESTS_MAX = 4
_FILE_BYTES_MAX = 4096
_SCHEMES = ("digest", "x509", "sasl", "ip")


class DigestOptions(Protocol):
    """The options that say how a daemon, or a command, proves itself to ZooKeeper."""

    @property
    def storm_zookeeper_auth_payload(self) -> str | None: ...

    @property
    def storm_zookeeper_auth_payload_file(self) -> str | None: ...

    @property
    def storm_zookeeper_super_acl(self) -> str | None: ...


def read_digests(options: DigestOptions) -> Digests | None:
    """Those of the configuration; None if it has none. Raises ConfigError, which shows no
    secret."""
    written, file = (
        options.storm_zookeeper_auth_payload,
        options.storm_zookeeper_auth_payload_file,
    )
    if written is not None and file is not None:
        raise ConfigError(
            f"{PAYLOAD} and {PAYLOAD_FILE} are both set", hint="Keep the file, and remove it."
        )
    other = options.storm_zookeeper_super_acl
    if written is None and file is None:
        if other is not None:
            raise ConfigError(
                f"{SUPER_ACL} is set, and the daemons have no digest: they would lock "
                "themselves out",
                hint=f"Set {PAYLOAD_FILE}.",
            )
        return None
    where = PAYLOAD if written is not None else f"{PAYLOAD_FILE}, {file},"
    lines = [written] if written is not None else read_lines(Path(file or ""))
    if not 1 <= len(lines) <= DIGESTS_MAX:
        raise ConfigError(f"{where} must have one line, or up to {DIGESTS_MAX}")
    for line in lines:
        _check(where, line)
    return Digests(tuple(lines), () if other is None else (_parse_other(other),))


def daemon_access(options: DigestOptions) -> StoreAccess | None:
    """How a daemon of this configuration opens its session; None if it shows nothing. Raises
    ConfigError."""
    digests = read_digests(options)
    return None if digests is None else digests.for_daemon()


def _check(where: str, line: str) -> None:
    user, colon, password = line.partition(":")
    if not user or not colon or not line.isascii() or not line.isprintable() or " " in line:
        raise ConfigError(
            f"{where} must be USER:PASSWORD, without spaces",
            hint="'storm admin zookeeper-digest FILE' makes one.",
        )
    if len(password) < PASSWORD_CHARS_MIN:
        raise ConfigError(
            f"the password in {where} has {len(password)} characters; {PASSWORD_CHARS_MIN} are the "
            "least, as tenants could guess a shorter one",
            hint="'storm admin zookeeper-digest FILE' makes one.",
        )


def read_lines(path: Path) -> list[str]:
    """The payloads of a file that its owner alone can read. Raises ConfigError."""
    try:
        with path.open("rb") as file:
            if stat.S_IMODE(os.fstat(file.fileno()).st_mode) & 0o077:
                raise ConfigError(
                    f"others can read {PAYLOAD_FILE}, {path}", hint=f"Run: chmod 600 {path}"
                )
            data = file.read(_FILE_BYTES_MAX + 1)
    except OSError as error:
        raise ConfigError(
            f"{PAYLOAD_FILE}, {path}, cannot be read: {error.strerror}",
            hint="'storm admin zookeeper-digest FILE' makes one.",
        ) from error
    if len(data) > _FILE_BYTES_MAX:
        raise ConfigError(f"{PAYLOAD_FILE}, {path}, is too long")
    return [line for line in data.decode("utf-8", "replace").splitlines() if line.strip()]


def _parse_other(text: str) -> Identity:
    scheme, _, name = text.partition(":")
    if scheme not in _SCHEMES or not name:
        raise ConfigError(
            f"{SUPER_ACL} must be SCHEME:ID, such as digest:admin:HASH, with one of the schemes "
            f"{', '.join(_SCHEMES)}"
        )
    return Identity(scheme, name)
