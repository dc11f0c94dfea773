"""Resolutions of earlier submits, kept in the user's cache folder.

    resolutions/KEY.json        the wheels of one resolution, and when it was made
    wheels/SHA256/NAME.whl      the wheels, shared by resolutions

KEY covers everything that pip's answer follows from: the requirements, the index and pip's other
settings, the platform, and Squall's own requirements. A resolution that pins every project is valid
as long as it is kept; any other for a day, since the index has newer versions after a while.

The cache only saves time. Whatever is missing, damaged, or not as its hash says counts as absent,
and a folder that cannot be written is not used. Files appear under their names complete (written
beside, then renamed), so any number of submits share the folder. What has not been used for 30 days
is removed, and the least recently used wheels once they exceed 4 GiB.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

from squall_common.daemon.logs import get_logger
from squall_common.errors import PackageError
from squall_common.names import parse_dependency_key
from squall_common.packaging.dependencies import Wheel, read_wheel
from squall_common.packaging.platforms import Platform
from squall_common.packaging.requirements_text import RequirementsText

log = get_logger(__name__)

UNPINNED_SECS = 24 * 3600.0
_UNUSED_SECS = 30 * 24 * 3600.0
_WHEELS_BYTES_MAX = 4 * 1024**3
# A wheel used this recently may be under upload.
_IN_USE_SECS = 3600.0
_ENTRY_BYTES_MAX = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Kept:
    """A resolution from the cache."""

    wheels: list[Wheel]
    age_secs: float


class ResolutionCache:
    """The resolutions in one folder. No method raises for the folder's state."""

    def __init__(self, folder: Path | None, clock: Callable[[], float] = time.time) -> None:
        """Without a folder, nothing is kept."""
        self._enabled = folder is not None
        folder = folder or Path()
        self._resolutions = folder / "resolutions"
        self._wheels = folder / "wheels"
        self._folder = folder
        self._clock = clock

    def find(self, key: str | None) -> Kept | None:
        """The resolution under a key, if it is valid and all its wheels are there and undamaged."""
        if key is None or not self._enabled:
            return None
        entry = self._resolutions / f"{key}.json"
        try:
            if not self._is_ours() or entry.stat().st_size > _ENTRY_BYTES_MAX:
                return None
            stored = json.loads(entry.read_bytes())
            age_secs = self._clock() - float(stored["resolved_at"])
            if not age_secs >= 0 or (stored["pinned"] is not True and age_secs > UNPINNED_SECS):
                return None
            wheels = [self._take(str(name)) for name in stored["wheels"]]
            self._touch(entry)
        except FileNotFoundError:
            return None
        except (OSError, ValueError, KeyError, TypeError, PackageError) as error:
            log.info("kept_resolution_damaged", file=str(entry), error=str(error))
            return None
        return Kept(wheels, age_secs)

    def keep(self, key: str | None, wheels: Sequence[Wheel], *, pinned: bool) -> None:
        """Keep a resolution, unless it has no key, and remove what has not been used for long."""
        if key is None or not self._enabled:
            return
        try:
            for folder in (self._folder, self._resolutions, self._wheels):
                folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            if not self._is_ours():
                return
            for wheel in wheels:
                self._add(wheel)
            entry = {
                "resolved_at": self._clock(),
                "pinned": pinned,
                "wheels": [wheel.key for wheel in wheels],
            }
            part = self._resolutions / f".{uuid4().hex}"
            part.write_text(json.dumps(entry))
            self._touch(part)
            part.replace(self._resolutions / f"{key}.json")
            self._remove_unused()
        except OSError as error:
            log.info("resolution_not_kept", folder=str(self._folder), error=str(error))

    def _is_ours(self) -> bool:
        """Whether no other user can have put anything here (after a `sudo`, say)."""
        found = self._folder.stat()
        return found.st_uid == os.geteuid() and not found.st_mode & 0o022

    def _take(self, key: str) -> Wheel:
        named = parse_dependency_key(key)
        if named is None:
            raise ValueError(f"{key!r} is not the key of a wheel")
        sha256, name = named
        path = self._wheels / sha256 / name
        wheel = read_wheel(path)
        if wheel.sha256 != sha256:
            path.unlink(missing_ok=True)
            raise ValueError(f"{path} is not what its hash says")
        self._touch(path)
        return wheel

    def _add(self, wheel: Wheel) -> None:
        path = self._wheels / wheel.sha256 / wheel.path.name
        if path.exists() and path.stat().st_size == wheel.path.stat().st_size:
            self._touch(path)
            return
        path.parent.mkdir(mode=0o700, exist_ok=True)
        part = path.parent / f".{uuid4().hex}"
        try:
            shutil.copyfile(wheel.path, part)
            self._touch(part)
            part.replace(path)
        finally:
            part.unlink(missing_ok=True)

    def _touch(self, path: Path) -> None:
        os.utime(path, (self._clock(), self._clock()))

    def _remove_unused(self) -> None:
        now = self._clock()
        for used_at, _, path in _by_use(self._resolutions.iterdir()):
            if used_at < now - _UNUSED_SECS:
                path.unlink(missing_ok=True)
        oldest_first = _by_use(self._wheels.glob("*/*"))
        total = sum(size for _, size, _ in oldest_first)
        for used_at, size, path in oldest_first:
            unused = used_at < now - _UNUSED_SECS
            if not unused and (total <= _WHEELS_BYTES_MAX or used_at > now - _IN_USE_SECS):
                break
            path.unlink(missing_ok=True)
            with suppress(OSError):  # another wheel of the same content, or one just added
                path.parent.rmdir()
            total -= size


