"""How much of a cluster each user may have: `nimbus.quotas`.

    nimbus.quotas:
      "*":   {topologies: 10, workers: 40, executors: 2000, blob.bytes: 10000000000, sessions: 16}
      alice: {topologies: 100}                # the rest as "*" says
      ci:    {topologies: 0}                  # none

A quota is of the owner, whoever calls. `Ledger` decides atomically: what was granted and is not
stored yet counts beside what is. Pure: no clock, no file, no store.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, fields

from squall_common.errors import ConfigError, SquallError

EVERYONE = "*"
_KEY = "nimbus.quotas"


class QuotaError(SquallError):
    """A user would have more than their quota."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What one user may have at the most; None: any number.

    `workers` and `executors` (ackers count) are sums over the user's topologies. `blob_bytes` are
    those of blobs, with uploads under way and the packages of topologies; replicas do not count.
    `sessions` are uploads and downloads under way at one Nimbus.
    """

    topologies: int | None = None
    workers: int | None = None
    executors: int | None = None
    blob_bytes: int | None = None
    sessions: int | None = None


_NAMES = {field.name.replace("_", "."): field.name for field in fields(Limits)}


@dataclass(frozen=True, slots=True)
class Size:
    """What a topology takes."""

    workers: int = 0
    executors: int = 0

    def or_more(self, other: Size) -> Size:
        """The larger of each."""
        return Size(max(self.workers, other.workers), max(self.executors, other.executors))


class Quotas:
    """The limits of each user.

    >>> quotas = Quotas.of({"*": {"topologies": 2}, "ann": {"workers": 7}})
    >>> quotas.limits("ann")
    Limits(topologies=2, workers=7, executors=None, blob_bytes=None, sessions=None)
    """

    def __init__(self, everyone: Limits, by_user: Mapping[str, Limits]) -> None:
        self._everyone = everyone
        self._by_user = by_user

    @classmethod
    def of(cls, option: Mapping[str, Mapping[str, int]] | None) -> Quotas:
        """Of the value of `nimbus.quotas`. Raises ConfigError for a quota that does not exist."""
        found = {}
        everyone: Mapping[str, int] = {}
        if option:
            everyone = option.get(EVERYONE, {})
        for user, table in (option or {}).items():
            unknown = sorted(set(table) - set(_NAMES))
            if unknown:
                raise ConfigError(
                    f"{_KEY}: {user!r} has a quota {unknown[0]!r}, which does not exist",
                    hint=f"There are {', '.join(_NAMES)}.",
                )
            merged = {**everyone, **table}
            found[user] = Limits(**{_NAMES[name]: most for name, most in merged.items()})
        return cls(found.pop(EVERYONE, Limits()), found)

    def limits(self, user: str) -> Limits:
        """What a user may have."""
        return self._by_user.get(user, self._everyone)

    def check_sessions(self, user: str, has: int) -> None:
        """Raise QuotaError if a user who has so many sessions may not open another one."""
        _check(user, "sessions", has, 1, self.limits(user).sessions)

    def check_blob_bytes(self, user: str, has: int, more: int) -> None:
        """Raise QuotaError if a user whose blobs have so many bytes may not add `more`."""
        _check(user, "blob.bytes", has, more, self.limits(user).blob_bytes)


def _check(user: str, name: str, has: int, more: int, most: int | None) -> None:
    if most is not None and has + more > most:
        raise QuotaError(
            f"the quota of {user} is {most} {_SAID[name]}: {has} in use, {more} more asked for",
            hint=f"The limit is {name} in {_KEY}: free some, or ask an administrator.",
        )


_SAID = {
    "topologies": "topologies",
    "workers": "workers",
    "executors": "executors",
    "blob.bytes": "bytes of blobs",
    "sessions": "uploads and downloads at a time",
}


class Ledger:
    """What was granted and may not be stored yet, by owner and topology."""

    def __init__(self, quotas: Quotas) -> None:
        self.quotas = quotas
        self._readers: list[list[tuple[str, str, Size]]] = []
        # By owner; a topology that is rebalanced twice at a time has two.
        self._granted: dict[str, list[tuple[str, Size]]] = {}

    @contextmanager
    def reading(self) -> Iterator[list[tuple[str, str, Size]]]:
        """While somebody reads what is stored: the grants that end meanwhile, as owner, topology
        and size. What is read may be from before them or after."""
        ended: list[tuple[str, str, Size]] = []
        self._readers.append(ended)
        try:
            yield ended
        finally:
            # Not by remove, which takes the first that is equal.
            self._readers = [one for one in self._readers if one is not ended]

    @contextmanager
    def granted(
        self, owner: str, topology: str, size: Size, stored: Mapping[str, Size]
    ) -> Iterator[None]:
        """Grant a topology of an owner a size until this context ends; by then it is stored, or not
        wanted any more. `stored` is what the owner's topologies take as stored. Raises QuotaError.
        """
        others = dict(stored)
        for name, granted in self._granted.get(owner, ()):
            others[name] = others.get(name, Size()).or_more(granted)
        before = others.pop(topology, None)
        limits = self.quotas.limits(owner)
        if before is None:
            _check(owner, "topologies", len(others), 1, limits.topologies)
        for name, most in (("workers", limits.workers), ("executors", limits.executors)):
            asked = getattr(size, name)
            # (Less than before is always granted, also where the limit was lowered since.)
            if before is None or asked > getattr(before, name):
                _check(owner, name, sum(getattr(one, name) for one in others.values()), asked, most)
        self._granted.setdefault(owner, []).append((topology, size))
        try:
            yield
        finally:
            for reader in self._readers:
                reader.append((owner, topology, size))
            mine = self._granted[owner]
            mine.remove((topology, size))
            if not mine:
                del self._granted[owner]
