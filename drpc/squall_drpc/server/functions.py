"""Who may call and who may serve which function: the file `drpc.authorizer.acl.filename`, in the
format of Storm's DRPCSimpleACLAuthorizer.

    drpc.authorizer.acl:
      reach:
        client.users: [alice, bob]       # call it
        invocation.user: carol           # the owner of the topologies that serve it

A function that the file does not list is nobody's; with `drpc.authorizer.acl.strict: false` it is
everybody's, as in Storm. The file is read again when it changes; one with a mistake changes
nothing.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from squall_common.errors import ConfigError
from squall_common.security.acl import Function, Members

_TOP = "drpc.authorizer.acl"
_CALLERS, _SERVER = "client.users", "invocation.user"
_FILE_BYTES_MAX = 4 * 1024 * 1024


class FunctionLists:
    """The lists, by function."""

    def __init__(self, path: str | None, *, strict: bool) -> None:
        """`path` None: no function is listed."""
        self._path = None if path is None else Path(path)
        self._strict = strict
        self._stat: tuple[int, int, int] | None = None
        self._functions: Mapping[str, Function] = {}

    def open(self) -> None:
        """Read the file. Raises ConfigError."""
        if self._path is None:
            if self._strict:
                raise ConfigError(
                    "no one could call a function: drpc.authorizer.acl.filename is not set",
                    hint="Set it to a file that says who may call and serve which function "
                    "(docs/drpc.md), or set drpc.authorizer.acl.strict: false if every user may "
                    "call, and every topology serve, all of them.",
                )
            return
        self._stat, self._functions = _read(self._path)

    def refresh(self) -> str | None:
        """Read the file if it has changed; returns why it does not count, or None."""
        if self._path is None:
            return None
        try:
            if _stat_of(self._path) == self._stat:
                return None
            self._stat, self._functions = _read(self._path)
        except OSError as error:
            return f"{self._path}: {error.strerror}"
        except ConfigError as error:
            return str(error)
        return None

    def of(self, name: str) -> Function:
        """A function with its lists."""
        found = self._functions.get(name)
        return Function(name, unlisted=not self._strict) if found is None else found


def parse(value: Any) -> dict[str, Function]:
    """The functions that the content of the file lists. Raises ValueError, which says what is
    wrong.

    >>> parse({"drpc.authorizer.acl": {"f": {"client.users": ["alice"], "invocation.user": "bob"}}})
    ... # doctest: +ELLIPSIS
    {'f': Function(name='f', callers=Members(users=frozenset({'alice'}), ...}
    """
    if not isinstance(value, dict) or set(value) != {_TOP}:
        raise ValueError(f"it must have one key, {_TOP}")
    listed = value[_TOP]
    if listed is None:
        return {}
    if not isinstance(listed, dict):
        raise ValueError(f"{_TOP} must be a map from function to its lists")
    found = {}
    for name, lists in listed.items():
        if not isinstance(name, str) or not isinstance(lists, dict):
            raise ValueError(f"function {name!r}: it must be a name with a map of lists")
        if unknown := sorted(str(key) for key in set(lists) - {_CALLERS, _SERVER}):
            raise ValueError(f"function {name!r}: unknown {', '.join(unknown)}")
        callers, server = lists.get(_CALLERS), lists.get(_SERVER)
        if not isinstance(callers or [], list) or not all(
            isinstance(one, str) for one in callers or ()
        ):
            raise ValueError(f"function {name!r}: {_CALLERS} must be a list of names")
        if not isinstance(server, str | None):
            raise ValueError(f"function {name!r}: {_SERVER} must be a name")
        found[name] = Function(
            name, Members.of(callers, ()), Members.of((server,) if server else (), ())
        )
    return found


def _stat_of(path: Path) -> tuple[int, int, int]:
    found = os.stat(path)
    return found.st_mtime_ns, found.st_ino, found.st_size


def _read(path: Path) -> tuple[tuple[int, int, int], dict[str, Function]]:
    """Raises ConfigError."""
    import yaml

    where = f"drpc.authorizer.acl.filename: {path}"
    try:
        stat = _stat_of(path)
        if stat[2] > _FILE_BYTES_MAX:
            raise ConfigError(f"{where} has more than {_FILE_BYTES_MAX} bytes")
        text = path.read_text("utf-8")
        return stat, parse(yaml.load(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader)))
    except OSError as error:
        raise ConfigError(f"{where} cannot be read: {error.strerror}") from error
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise ConfigError(f"{where}: {error}") from error