def _by_use(paths: Iterable[Path]) -> list[tuple[float, int, Path]]:
    """(last use, bytes, file), the least recently used first."""
    found = []
    for path in paths:
        with suppress(OSError):
            about = path.stat()
            found.append((about.st_mtime, about.st_size, path))
    return sorted(found)


def user_cache_folder(env: Mapping[str, str] = os.environ) -> Path | None:
    """`$XDG_CACHE_HOME/squall`, else `~/.cache/squall`; None for a user without a home."""
    base = env.get("XDG_CACHE_HOME", "")
    if os.path.isabs(base):
        return Path(base, "squall")
    try:
        return Path.home() / ".cache" / "squall"
    except RuntimeError:
        return None


def resolution_key(
    text: RequirementsText,
    wheels_dir: Path | None,
    platform: Platform,
    own: Sequence[str],
    env: Mapping[str, str] = os.environ,
) -> str | None:
    """The name of what pip answers; `own` are Squall's own requirements. None if a folder of
    wheels cannot be read."""
    settings = _pip_settings(env)
    shelves = [] if wheels_dir is None else [wheels_dir]
    try:
        parts = [
            list(text.lines), str(platform), list(own), list(sys.version_info[:3]), settings,
            [_listing(shelf) for shelf in shelves + _find_links(settings)],
        ]  # fmt: skip
    except OSError:
        return None
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


def _listing(place: Path) -> list[tuple[str, int, int]]:
    """The wheels of a folder, or one file, by size and time."""
    wheels = sorted(place.glob("*.whl")) if place.is_dir() else [place]
    return [(str(path), path.stat().st_size, path.stat().st_mtime_ns) for path in wheels]


def _pip_settings(env: Mapping[str, str]) -> list[str]:
    """Everything that tells pip where to look: its variables, and the content of its configuration
    files (pip's user guide, "Configuration"). It may hold passwords: only its hash is kept."""
    settings = [f"{name}={value}" for name, value in sorted(env.items()) if name.startswith("PIP_")]
    home = env.get("HOME", "")
    configured = env.get("XDG_CONFIG_HOME") or f"{home}/.config"
    shared = (env.get("XDG_CONFIG_DIRS") or "/etc/xdg").split(":")
    files = [
        *(f"{folder}/pip/pip.conf" for folder in shared), "/etc/pip.conf",
        f"{home}/.pip/pip.conf", f"{configured}/pip/pip.conf", f"{sys.prefix}/pip.conf",
        env.get("PIP_CONFIG_FILE", ""),
    ]  # fmt: skip
    for file in files:
        with suppress(OSError, UnicodeDecodeError):
            settings.append(Path(file).read_text() if file else "")
    return settings


# A variable, or an option of a configuration file, whose value may go on in indented lines.
_FIND_LINKS = re.compile(r"^(?:PIP_)?FIND[-_]LINKS\s*[=:](.*(?:\n[ \t]+.*)*)", re.I | re.M)


def _find_links(settings: Sequence[str]) -> list[Path]:
    """The places on this machine among the folders of wheels that pip's settings name."""
    places = [
        one for text in settings for found in _FIND_LINKS.findall(text) for one in found.split()
    ]
    local = (one.removeprefix("file://") for one in places)
    return [Path(one).expanduser() for one in local if "://" not in one]
