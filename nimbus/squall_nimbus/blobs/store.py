"""The blob store of one Nimbus: named, versioned files on the local disk.

    {blobs}/{sha256 of the key}/data.{version}
    {blobs}/{sha256 of the key}/meta.json      key, version, size, hash, access list

A blob exists if it has a `meta.json`. That file is replaced atomically once the data is on disk, so
a crash leaves either the old version or the new one, and files of neither are removed at the next
start. A reader keeps its file open and reads one version to the end, whatever is written or deleted
meanwhile. Folders are named by a hash, so that no key can leave the folder or be too long.

ZooKeeper, not this store, decides which version of a blob counts in the whole cluster
(`replication`). A blob that ZooKeeper does not know is put aside for a while before it is deleted:

    {blobs}/aside/{sha256 of the key}.{epoch milliseconds}/

Everything here blocks on the disk: the sessions (`blob_sessions`) call it from threads.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import re
import shutil
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import BinaryIO

from squall_common.cluster.values import Access, BlobMeta
from squall_common.daemon.files import make_private_dirs, sync_dir, write_atomic
from squall_common.daemon.logs import get_logger
from squall_common.errors import SquallError
from squall_common.names import character_error

log = get_logger(__name__)

# A key is the name of one znode.
_KEY_FORBIDDEN = re.compile(r"[/\\\x00-\x1f\x7f-\x9f\ud800-\uf8ff\ufff0-\uffff]")
_KEY_BYTES_MAX = 512


__all__ = ["Access", "BlobExistsError", "BlobMeta", "BlobNotFoundError", "BlobStore", "BlobWriter"]


class BlobNotFoundError(Exception):
    """No blob has the key."""


class BlobExistsError(Exception):
    """The key to create already exists."""


def key_error(key: str) -> str | None:
    """Return why `key` cannot name a blob, or None if it can."""
    if not key or key in {".", ".."}:
        return f"{key!r} is not a valid blob key"
    if _KEY_FORBIDDEN.search(key):
        return f"blob key {key!r} may not contain '/', '\\' or control characters"
    if (why := character_error(key)) is not None:
        return f"blob key {key!r} has {why}"
    if len(key.encode(errors="replace")) > _KEY_BYTES_MAX:
        return f"blob key {key[:40]!r}... is longer than {_KEY_BYTES_MAX} bytes"
    return None


@contextlib.contextmanager
def disk_errors(what: str, folder: Path) -> Iterator[None]:
    """Turn a disk error into a SquallError that says what could not be stored."""
    try:
        yield
    except OSError as error:
        if error.errno in {errno.ENOSPC, errno.EDQUOT}:
            raise SquallError(
                f"cannot store {what}: the disk of Nimbus is full",
                hint=f"Free space on the file system of {folder} on Nimbus' host.",
            ) from error
        raise SquallError(f"cannot store {what} on Nimbus: {error.strerror or error}") from error


class BlobStore:
    """The blobs under one folder. Safe to use from several threads of one process; only one
    process may use a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._lock = threading.Lock()
        self._metas: dict[str, BlobMeta] = {}
        self._writing = folder / "writing"
        self._aside = folder / "aside"
        self._last_version = 0

    def open(self) -> None:
        """Read the existing blobs, and remove what a crash left half done."""
        make_private_dirs(self.folder)
        shutil.rmtree(self._writing, ignore_errors=True)
        self._writing.mkdir()
        self._aside.mkdir(exist_ok=True)
        for home in self.folder.iterdir():
            if home in {self._writing, self._aside} or not home.is_dir():
                continue
            meta = _read_meta(home / "meta.json")
            if meta is None or self._home(meta.key) != home:
                log.warning("blob_half_written_removed", folder=home.name)
                shutil.rmtree(home, ignore_errors=True)
                continue
            self._metas[meta.key] = meta
            self._last_version = max(self._last_version, meta.version)
            for file in home.iterdir():
                if file.name not in {"meta.json", f"data.{meta.version}"}:
                    file.unlink()

    def all_keys(self) -> list[str]:
        """All keys, sorted."""
        return sorted(self._metas)

    def bytes_of(self, owner: str) -> int:
        """The bytes of all blobs of an owner."""
        with self._lock:
            return sum(meta.size for meta in self._metas.values() if meta.owner == owner)

    def __contains__(self, key: object) -> bool:
        return key in self._metas

    def meta(self, key: str) -> BlobMeta:
        """Return a blob's meta. Raises BlobNotFoundError."""
        try:
            return self._metas[key]
        except KeyError:
            raise BlobNotFoundError(key) from None

    def find(self, key: str) -> BlobMeta | None:
        """Return a blob's meta, or None if there is no such blob."""
        return self._metas.get(key)

    def path(self, key: str) -> Path:
        """Return the file of the blob's current version. Raises BlobNotFoundError."""
        return self._home(key) / f"data.{self.meta(key).version}"

    def read(self, key: str) -> bytes:
        """Return the whole content. Raises BlobNotFoundError."""
        file, _ = self.open_read(key)
        with file:
            return file.read()

    def open_read(self, key: str) -> tuple[BinaryIO, BlobMeta]:
        """Open the current version at its start. Raises BlobNotFoundError."""
        with self._lock:
            meta = self.meta(key)
            return (self._home(key) / f"data.{meta.version}").open("rb"), meta

    def write(self, key: str, *, create: bool, acl: tuple[Access, ...] | None = None,
              replication: int | None = None, owner: str | None = None) -> BlobWriter:  # fmt: skip
        """Begin a new blob or a new version of one. An access list of None keeps the old one; the
        owner of a blob that exists stays.

        Raises BlobExistsError or BlobNotFoundError, and SquallError for an invalid key.
        """
        if (why := key_error(key)) is not None:
            raise SquallError(why)
        self._check(key, create)
        present = self._metas.get(key)
        owner = owner if present is None else present.owner
        return BlobWriter(self, key, self._writing, create, acl, replication, owner)

    def put(
        self, key: str, data: bytes, *, acl: tuple[Access, ...] | None = None, above: int = 0,
        owner: str | None = None,
    ) -> BlobMeta:  # fmt: skip
        """Store a whole blob; if it exists with other content, as a new version, which is higher
        than `above`, too."""
        if key in self and self.meta(key).sha256 == hashlib.sha256(data).hexdigest():
            return self.meta(key)
        writer = self.write(key, create=key not in self, acl=acl, owner=owner)
        writer.write(data)
        return writer.commit(above=above)

    def put_file(
        self, key: str, source: Path, *, acl: tuple[Access, ...] | None = None,
        owner: str | None = None,
    ) -> BlobMeta:  # fmt: skip
        """Store a finished file as a new blob, sharing its bytes on disk where possible."""
        with disk_errors(f"blob {key}", self.folder):
            target = self._writing / f"link.{os.urandom(8).hex()}"
            try:
                os.link(source, target)
            except OSError:
                shutil.copyfile(source, target)
            with target.open("rb") as file:
                os.fsync(file.fileno())
                digest = hashlib.file_digest(file, "sha256").hexdigest()
        return self._commit(target, key, key not in self, digest, acl, None, owner)

    def receive(self, meta: BlobMeta) -> BlobWriter:
        """Begin a copy of a version that another Nimbus has; it replaces the version here."""
        if (why := key_error(meta.key)) is not None:
            raise SquallError(why)
        return BlobWriter(
            self, meta.key, self._writing, True, meta.acl, meta.replication, meta.owner
        )

    def put_aside(self, key: str) -> None:
        """Remove a blob without deleting its bytes yet. Raises BlobNotFoundError."""
        with self._lock:
            self.meta(key)
            home = self._home(key)
            with disk_errors(f"blob {key}", self.folder):
                home.rename(self._aside / f"{home.name}.{time.time_ns() // 1_000_000}")
                del self._metas[key]  # it is removed, even if the rest fails
                sync_dir(self.folder)

    def remove_aside(self, older_than_secs: float) -> None:
        """Delete what was put aside more than `older_than_secs` ago."""
        oldest = time.time() - older_than_secs
        for entry in self._aside.iterdir():
            since = entry.name.rpartition(".")[2]
            if not since.isdecimal() or int(since) / 1000 <= oldest:
                shutil.rmtree(entry, ignore_errors=True)

    def set_meta(self, key: str, *, acl: tuple[Access, ...] | None = None,
                 replication: int | None = None) -> None:  # fmt: skip
        """Change the access list or the replication; the version stays. Raises
        BlobNotFoundError."""
        with self._lock:
            meta = self.meta(key)
            meta = replace(
                meta,
                acl=meta.acl if acl is None else acl,
                replication=meta.replication if replication is None else replication,
            )
            with disk_errors(f"blob {key}", self.folder):
                _write_meta(self._home(key), meta)
            self._metas[key] = meta

    def delete(self, key: str) -> None:
        """Delete a blob. Raises BlobNotFoundError."""
        with self._lock:
            self.meta(key)
            home = self._home(key)
            (home / "meta.json").unlink(missing_ok=True)  # from here on it does not exist
            del self._metas[key]
            try:
                sync_dir(home)
            finally:
                shutil.rmtree(home, ignore_errors=True)

    def _home(self, key: str) -> Path:
        return self.folder / hashlib.sha256(key.encode()).hexdigest()

    def _check(self, key: str, create: bool) -> None:
        if create and key in self._metas:
            raise BlobExistsError(key)
        if not create and key not in self._metas:
            raise BlobNotFoundError(key)

    def _commit(
        self,
        file: Path,
        key: str,
        create: bool,
        sha256: str,
        acl: tuple[Access, ...] | None,
        replication: int | None,
        owner: str | None,
        *,
        above: int = 0,
        exactly: int | None = None,
    ) -> BlobMeta:
        """Make the finished `file` (synced) the current version; it is moved away in any case."""
        try:
            with self._lock, disk_errors(f"blob {key}", self.folder):
                if exactly is None:
                    self._check(key, create)
                old = self._metas.get(key)
                version = exactly or max(
                    self._last_version + 1, above + 1, time.time_ns() // 1_000_000
                )
                meta = BlobMeta(
                    key,
                    version,
                    file.stat().st_size,
                    sha256,
                    acl if acl is not None else (old.acl if old else ()),
                    replication if replication is not None else (old.replication if old else 1),
                    owner,
                )
                home = self._home(key)
                home.mkdir(exist_ok=True)
                os.replace(file, home / f"data.{version}")
                _write_meta(home, meta)
                if old is None:
                    sync_dir(self.folder)
                elif old.version != version:
                    (home / f"data.{old.version}").unlink(missing_ok=True)
                self._metas[key] = meta
                self._last_version = max(self._last_version, version)
                return meta
        finally:
            file.unlink(missing_ok=True)


