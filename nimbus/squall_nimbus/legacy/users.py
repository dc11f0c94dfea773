"""Users and their secrets, from the JAAS file of Storm's form: `user_NAME="SECRET"` in its entry
`StormServer`. The file is read again when it changes; one that cannot be read then lets no one in,
and says so once."""

from __future__ import annotations

import hmac
import os
import secrets
import stat
from collections.abc import Mapping

from squall_common.daemon.logs import get_logger
from squall_common.errors import ConfigError
from squall_common.security.identity import IdentityError, check_name
from squall_nimbus.legacy.jaas import JaasError, Module, parse_jaas

log = get_logger(__name__)

KEY = "java.security.auth.login.config"
ENTRY = "StormServer"
_PREFIX = "user_"
_BYTES_MAX = 1_048_576


def read_safe(what: str, path: str, *, secret: bool = True) -> bytes:
    """The beginning of a file that no one else may change, nor read if it is `secret`. Raises
    ConfigError."""
    try:
        with open(path, "rb") as file:
            state = os.fstat(file.fileno())
            if not stat.S_ISREG(state.st_mode):
                raise ConfigError(f"{what}: {path} is not a file")
            if state.st_uid not in (os.geteuid(), 0):
                raise ConfigError(
                    f"{what}: {path} belongs to another user", hint="chown it to Nimbus' user."
                )
            mode = stat.S_IMODE(state.st_mode)
            if secret and mode & 0o077:
                raise ConfigError(f"{what}: {path} may be read by others", hint=f"chmod 600 {path}")
            if mode & 0o022:
                raise ConfigError(
                    f"{what}: {path} may be changed by others", hint=f"chmod 644 {path}"
                )
            return file.read(_BYTES_MAX + 1)
    except OSError as error:
        raise ConfigError(f"{what}: cannot read {path}: {error.strerror}") from error


def read_entry(path: str, *, secret: bool = True) -> list[Module]:
    """The modules of the file's entry `StormServer`. Raises ConfigError, as `read_safe` does."""
    data = read_safe(KEY, path, secret=secret)
    if len(data) > _BYTES_MAX:
        raise ConfigError(f"{KEY}: {path} has more than {_BYTES_MAX} bytes")
    try:
        entry = parse_jaas(data.decode()).get(ENTRY)
    except (JaasError, UnicodeDecodeError) as error:
        what = error if isinstance(error, JaasError) else "it is not UTF-8"
        raise ConfigError(f"{KEY}: {path}: {what}") from error
    if not entry:
        raise ConfigError(f"{KEY}: {path} has no entry {ENTRY}")
    return entry


def secrets_of(modules: list[Module], path: str) -> dict[str, str]:
    """The secrets by user. Raises ConfigError."""
    found: dict[str, str] = {}
    for module in modules:
        for option, secret in module.options.items():
            if not option.startswith(_PREFIX):
                continue
            name = option.removeprefix(_PREFIX)
            try:
                check_name(name)
            except IdentityError as error:
                raise ConfigError(f"{KEY}: {path}: {option}: {error}") from error
            if name in found or not secret:
                why = "it is there twice" if name in found else "its secret is empty"
                raise ConfigError(f"{KEY}: {path}: {option}: {why}")
            found[name] = secret
    if not found:
        raise ConfigError(
            f"{KEY}: {path}: {ENTRY} has no user", hint='Add a line such as user_alice="SECRET".'
        )
    return found


class Users:
    """The users of a file. Construction raises ConfigError."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._stat = _stat(path)
        self._secrets: Mapping[str, str] = secrets_of(read_entry(path), path)
        self._key = secrets.token_bytes(32)
        self._nobody = secrets.token_urlsafe(32)

    def secret(self, user: str) -> tuple[str, bool]:
        """The secret of a user, and whether there is such a user. The secret of others is one that
        nobody knows, so that a wrong name takes the way of a wrong password."""
        self.refresh()
        found = self._secrets.get(user)
        return (self._nobody, False) if found is None else (found, True)

    def mark(self, user: str) -> bytes | None:
        """What changes when the secret does, and does not tell it; None: there is no such user."""
        self.refresh()
        found = self._secrets.get(user)
        if found is None:
            return None
        return hmac.digest(self._key, found.encode(), "sha256")

    def refresh(self) -> None:
        """Look whether the file has changed, and read it."""
        now = _stat(self._path)
        if now == self._stat:
            return
        try:
            self._secrets = secrets_of(read_entry(self._path), self._path)
        except ConfigError as error:
            self._secrets = {}
            log.error("legacy_users_not_read", error=str(error))
        else:
            log.info("legacy_users_read", file=self._path, users=len(self._secrets))
        self._stat = now


def _stat(path: str) -> tuple[int, int, int, int] | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    # The mode and the owner change the time of the inode, and not of the content.
    return found.st_mtime_ns, found.st_ctime_ns, found.st_size, found.st_ino
