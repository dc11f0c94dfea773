"""Topologies on this disk: either whole or absent.

    {storm.local.dir}/supervisor/stormdist/TOPOLOGY_ID/
        stormcode.ser, stormconf.ser   as Nimbus has them
        curve.key                      0600: the key its workers encrypt with, if they do
        credentials.json               0600: its credentials, if it has any
        code/                          the unpacked package
        resources -> code/resources    (a folder, empty, when the package has none)
        environment -> ../../environments/KEY   its dependencies, if it has any
        versions.json                  of the blobs, by key
        signed.json                    their hashes, in a secured cluster
        manifest.json                  the hashes of all of it as it was fetched

Everything is fetched into a temporary folder, fsynced, and renamed: a crash at any moment leaves
nothing under stormdist that looks whole but is not. Slots that ask for the same topology wait for
the same download.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import threading
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from squall_common.config.options.typed import TopologyOptions
from squall_common.daemon import fast_json
from squall_common.daemon.clock import Clock
from squall_common.daemon.files import make_dirs, sync_dir, write_atomic
from squall_common.daemon.logs import get_logger
from squall_common.errors import PackageError, describe
from squall_common.names import (
    code_blob_key,
    conf_blob_key,
    decode_znode,
    encode_znode,
    jar_blob_key,
)
from squall_common.packaging.archive.members import Limits
from squall_common.packaging.archive.unpack import extract
from squall_common.packaging.blob_map import BlobLink, parse_blob_map
from squall_common.security.credentials import CREDENTIALS_FILE, TopologyCredentials
from squall_common.security.curve import KEY_FILE
from squall_common.topology.encryption import has_key
from squall_supervisor.blobs.cache import BlobCache, hash_of
from squall_supervisor.blobs.manifest import first_difference, make_manifest, write_manifest
from squall_supervisor.blobs.source import BlobError, BlobSource, LocalizeError
from squall_supervisor.confine.ownership import let_in, open_tree, readers

if TYPE_CHECKING:
    from squall_supervisor.blobs.environments import Environments, Lease

log = get_logger(__name__)

# How long a package that cannot be unpacked is not fetched again.
_BAD_PACKAGE_SECS = 60.0

_CODE = "stormcode.ser"
_CONF = "stormconf.ser"
_VERSIONS = "versions.json"
_SIGNED = "signed.json"
_ENVIRONMENT = "environment"
_MANIFEST = "manifest.json"


@dataclass(frozen=True, slots=True)
class LocalTopology:
    """A topology that is whole on this disk."""

    topology_id: str
    path: Path
    conf: dict[str, Any]

    @property
    def key_file(self) -> Path | None:
        """Path of its key, if it has one."""
        return self.path / KEY_FILE if has_key(self.conf) else None

    @property
    def credentials_file(self) -> Path | None:
        """Path of its credentials, if it has any."""
        path = self.path / CREDENTIALS_FILE
        return path if path.is_file() else None

    @property
    def blobs(self) -> list[BlobLink]:
        """The blobs that its workers find in their folders. Nimbus has checked the names; any that
        is invalid nevertheless is left out (CVE-2026-82427)."""
        links, problems = parse_blob_map(
            TopologyOptions.read_valid(self.conf).topology_blobstore_map
        )
        for problem in problems:
            log.error("blob_left_out", topology_id=self.topology_id, problem=problem)
        return links


class Localizer:
    """`on_bad_package(topology_id, message)` is called when a package cannot be unpacked."""

    def __init__(
        self,
        stormdist: Path,
        temporary: Path,
        source: BlobSource,
        clock: Clock,
        *,
        limits: Limits,
        downloads_max: int,
        environments: Environments,
        cache: BlobCache | None = None,
        on_bad_package: Callable[[str, str], None] = lambda topology_id, message: None,
        supervisor_id: str = "",
        signed: Callable[[str], Mapping[str, str]] | None = None,
    ) -> None:
        """`signed(topology_id)` returns the hashes of a topology's blobs as Nimbus has signed them,
        or raises ValueError; None: what Nimbus sends counts."""
        self._stormdist = stormdist
        self._temporary = temporary
        self._source = source
        self._clock = clock
        self._limits = limits
        self._downloads = asyncio.Semaphore(downloads_max)
        self._environments = environments
        self.cache = cache
        self._on_bad_package = on_bad_package
        self._supervisor_id = supervisor_id
        self._signed = signed
        self._replacing = threading.Lock()  # while a topology gives way to its next version
        self._under_way: dict[str, asyncio.Task[None]] = {}
        self._bad: dict[str, tuple[float, str]] = {}  # topology -> until when, why

    def prepare(self) -> None:
        """Make the folders, and remove the remains of downloads that a crash interrupted."""
        make_dirs(self._stormdist, mode=0o700)
        shutil.rmtree(self._temporary, ignore_errors=True)
        make_dirs(self._temporary, mode=0o700)
        self._environments.prepare(self._environments_in_use)
        if self.cache is not None:
            self.cache.prepare()

    def _environments_in_use(self) -> set[str]:
        return {
            os.path.basename(os.readlink(link))
            for link in self._stormdist.glob(f"*/{_ENVIRONMENT}")
            if link.is_symlink()
        }

    def path_of(self, topology_id: str) -> Path:
        return self._stormdist / encode_znode(topology_id)

    def topologies(self) -> list[str]:
        """Ids of the topologies on this disk."""
        return sorted(decode_znode(name) for name in os.listdir(self._stormdist))

    def read(self, topology_id: str) -> LocalTopology | None:
        """A topology that is whole on this disk, or None: one that is spoiled is fetched again.
        Reads its configuration."""
        path = self.path_of(topology_id)
        try:
            conf = fast_json.loads((path / _CONF).read_bytes())
            if not isinstance(conf, dict):
                raise ValueError(f"{_CONF} does not hold a JSON object")
            complete = (path / _CODE).is_file() and (path / "code").is_dir()
            link = path / _ENVIRONMENT
            complete = complete and (link.is_dir() or not link.is_symlink())
            # A supervisor from before there were keys may have fetched the rest.
            complete = complete and (not has_key(conf) or (path / KEY_FILE).is_file())
        except FileNotFoundError:
            return None
        except (OSError, ValueError, RecursionError) as error:
            log.warning("topology_unreadable", topology_id=topology_id, path=path, error=error)
            return None
        if not complete:
            return None
        return LocalTopology(topology_id, path, conf)

    async def localize(self, topology_id: str) -> None:
        """Fetch a topology, and the blobs that it names, unless they are here and whole. Raises
        LocalizeError."""
        if not await asyncio.to_thread(self.intact, topology_id):
            await self._shared(topology_id)
        await self._localize_blobs(topology_id)

    def intact(self, topology_id: str) -> bool:
        """Whether a topology is here and every byte is as it was fetched. Reads all of it."""
        if self.read(topology_id) is None or not self.is_as_signed(topology_id):
            return False
        path = self.path_of(topology_id)
        why = first_difference(path, path / _MANIFEST)
        if why is not None:
            log.warning("topology_spoiled", topology_id=topology_id, why=why)
        return why is None

    def is_as_signed(self, topology_id: str) -> bool:
        """Whether what is here has the hashes that Nimbus has signed. In an open cluster: yes."""
        if self._signed is None:
            return True
        try:
            here = json.loads((self.path_of(topology_id) / _SIGNED).read_bytes())
            return bool(here == self._hashes(topology_id))
        except (LocalizeError, OSError, ValueError):
            return False

    def _runs_as_signed(self, topology_id: str, hashes: Mapping[str, str]) -> bool:
        """Whether workers that run may go on. One that was launched before the cluster was secured
        has nothing signed here: its code and its configuration tell, as its package, which is here
        unpacked only, never changes. A new worker begins with nothing but what was signed."""
        path, names = self.path_of(topology_id), _blob_names(topology_id)
        with self._replacing:
            if (path / _SIGNED).exists():
                return self.is_as_signed(topology_id)
            try:
                kept = {key: name for key, name in names.items() if name in (_CODE, _CONF)}
                return all(hash_of(path / name) == hashes[key] for key, name in kept.items())
            except OSError:
                return False

    def _hashes(self, topology_id: str) -> dict[str, str]:
        """The signed hashes of a topology's own blobs. Raises LocalizeError."""
        assert self._signed is not None
        try:
            found = self._signed(topology_id)
            return {key: found[key] for key in _blob_names(topology_id)}
        except ValueError as error:
            raise LocalizeError(str(error)) from error
        except KeyError as error:
            raise LocalizeError(f"the record of {topology_id} lacks {error}") from error

    def refuses(self, topology_id: str) -> bool:
        """Whether the topology's package was fetched and cannot be used here."""
        return topology_id in self._bad

    async def _localize_blobs(self, topology_id: str) -> None:
        topology = await asyncio.to_thread(self.read, topology_id)
        if self.cache is None or topology is None or not topology.blobs:
            return
        try:
            await self.cache.localize(topology.blobs)
        except LocalizeError as error:
            self._on_bad_package(topology_id, str(error))
            raise

    async def update_blobs(self, topology_id: str, worker_dirs: list[Path]) -> bool:
        """Give new versions of its blobs to a topology's workers; returns True if one of the blobs
        requires a restart. Raises LocalizeError."""
        topology = await asyncio.to_thread(self.read, topology_id)
        if self.cache is None or topology is None or not topology.blobs:
            return False
        return bool(await self.cache.update(topology.blobs, worker_dirs))

    async def clean_up(self) -> None:
        """Remove cached blobs that are not in use."""
        if self.cache is not None:
            await asyncio.to_thread(self._clean_up, self.cache)

    def _clean_up(self, cache: BlobCache) -> None:
        found = [self.read(topology_id) for topology_id in self.topologies()]
        cache.clean_up(link for one in found if one is not None for link in one.blobs)

    async def update(self, topology_id: str) -> None:
        """Fetch a topology's newest version in place of the one on this disk. No worker of it may
        be running. Raises LocalizeError, in which case the old version is still here."""
        if await self.changed(topology_id):
            await self._shared(topology_id)
        await self._localize_blobs(topology_id)

    async def changed(self, topology_id: str) -> bool:
        """Whether Nimbus has another version than this disk; in a secured cluster, whether it has
        signed another one. Raises LocalizeError if that cannot be found out now."""
        if self._signed is not None:
            hashes = self._hashes(topology_id)
            return not await asyncio.to_thread(self._runs_as_signed, topology_id, hashes)
        keys = list(_blob_names(topology_id))
        try:
            here = json.loads(await asyncio.to_thread(self._read_versions, topology_id))
            there = await self._source.versions(keys)
        except FileNotFoundError:
            return True
        except (BlobError, OSError, ValueError) as error:
            raise LocalizeError(str(error)) from error
        if not isinstance(here, dict):
            return True
        return any(here.get(key) != there[key] for key in keys)

    def _read_versions(self, topology_id: str) -> bytes:
        with self._replacing:
            return (self.path_of(topology_id) / _VERSIONS).read_bytes()

    async def remove(self, topology_id: str) -> None:
        """Remove a topology from this disk; no worker of it may be running."""
        self._bad.pop(topology_id, None)
        await asyncio.to_thread(self._remove, topology_id)
        log.info("topology_removed", topology_id=topology_id)

    def _remove(self, topology_id: str) -> None:
        """The name disappears at once, the files after it."""
        self._remove_aside(self._set_aside(topology_id))

    def _set_aside(self, topology_id: str) -> Path | None:
        """Take a topology's name away; where its files are now, if there were any."""
        doomed = self._temporary / f"removed-{uuid.uuid4()}"
        try:
            os.rename(self.path_of(topology_id), doomed)
        except FileNotFoundError:
            return None
        return doomed

    def _remove_aside(self, doomed: Path | None) -> None:
        if doomed is not None:
            shutil.rmtree(doomed, ignore_errors=True)
            self._environments.remove_unused()

    async def close(self) -> None:
        """Abandon the downloads that are under way."""
        tasks = list(self._under_way.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _shared(self, topology_id: str) -> None:
        """At most one download per topology at a time; a caller that stops waiting does not stop
        it."""
        bad = self._bad.get(topology_id)
        if bad is not None and self._clock.monotonic() < bad[0]:
            raise LocalizeError(bad[1])
        task = self._under_way.get(topology_id)
        if task is None:
            task = asyncio.create_task(
                self._download(topology_id), name=f"download of {topology_id}"
            )
            self._under_way[topology_id] = task
            task.add_done_callback(lambda done: self._finished(topology_id, done))
        await asyncio.shield(task)

    def _finished(self, topology_id: str, task: asyncio.Task[None]) -> None:
        del self._under_way[topology_id]
        if not task.cancelled():
            task.exception()  # waiting callers get it; there may be none left

    async def _download(self, topology_id: str) -> None:
        began = self._clock.monotonic()
        folder = self._temporary / str(uuid.uuid4())
        names = _blob_names(topology_id)
        try:
            async with self._downloads:
                folder.mkdir(mode=0o700)
                hashes = None if self._signed is None else self._hashes(topology_id)
                versions = await self._source.fetch({k: folder / n for k, n in names.items()})
                if hashes is not None:
                    await asyncio.to_thread(_check_signed, folder, names, hashes)
                await self._fetch_key(topology_id, folder)
                await self._fetch_credentials(topology_id, folder)
                dependencies = await asyncio.to_thread(_dependencies, folder / _CODE)
                lease = await self._environments.obtain(dependencies) if dependencies else None
            try:
                await asyncio.to_thread(self._complete, topology_id, folder, versions, lease)
            finally:
                if lease is not None:
                    lease.release()
        except PackageError as error:
            self._bad[topology_id] = (self._clock.monotonic() + _BAD_PACKAGE_SECS, str(error))
            self._on_bad_package(topology_id, str(error))
            raise LocalizeError(str(error)) from error
        except (BlobError, OSError) as error:
            raise LocalizeError(describe(error)) from error
        finally:
            await asyncio.to_thread(shutil.rmtree, folder, ignore_errors=True)
        log.info(
            "topology_localized",
            topology_id=topology_id,
            ms=round((self._clock.monotonic() - began) * 1000),
        )

    async def _fetch_key(self, topology_id: str, folder: Path) -> None:
        """Fetch the topology's key, if its configuration says that it has one."""
        try:
            if not has_key(fast_json.loads(await asyncio.to_thread((folder / _CONF).read_bytes))):
                return
        except (ValueError, AttributeError, RecursionError):
            return  # a damaged configuration: `_complete` reports it
        key = await self._source.topology_key(topology_id, self._supervisor_id)
        await asyncio.to_thread(write_atomic, folder / KEY_FILE, key, mode=0o600)

    async def _fetch_credentials(self, topology_id: str, folder: Path) -> None:
        """Fetch its credentials, or take those that are here, if they are newer."""
        found = await self._source.topology_credentials(topology_id, self._supervisor_id)
        here = await asyncio.to_thread(self.credentials, topology_id)
        newest = here if found is None or found.number < here.number else found
        if newest.number:
            await asyncio.to_thread(
                write_atomic, folder / CREDENTIALS_FILE, newest.to_bytes(), mode=0o600
            )

    def credentials(self, topology_id: str) -> TopologyCredentials:
        """A topology's credentials as they are here; those without a number if there are none."""
        try:
            data = (self.path_of(topology_id) / CREDENTIALS_FILE).read_bytes()
            return TopologyCredentials.from_bytes(data, topology_id)
        except FileNotFoundError:
            pass
        except (OSError, ValueError) as error:
            log.warning("credentials_unreadable", topology_id=topology_id, error=error)
        return TopologyCredentials(topology_id)

    async def update_credentials(self, topology_id: str) -> bool:
        """Fetch a topology's credentials, and keep them if they are newer than those that are here;
        return whether they are. Raises LocalizeError."""
        try:
            found = await self._source.topology_credentials(topology_id, self._supervisor_id)
            here = await asyncio.to_thread(self.credentials, topology_id)
            if found is None or found.number <= here.number:
                return False
            path = self.path_of(topology_id) / CREDENTIALS_FILE
            await asyncio.to_thread(write_atomic, path, found.to_bytes(), mode=0o600)
        except (BlobError, OSError) as error:
            raise LocalizeError(describe(error)) from error
        return True

    def _complete(
        self, topology_id: str, folder: Path, versions: dict[str, int], lease: Lease | None
    ) -> None:
        """Unpack, check and fsync it, then give it its name."""
        package = folder / _PACKAGE
        code = folder / "code"
        code.mkdir()
        extract(package, code, self._limits)
        package.unlink()
        open_tree(code)
        if (code / "resources").is_dir():
            (folder / "resources").symlink_to("code/resources")
        else:
            (folder / "resources").mkdir()
            open_tree(folder / "resources")
        try:
            if not isinstance(fast_json.loads((folder / _CONF).read_bytes()), dict):
                raise ValueError("it is not a JSON object")
        except (ValueError, RecursionError) as error:
            raise BlobError(f"the configuration of {topology_id} is damaged: {error}") from error
        if lease is not None:
            (folder / _ENVIRONMENT).symlink_to(lease.path)
        (folder / _VERSIONS).write_text(json.dumps(versions))
        signed = [_SIGNED] if (folder / _SIGNED).exists() else []
        for name in (_CODE, _CONF, _VERSIONS, *signed):
            open_tree(folder / name)
            _sync_file(folder / name)
        manifested = [_CODE, _CONF, _VERSIONS, "code", *signed]
        if (folder / KEY_FILE).exists():
            manifested.append(KEY_FILE)
        write_manifest(folder / _MANIFEST, make_manifest(folder, *manifested))
        sync_dir(folder)
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            for uid in readers(self.path_of(topology_id)):
                let_in(folder, uid)  # its workers on other slots keep reading
        with self._replacing:
            old = self._set_aside(topology_id)
            os.rename(folder, self.path_of(topology_id))
        sync_dir(self._stormdist)
        self._remove_aside(old)


_PACKAGE = "stormjar.jar"


def _check_signed(folder: Path, names: Mapping[str, str], hashes: Mapping[str, str]) -> None:
    """Note the hashes of what was fetched. Raises BlobError for what Nimbus has not signed."""
    for key, name in names.items():
        if hash_of(folder / name) != hashes[key]:
            raise BlobError(f"the bytes of {key} are not those that Nimbus has signed")
    (folder / _SIGNED).write_text(json.dumps(hashes))


def _dependencies(code: Path) -> list[str]:
    """The blob keys of the wheels that a stored topology depends on. (dependency_jars are for
    Storm's JVM.)"""
    from squall_thrift import storm
    from squall_thrift.codec import from_bytes

    try:
        topology = from_bytes(storm.StormTopology, code.read_bytes())
    except ValueError as error:
        raise BlobError(f"the topology in {code.name} is damaged: {error}") from error
    return sorted(topology.dependency_artifacts or ())


def _blob_names(topology_id: str) -> dict[str, str]:
    return {
        jar_blob_key(topology_id): _PACKAGE,
        code_blob_key(topology_id): _CODE,
        conf_blob_key(topology_id): _CONF,
    }


def _sync_file(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
