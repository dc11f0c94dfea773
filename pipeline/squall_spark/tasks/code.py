"""The user's code in Spark's Python workers.

On this machine workers import from the folders that the driver unpacked. On others they get the
package and the wheels of its dependencies as files of Spark's, and unpack and install them once for
each executor. Classes that a notebook defines have no module to import: they travel as they are,
and become the worker's `__main__`.
"""

from __future__ import annotations

import fcntl
import hashlib
import importlib
import os
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from squall_common.errors import PackageError
from squall_common.packaging.dependencies import build_environment, fits, read_wheel, site_folder
from squall_common.packaging.package import code_paths, unpack_package
from squall_common.packaging.platforms import this_platform


@dataclass(frozen=True, slots=True)
class Archive:
    """The package, among Spark's files."""

    name: str
    digest: str


@dataclass(frozen=True, slots=True)
class Code:
    """The user's code, for every Python worker of a job."""

    folder: str | None = None  # the unpacked package, on this machine
    archive: Archive | None = None  # instead of the folder
    environment: str | None = None  # the installed dependencies, on this machine
    wheels: tuple[str, ...] = ()  # instead: names among Spark's files
    search: tuple[str, ...] = ()  # folders on this machine to import from, after these
    main: Mapping[str, Any] = field(default_factory=dict)  # what `__main__` defines

    def paths(self) -> Path | None:
        """Make it importable in this process; returns the folder of the package."""
        if self.main:
            vars(sys.modules["__main__"]).update(self.main)
        folder = None if self.folder is None else Path(self.folder)
        if self.archive is not None:
            folder = _unpacked(self.archive)
        wanted: list[str] = [] if folder is None else [str(path) for path in code_paths(folder)]
        if self.environment is not None:
            wanted.append(str(site_folder(Path(self.environment))))
        elif self.wheels:
            wanted.append(str(site_folder(_installed(self.wheels))))
        _import_from([*wanted], first=True)
        _import_from(self.search, first=False)
        return folder


def _import_from(paths: Sequence[str], *, first: bool) -> None:
    new = [path for path in paths if path not in sys.path]
    if new:
        sys.path[:] = [*new, *sys.path] if first else [*sys.path, *new]
        importlib.invalidate_caches()


def code_of(
    folder: Path,
    archive: Path,
    *,
    sent: bool,
    environment: Path | None = None,
    wheels: Sequence[Path] = (),
) -> Code:
    """The package of a session and its dependencies. `sent`: workers use the archive and the wheels
    among Spark's files instead of the folders."""
    if not sent:
        return Code(str(folder), environment=None if environment is None else str(environment))
    digest = hashlib.sha256(archive.read_bytes()).hexdigest()[:16]
    return Code(
        archive=Archive(archive.name, digest), wheels=tuple(sorted(path.name for path in wheels))
    )


def _unpacked(archive: Archive) -> Path:
    def unpack(folder: Path) -> Path:
        return unpack_package(_sent(archive.name), folder)

    return _once(f"squall-{archive.digest}", "code", unpack)


def _installed(names: Sequence[str]) -> Path:
    """An environment of the wheels. Raises PackageError for one that does not run here."""
    key = hashlib.sha256("\n".join(names).encode()).hexdigest()[:16]

    def install(folder: Path) -> Path:
        here = this_platform()
        for name in names:
            if not fits(name, here):
                raise PackageError(
                    f"{name} does not run on this executor ({here})",
                    hint="give wheels for the cluster: --wheels FOLDER",
                )
        environment = folder / "environment"
        wheels = [read_wheel(_sent(name)) for name in names]
        build_environment(wheels, environment, sys.executable)
        return environment

    return _once(f"squall-wheels-{key}", "environment", install)


def _sent(name: str) -> Path:
    from pyspark import SparkFiles

    return Path(SparkFiles.get(name))


def _once(folder: str, name: str, make: Callable[[Path], Path]) -> Path:
    """Make something in a folder of the executor's, once for all its Python workers."""
    from pyspark import SparkFiles

    place = Path(SparkFiles.getRootDirectory(), folder)
    place.mkdir(exist_ok=True)
    made = place / name
    with (place / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not made.exists():
            with tempfile.TemporaryDirectory(dir=place) as temporary:
                os.replace(make(Path(temporary)), made)
    return made