class BlobWriter:
    """One version being written; it is not visible before `commit`."""

    def __init__(
        self,
        store: BlobStore,
        key: str,
        folder: Path,
        create: bool,
        acl: tuple[Access, ...] | None,
        replication: int | None,
        owner: str | None,
    ) -> None:
        self.key = key
        self.owner = owner
        self.size = 0
        self._store = store
        self._create = create
        self._acl = acl
        self._replication = replication
        self._path = folder / f"blob.{os.urandom(8).hex()}"
        self._hash = hashlib.sha256()
        with disk_errors(f"blob {key}", folder):
            # Only this daemon reads blobs from its disk; some are secrets (`keys`).
            self._path.touch(mode=0o600)
            self._file = self._path.open("wb")

    def write(self, chunk: bytes) -> None:
        """Append. Raises SquallError on a disk error, which discards the version."""
        try:
            with disk_errors(f"blob {self.key}", self._path.parent):
                self._file.write(chunk)
        except SquallError:
            self.abort()
            raise
        self._hash.update(chunk)
        self.size += len(chunk)

    @property
    def sha256(self) -> str:
        """The hash of the bytes written so far, in hexadecimal."""
        return self._hash.hexdigest()

    def commit(self, *, above: int = 0) -> BlobMeta:
        """Make it the current version, on disk, with a version number greater than `above`. Raises
        BlobExistsError or BlobNotFoundError if another writer was faster, SquallError on a disk
        error; then nothing has changed."""
        self._finish()
        return self._store._commit(
            self._path,
            self.key,
            self._create,
            self._hash.hexdigest(),
            self._acl,
            self._replication,
            self.owner,
            above=above,
        )

    def commit_as(self, meta: BlobMeta) -> BlobMeta:
        """Make it the current version, which must be the one that `meta` describes. Raises
        SquallError for other bytes, or on a disk error; then nothing has changed."""
        self._finish()
        if (self.size, self._hash.hexdigest()) != (meta.size, meta.sha256):
            self._path.unlink(missing_ok=True)
            raise SquallError(f"blob {meta.key}: the bytes received are not version {meta.version}")
        return self._store._commit(
            self._path,
            self.key,
            self._create,
            meta.sha256,
            meta.acl,
            meta.replication,
            meta.owner,
            exactly=meta.version,
        )

    def _finish(self) -> None:
        """Get all bytes onto the disk."""
        try:
            with disk_errors(f"blob {self.key}", self._path.parent):
                self._file.flush()
                os.fsync(self._file.fileno())
        except SquallError:
            self.abort()
            raise
        self._file.close()

    def abort(self) -> None:
        """Discard it."""
        with contextlib.suppress(OSError):  # closing flushes, which may fail on a full disk
            self._file.close()
        self._path.unlink(missing_ok=True)


def _write_meta(home: Path, meta: BlobMeta) -> None:
    value = {
        "key": meta.key,
        "version": meta.version,
        "size": meta.size,
        "sha256": meta.sha256,
        "acl": [[a.type, a.name, a.access] for a in meta.acl],
        "replication": meta.replication,
        "owner": meta.owner,
    }
    write_atomic(home / "meta.json", json.dumps(value).encode(), mode=0o600)


def _read_meta(path: Path) -> BlobMeta | None:
    """Returns None if there is no complete blob."""
    try:
        value = json.loads(path.read_bytes())
        meta = BlobMeta(
            value["key"],
            value["version"],
            value["size"],
            value["sha256"],
            tuple(Access(*entry) for entry in value["acl"]),
            value["replication"],
            value.get("owner"),  # of a blob that an earlier version stored there is none
        )
        data = path.parent / f"data.{meta.version}"
        return meta if data.stat().st_size == meta.size else None
    except (OSError, ValueError, KeyError, TypeError):
        return None
