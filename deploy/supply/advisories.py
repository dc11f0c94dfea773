"""A copy of the advisory database for PyPI: the archive that https://osv.dev publishes, one JSON
file an advisory (https://ossf.github.io/osv-schema/), at
https://osv-vulnerabilities.storage.googleapis.com/PyPI/all.zip.
"""

from __future__ import annotations

import datetime
import json
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version


@dataclass(frozen=True, slots=True)
class Finding:
    """An advisory that names a version of a package that we lock."""

    package: str
    version: str
    advisory: str  # its id
    aliases: tuple[str, ...]
    fixed: tuple[str, ...]  # versions without it, if there are any

    def __str__(self) -> str:
        names = ", ".join((self.advisory, *self.aliases))
        cure = f"fixed in {', '.join(self.fixed)}" if self.fixed else "no version without it"
        return f"{self.package} {self.version}: {names} ({cure})"


@dataclass(frozen=True, slots=True)
class Database:
    """The advisories of a copy; `newest` is when the last of them was changed, which tells how old
    the copy is."""

    advisories: tuple[Mapping[str, Any], ...]
    newest: datetime.datetime

    @classmethod
    def read(cls, path: Path) -> Database:
        """Raises OSError, and ValueError for a file that is not such a copy."""
        try:
            with zipfile.ZipFile(path) as archive:
                names = [name for name in archive.namelist() if name.endswith(".json")]
                found = tuple(json.loads(archive.read(name)) for name in names)
            newest = max(datetime.datetime.fromisoformat(one["modified"]) for one in found)
        except (zipfile.BadZipFile, KeyError, TypeError, ValueError) as error:
            raise ValueError(f"{path} is not a copy of the database: {error}") from error
        return cls(found, newest.astimezone(datetime.UTC))

    def age_days(self, now: datetime.datetime) -> float:
        return (now - self.newest).total_seconds() / 86_400

    def findings(self, locked: Mapping[str, str]) -> list[Finding]:
        """What it says about the packages, in order of their names."""
        found = [one for advisory in self.advisories for one in _findings(advisory, locked)]
        return sorted(found, key=lambda one: (one.package, one.advisory))


def _findings(advisory: Mapping[str, Any], locked: Mapping[str, str]) -> Iterator[Finding]:
    if "withdrawn" in advisory:
        return
    for affected in advisory.get("affected", ()):
        package = affected.get("package", {})
        name = str(canonicalize_name(package.get("name", "")))
        version = locked.get(name)
        if package.get("ecosystem") != "PyPI" or version is None:
            continue
        ranges = [one for one in affected.get("ranges", ()) if one.get("type") == "ECOSYSTEM"]
        listed = {_normal(one) for one in affected.get("versions", ())}
        if _normal(version) in listed or any(_is_in(version, one["events"]) for one in ranges):
            fixed = [
                event["fixed"] for one in ranges for event in one["events"] if "fixed" in event
            ]
            aliases = tuple(advisory.get("aliases", ()))
            yield Finding(name, version, advisory["id"], aliases, tuple(fixed))


def _normal(version: str) -> str:
    try:
        return str(Version(version))
    except InvalidVersion:  # of a package that is older than the rules
        return version


def _is_in(version: str, events: Iterable[Mapping[str, str]]) -> bool:
    """Whether a version lies in a range: from what introduced it ("0": always) up to what fixed
    it, or to the last affected one."""
    ours, inside = Version(version), False
    ordered = []
    for event in events:
        for kind in ("introduced", "fixed", "last_affected"):
            if kind in event:
                text = "0.dev0" if event[kind] == "0" else event[kind]
                try:
                    ordered.append((Version(text), kind))
                except InvalidVersion:
                    if kind == "introduced":  # who knows since when: always
                        ordered.append((Version("0.dev0"), kind))
    for at, kind in sorted(ordered, key=lambda one: one[0]):
        if kind == "introduced" and ours >= at:
            inside = True
        elif (kind == "fixed" and ours >= at) or (kind == "last_affected" and ours > at):
            inside = False
    return inside
