"""Blobs of users on this disk, shared by the workers that name them in `topology.blobstore.map`.

    {storm.local.dir}/supervisor/blobs/HASH/       HASH of the key; HASH.d for unpacked archives
        key            the key
        current        the version that new workers get
        VERSION/data   the file, or the folder of the archive's files
        VERSION/manifest.json
    {storm.local.dir}/workers/WORKER_ID/LOCALNAME -> .../VERSION/data
    {storm.local.dir}/workers/WORKER_ID/blobs.json      the versions that this worker was ever given

A version is fetched and unpacked in a temporary folder, fsynced and renamed, so that it is either
whole or absent. To update a running worker, its link is renamed: at each moment the name leads to
one whole version. The old version stays for as long as the worker lives, since the worker may have
it open or be running it. There are no reference counts: the workers' folders show which versions
are in use, so a supervisor that is killed loses nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import os
import shutil
import threading
import uuid
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from squall_common.daemon.files import sync_dir, write_atomic
from squall_common.daemon.logs import get_logger
from squall_common.errors import PackageError
from squall_common.packaging.archive.members import Limits
from squall_common.packaging.archive.unpack import extract
from squall_common.packaging.blob_map import BlobLink
from squall_supervisor.blobs.manifest import first_difference, make_manifest, write_manifest
from squall_supervisor.blobs.source import BlobError, BlobSource, LocalizeError
from squall_supervisor.confine.ownership import grant, open_passage, open_tree, owner_of, read_own

log = get_logger(__name__)

# An interpreter with its library has thousands of files, a model is large.
BLOB_LIMITS = Limits(entries_max=100_000, total_bytes_max=8 * 1024**3, ratio_max=200)
LINKS_FILE = "blobs.json"


@dataclass(frozen=True, slots=True)
class Version:
    """One version of a blob on this disk."""

    link: BlobLink
    number: int
    folder: Path

    @property
    def data(self) -> Path:
        return self.folder / "data"

    def let_in(self, uid: int) -> None:
        """Let a user read it. Raises OSError."""
        open_passage(self.folder.parent)
        grant(self.folder, uid)


class BlobCache:
    """The blobs under one folder; `workers_dir` shows which of them are in use."""

    def __init__(
        self,
        folder: Path,
        temporary: Path,
        workers_dir: Path,
        source: BlobSource,
        *,
        target_bytes: int,
        limits: Limits = BLOB_LIMITS,
        is_signed: Callable[[str, str], bool] | None = None,
    ) -> None:
        """`is_signed(key, sha256)` returns whether a topology of this node may have these bytes;
        None: all that Nimbus sends."""
        self._folder = folder
        self._temporary = temporary
        self._workers_dir = workers_dir
        self._source = source
        self._target_bytes = target_bytes
        self._limits = limits
        self._is_signed = is_signed
        self._locks: dict[Path, asyncio.Lock] = {}
        # No version is deleted between the moment it is chosen and the moment it counts as used.
        self._choosing = threading.Lock()
        self._sizes: dict[Path, int] = {}  # of versions, which never change, in bytes

    def prepare(self) -> None:
        """Make the folder."""
        self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)

    # What is here

    def current(self, link: BlobLink) -> Version | None:
        """The version that a new worker gets; None if there is none."""
        home = self._home(link)
        try:
            number = int((home / "current").read_text())
        except (OSError, ValueError):
            return None
        version = Version(link, number, home / str(number))
        return version if os.path.lexists(version.data) else None

    async def localize(self, links: Iterable[BlobLink], *, newest: bool = True) -> None:
        """Fetch a whole version of each blob: the newest one or, while Nimbus cannot be asked, any
        that is already here. A spoiled version is fetched again. Raises LocalizeError."""
        wanted = list(links)
        versions = await self._versions(wanted) if newest else {}
        for link in wanted:
            async with self._lock(link):
                here = self.current(link)
                number = versions.get(link.key)
                if here is not None and (number is None or number == here.number):
                    why = await asyncio.to_thread(
                        first_difference, here.folder, here.folder / "manifest.json"
                    )
                    if why is None:
                        continue
                    log.warning("cached_blob_spoiled", key=link.key, version=here.number, why=why)
                await self._fetch(link)

    async def _versions(self, links: Collection[BlobLink]) -> Mapping[str, int]:
        if not links:
            return {}
        try:
            return await self._source.versions([link.key for link in links])
        except BlobError as error:
            if any(self.current(link) is None for link in links):
                raise LocalizeError(str(error)) from error
            log.info("blob_versions_not_known", keys=[x.key for x in links], error=error)
            return {}

    async def _fetch(self, link: BlobLink) -> None:
        folder = self._temporary / str(uuid.uuid4())
        name = "archive" if link.uncompress else "data"
        try:
            await asyncio.to_thread(folder.mkdir, mode=0o700)
            versions = await self._source.fetch({link.key: folder / name})
            if self._is_signed is not None:
                digest = await asyncio.to_thread(hash_of, folder / name)
                if not self._is_signed(link.key, digest):
                    raise BlobError("its bytes are not those that Nimbus has signed")
            await asyncio.to_thread(self._complete, link, versions[link.key], folder)
        except PackageError as error:
            raise LocalizeError(f"blob {link.key} cannot be unpacked: {error}") from error
        except (BlobError, OSError) as error:
            raise LocalizeError(f"blob {link.key}: {error}") from error
        finally:
            await asyncio.to_thread(shutil.rmtree, folder, ignore_errors=True)
        log.info("blob_localized", key=link.key, version=versions[link.key])

    def _complete(self, link: BlobLink, number: int, folder: Path) -> None:
        data = folder / "data"
        if link.uncompress:
            data.mkdir()
            extract(folder / "archive", data, self._limits, blob=True)
            (folder / "archive").unlink()
            open_tree(data)
        else:
            open_tree(data)
            _sync_file(data)
        write_manifest(folder / "manifest.json", make_manifest(folder, "data"))
        home = self._home(link)
        with self._choosing:
            home.mkdir(mode=0o700, exist_ok=True)
            write_atomic(home / "key", link.key.encode())
            target = home / str(number)
            if target.exists():  # damaged: workers that run it keep its open files
                target.rename(self._temporary / f"spoiled-{uuid.uuid4()}")
                self._sizes.pop(target, None)
            folder.rename(target)
            sync_dir(home)
            write_atomic(home / "current", str(number).encode())

    # Workers' folders

    def link(self, worker_dir: Path, links: Iterable[BlobLink], reader: int | None = None) -> None:
        """Make a new worker's links, and let the user `reader` (None: this process's user) read
        what they lead to. Raises OSError, and FileNotFoundError if a blob is not here."""
        with self._choosing:
            self._link(worker_dir, links, reader)

    def _link(self, worker_dir: Path, links: Iterable[BlobLink], reader: int | None) -> None:
        given: dict[str, dict[str, Any]] = {}
        versions = []
        for link in links:
            version = self.current(link)
            if version is None:
                raise FileNotFoundError(f"blob {link.key} is not here")
            versions.append(version)
            if reader is not None:
                version.let_in(reader)
            given[link.local_name] = {
                "key": link.key,
                "uncompress": link.uncompress,
                "versions": [version.number],
            }
        if versions:
            write_atomic(worker_dir / LINKS_FILE, json.dumps(given).encode())  # counts from here on
            for version in versions:
                (worker_dir / version.link.local_name).symlink_to(version.data)

    def relink(self, worker_dir: Path, version: Version) -> bool:
        """Point a running worker's name at `version`; returns whether it led elsewhere before."""
        link = version.link
        given = _read_links(worker_dir)
        entry = given.get(link.local_name)
        name = worker_dir / link.local_name
        if entry is None:
            return False
        if entry["versions"][-1:] == [version.number] and _leads_to(name, version.data):
            return False  # else a crash or full disk came between list and link
        owner = owner_of(worker_dir)
        if owner is not None and owner != os.geteuid():
            version.let_in(owner)
        entry["versions"] = [n for n in entry["versions"] if n != version.number] + [version.number]
        write_atomic(worker_dir / LINKS_FILE, json.dumps(given).encode())
        temporary = worker_dir / f".squall-{uuid.uuid4()}"
        temporary.symlink_to(version.data)
        try:
            os.replace(temporary, name)
        except OSError:
            temporary.unlink(missing_ok=True)
            raise
        return True

    async def update(
        self, links: Iterable[BlobLink], worker_dirs: Collection[Path]
    ) -> list[BlobLink]:
        """Fetch new versions and give them to these workers of one topology. Returns the blobs
        whose new version requires a restart instead. Raises LocalizeError if anything could not be
        done this time."""
        links = list(links)
        versions = await self._versions(links)
        restart = []
        for link in links:
            here = self.current(link)
            number = versions.get(link.key)
            if link.worker_restart:
                if number is not None and await asyncio.to_thread(
                    self._is_behind, link, number, worker_dirs
                ):
                    restart.append(link)
                continue
            if number is not None and (here is None or here.number != number):
                async with self._lock(link):
                    here = self.current(link)
                    if here is None or here.number != number:
                        await self._fetch(link)
                        here = self.current(link)
            if here is not None:
                await asyncio.to_thread(self._relink_all, here, worker_dirs)
        return restart

    def _relink_all(self, version: Version, worker_dirs: Collection[Path]) -> None:
        for worker_dir in worker_dirs:
            try:
                with self._choosing:
                    changed = self.relink(worker_dir, version)
                if changed:
                    log.info(
                        "blob_updated", key=version.link.key, version=version.number,
                        worker_id=worker_dir.name,
                    )  # fmt: skip
            except OSError as error:  # its worker has just ended, or the disk is full
                log.warning("blob_not_updated", worker_id=worker_dir.name, error=error)

    def _is_behind(self, link: BlobLink, number: int, worker_dirs: Collection[Path]) -> bool:
        for worker_dir in worker_dirs:
            entry = _read_links(worker_dir).get(link.local_name)
            if entry is not None and entry["versions"][-1:] != [number]:
                return True
        return False

    # Clean-up

    def clean_up(self, wanted: Iterable[BlobLink]) -> None:
        """Delete versions that no worker was given and that are not current. While the cache is
        larger than its target, also delete blobs that no worker and no topology here uses, the
        least recently used first."""
        with self._choosing:
            doomed = self._put_aside(wanted)
        for folder in doomed:  # launches do not wait for this
            shutil.rmtree(folder, ignore_errors=True)

    def _put_aside(self, wanted: Iterable[BlobLink]) -> list[Path]:
        """Rename what is to be deleted; returns the new paths."""
        in_use = self._in_use()
        doomed: list[Path] = []
        sizes: dict[Path, int] = {}
        homes_wanted = {self._home(link) for link in wanted}
        unused: list[tuple[float, Path, int]] = []
        total = 0
        for home in sorted(self._folder.iterdir()):
            current = _text(home / "current")
            size = 0
            for folder in sorted(path for path in home.iterdir() if path.is_dir()):
                if folder not in in_use and folder.name != current:
                    log.info("blob_version_removed", key=_text(home / "key"), version=folder.name)
                    doomed.append(self._rename_aside(folder))
                else:
                    known = self._sizes.get(folder)
                    sizes[folder] = _bytes_under(folder) if known is None else known
                    size += sizes[folder]
            total += size
            if home in homes_wanted or any(folder.parent == home for folder in in_use):
                with contextlib.suppress(OSError):
                    os.utime(home)
            else:
                unused.append((home.stat().st_mtime, home, size))
        for _, home, size in sorted(unused):
            if total <= self._target_bytes:
                break
            log.info("blob_evicted", key=_text(home / "key"), bytes=size)
            doomed.append(self._rename_aside(home))
            total -= size
        self._sizes = {folder: size for folder, size in sizes.items() if folder.exists()}
        return doomed

    def _rename_aside(self, folder: Path) -> Path:
        self._temporary.mkdir(exist_ok=True)
        aside = self._temporary / f"evicted-{uuid.uuid4()}"
        folder.rename(aside)
        return aside

    def _in_use(self) -> set[Path]:
        """Folders of the versions that any worker's folder names."""
        found: set[Path] = set()
        if not self._workers_dir.is_dir():
            return found
        for worker_dir in self._workers_dir.iterdir():
            for name, entry in _read_links(worker_dir).items():
                home = self._home(BlobLink(entry["key"], name, entry["uncompress"]))
                found.update(home / str(number) for number in entry["versions"])
        return found

    def _home(self, link: BlobLink) -> Path:
        name = hashlib.sha256(link.key.encode(errors="surrogatepass")).hexdigest()
        return self._folder / (f"{name}.d" if link.uncompress else name)

    def _lock(self, link: BlobLink) -> asyncio.Lock:
        return self._locks.setdefault(self._home(link), asyncio.Lock())


def _read_links(worker_dir: Path) -> dict[str, dict[str, Any]]:
    """The links that a worker was given; empty if it was given none."""
    try:
        value = json.loads(read_own(worker_dir / LINKS_FILE))
        for entry in value.values():
            entry["key"], entry["uncompress"], entry["versions"]
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except (OSError, ValueError, AttributeError, TypeError, KeyError, RecursionError) as error:
        log.warning("blob_links_unreadable", worker_dir=worker_dir, error=error)
        return {}
    links: dict[str, dict[str, Any]] = value
    return links


def _leads_to(link: Path, target: Path) -> bool:
    try:
        return os.readlink(link) == str(target)
    except OSError:
        return False


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except (OSError, ValueError):
        return ""


def _bytes_under(folder: Path) -> int:
    total = 0
    for path, _, names in os.walk(folder):
        for name in names:
            with contextlib.suppress(OSError):
                total += os.lstat(os.path.join(path, name)).st_size
    return total


def hash_of(path: Path) -> str:
    """The SHA-256 of a file, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _sync_file(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
