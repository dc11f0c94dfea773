"""The dependencies of topologies, installed once for all topologies with the same ones.

    {storm.local.dir}/supervisor/environments/KEY/    site/ (on the workers' sys.path), bin/

KEY identifies the wheels, the Python, the machine and the version of squall. An environment is
built in a temporary folder, offline, from wheels whose hash is checked, and gets its name when all
of it is on the disk: a crash leaves nothing under `environments` that is not whole. Environments
that no topology on this disk uses are removed.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import shutil
import sys
import uuid
from collections.abc import Callable, Collection, Iterable, Sequence
from pathlib import Path

from squall_common.daemon.files import sync_dir
from squall_common.daemon.logs import get_logger
from squall_common.errors import PackageError
from squall_common.names import parse_dependency_key
from squall_common.packaging.platforms import Platform, this_platform
from squall_supervisor.blobs.source import BlobError, BlobSource
from squall_supervisor.confine.ownership import open_tree

log = get_logger(__name__)


class Environments:
    """The environments under one folder."""

    def __init__(
        self,
        folder: Path,
        temporary: Path,
        source: BlobSource,
        *,
        version: str,
        platform: Platform | None = None,
    ) -> None:
        self._folder = folder
        self._temporary = temporary
        self._source = source
        self._version = version
        self._in_use: Callable[[], Collection[str]] = frozenset
        self._platform = platform or this_platform()
        # By key: builds of one environment run one after the other, and an environment that a
        # caller waits for, or has just got and not yet linked, is not removed.
        self._locks: dict[str, asyncio.Lock] = {}
        self._wanted: dict[str, int] = {}

    def prepare(self, in_use: Callable[[], Collection[str]]) -> None:
        """Call this first. `in_use()` returns the keys of the environments that topologies on this
        disk use. Makes the folder, and removes environments that nothing uses."""
        self._in_use = in_use
        self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self.remove_unused()

    def key_of(self, dependencies: Iterable[str]) -> str:
        """The environment of a set of dependencies, by their blob keys."""
        from squall_common.packaging.dependencies import environment_key

        return environment_key(dependencies, self._platform, self._version)

    def path_of(self, key: str) -> Path:
        return self._folder / key

    async def obtain(self, dependencies: Sequence[str]) -> Lease:
        """The environment of these dependencies, built if it does not exist. It stays while the
        lease is held; a topology that links to it keeps it from then on. Raises PackageError for a
        wheel that is damaged, not a dependency, or for another Python or machine, BlobError,
        OSError."""
        # In a thread: the first call imports what it takes to read wheels.
        key = await asyncio.to_thread(self.key_of, dependencies)
        lease = Lease(self, key)
        try:
            async with self._locks.setdefault(key, asyncio.Lock()):
                if not self.path_of(key).is_dir():
                    await self._build(key, dependencies)
        except BaseException:
            lease.release()
            raise
        return lease

    async def _build(self, key: str, dependencies: Sequence[str]) -> None:
        names = {one: _file_name(one) for one in dependencies}
        await asyncio.to_thread(_check, names.values(), self._platform)
        folder = self._temporary / f"environment-{uuid.uuid4()}"
        wheels = folder / "wheels"
        try:
            wheels.mkdir(parents=True, mode=0o700)
            paths = {one: wheels / name for one, name in names.items()}
            await self._source.fetch(paths)
            await asyncio.to_thread(self._install, key, folder, paths)
        finally:
            await asyncio.to_thread(shutil.rmtree, folder, ignore_errors=True)
        log.info("environment_built", key=key, wheels=len(names))

    def _install(self, key: str, folder: Path, paths: dict[str, Path]) -> None:
        from squall_common.packaging.dependencies import Wheel, build_environment

        found = []
        for dependency, path in paths.items():
            with path.open("rb") as file:
                sha256 = hashlib.file_digest(file, "sha256").hexdigest()
            if dependency != Wheel(path, sha256).key:
                raise BlobError(f"{dependency} was downloaded with the wrong hash {sha256}")
            found.append(Wheel(path, sha256))
        built = folder / "environment"
        build_environment(found, built, sys.executable)
        open_tree(built)
        # One sync for everything: an fsync for each of thousands of small files takes minutes.
        os.sync()
        os.rename(built, self.path_of(key))
        sync_dir(self._folder)

    def remove_unused(self) -> None:
        """Remove the environments that no topology on this disk uses and no caller is about to use.
        Blocks on the disk."""
        used = set(self._in_use()) | self._wanted.keys()
        for path in self._folder.iterdir():
            if path.name not in used:
                doomed = self._temporary / f"removed-{uuid.uuid4()}"
                os.rename(path, doomed)  # atomically, so that no half-removed one is found
                shutil.rmtree(doomed, ignore_errors=True)
                log.info("environment_removed", key=path.name)


class Lease:
    """Keeps an environment from being removed until `release`."""

    def __init__(self, environments: Environments, key: str) -> None:
        self._environments = environments
        self._held = True
        self.key = key
        wanted = environments._wanted
        wanted[key] = wanted.get(key, 0) + 1

    @property
    def path(self) -> Path:
        return self._environments.path_of(self.key)

    def release(self) -> None:
        if self._held:
            self._held = False
            wanted = self._environments._wanted
            wanted[self.key] -= 1
            if not wanted[self.key]:
                del wanted[self.key]


def _check(names: Iterable[str], platform: Platform) -> None:
    from squall_common.packaging.dependencies import check_fit

    check_fit(names, platform)


def _file_name(key: str) -> str:
    parsed = parse_dependency_key(key)
    if parsed is None:
        raise PackageError(f"{key[:200]!r} is not a wheel that squall can install")
    return parsed[1]
