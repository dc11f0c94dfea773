"""Unpacking archives that strangers made: files and folders only, inside the target, within caps.

The standard library's extractors are not enough: `zipfile.extractall` unpacks a 50 MB bomb from
49 KB and makes plain files of links, and tarfile's `data` filter was seen to write outside its
target on CPython 3.11. Here every name is checked before anything is written, the bytes that come
out are counted (what the headers say is only a claim), and files are made relative to folder
descriptors without following links, so that nothing that happens in the target meanwhile can lead
the writes elsewhere.

What is kept of a member: its name, its bytes and whether it is executable. Never setuid, owners,
times or devices. Links only when the caller wants them (archives of the blob store: a Python
interpreter is full of them): symbolic ones that are relative and stay inside whatever other links
they pass through, made after everything else; a hard link becomes a copy.
"""

from __future__ import annotations

import lzma
import os
import struct
import tarfile
import time
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from squall_common.daemon.files import sync_tree
from squall_common.errors import PackageError
from squall_common.packaging.archive import read_tar, read_zip
from squall_common.packaging.archive.members import (
    Limits,
    Member,
    check_links,
    check_names,
    refusal,
)

_CHUNK_BYTES = 256 * 1024
_RATIO_FLOOR_BYTES = 1024 * 1024  # small archives may well compress 1000:1


# What zipfile raises on bytes that are no proper archive, as fuzzing has it.
_DAMAGE = (
    zipfile.BadZipFile, zlib.error, struct.error, EOFError, NotImplementedError, ValueError,
    RuntimeError, OverflowError, tarfile.TarError, lzma.LZMAError,
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Extracted:
    """The result of unpacking an archive."""

    files: int
    total_bytes: int


def extract(
    archive: Path,
    target: Path,
    limits: Limits | None = None,
    *,
    blob: bool = False,
    sync: bool = True,
) -> Extracted:
    """Unpack an archive into `target`, an empty folder that exists: a package (.zip, .jar, .pyz,
    .pex), or a `blob`, which may also be a tar archive (.tar, .tgz, .tar.bz2, .tar.xz) and hold
    symbolic links. With `sync` everything is on disk when it returns.

    Raises PackageError that names the archive and the member, and OSError when the disk fails or is
    full; the caller then removes `target`, which may hold part of the archive.
    """
    limits = limits or Limits()
    with _opened(archive, limits, blob) as (members, size):
        return _Writer(archive, target, limits, size).write(members, sync=sync)


def check(archive: Path, limits: Limits | None = None, *, content_secs: float = 0.0) -> None:
    """Raise PackageError for a package that `extract` would refuse, and write nothing.

    Names, kinds, links and sizes are checked as the archive states them. Then the members are read,
    for as much as `content_secs` of this thread's processor time: a damaged one is found, and one
    that lies about its size. What lies beyond that is left to `extract`. Raises OSError when the
    disk fails.
    """
    limits = limits or Limits()
    with _opened(archive, limits) as (members, size):
        left = _bytes_max(limits, size)
        for member in members:
            left -= member.size_bytes
            if left < 0:
                raise _too_big(archive, member.name, limits, size)
        reader = _Reader(archive, limits, size)
        until = time.thread_time() + content_secs
        for member in members:
            if time.thread_time() >= until:
                return
            for _ in reader.chunks(member):
                if time.thread_time() >= until:
                    return


def list_files(archive: Path, limits: Limits | None = None) -> list[str]:
    """The files in an archive, as paths with '/', sorted. Raises PackageError for all that
    `extract` would refuse before it unpacks."""
    with _opened(archive, limits or Limits()) as (members, _):
        return sorted("/".join(member.path) for member in members if not member.is_dir)


@contextmanager
def _opened(
    archive: Path, limits: Limits, blob: bool = False
) -> Iterator[tuple[list[Member], int]]:
    with archive.open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        try:
            if blob and read_tar.is_tar(file):
                with read_tar.members(file, archive, limits, size) as found:
                    check_names(found, archive, limits)
                    check_links(found, archive)
                    yield found, size
                return
            if not zipfile.is_zipfile(file):
                if blob:
                    raise PackageError(
                        f"{archive.name} is not an archive",
                        hint="an archive is a .zip, .jar, .tar, .tgz, .tar.bz2 or .tar.xz file",
                    )
                raise PackageError(
                    f"{archive.name} is not an archive",
                    hint="a package is a .zip, .jar, .pyz or .pex file, or a folder",
                )
            read_zip.check_directory(file, archive, size, limits)
            file.seek(0)
            with zipfile.ZipFile(file) as zip_file:
                found = list(read_zip.members(zip_file, archive, links=blob))
                check_names(found, archive, limits)
                check_links(found, archive)
                yield found, size
        except _DAMAGE as error:
            raise _damaged(archive, error) from error
        except OSError as error:
            # bz2 and gzip raise it for damaged data; what the disk raises has a number.
            if error.errno is not None:
                raise
            raise _damaged(archive, error) from error


def _damaged(archive: Path, error: Exception) -> PackageError:
    return PackageError(f"{archive.name} is damaged: {error}")


# Writing.


def _bytes_max(limits: Limits, archive_bytes: int) -> int:
    return min(limits.total_bytes_max, max(limits.ratio_max * archive_bytes, _RATIO_FLOOR_BYTES))


def _too_big(archive: Path, name: str, limits: Limits, archive_bytes: int) -> PackageError:
    if _bytes_max(limits, archive_bytes) == limits.total_bytes_max:
        return refusal(
            archive, name, f"goes beyond the limit of {limits.total_bytes_max} bytes in all"
        )
    return refusal(archive, name, f"unpacks to more than {limits.ratio_max} times the archive")


class _Reader:
    """Reads members and counts what comes out."""

    def __init__(self, archive: Path, limits: Limits, archive_bytes: int) -> None:
        self._archive = archive
        self._limits = limits
        self._archive_bytes = archive_bytes
        self._left = _bytes_max(limits, archive_bytes)
        self.total = 0

    def chunks(self, member: Member) -> Iterator[bytes]:
        """A file's bytes. Raises PackageError at the first one too many."""
        if member.open is None:
            return
        with member.open() as source:
            while chunk := source.read(_CHUNK_BYTES):
                self.total += len(chunk)
                if self.total > self._left:
                    raise _too_big(self._archive, member.name, self._limits, self._archive_bytes)
                yield chunk


class _Writer:
    def __init__(self, archive: Path, target: Path, limits: Limits, archive_bytes: int) -> None:
        self._target = target
        self._reader = _Reader(archive, limits, archive_bytes)
        self._folders = 0

    def write(self, members: list[Member], *, sync: bool) -> Extracted:
        files = 0
        with ExitStack() as stack:
            root = os.open(self._target, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            stack.callback(os.close, root)
            # No member's path leads through a link: a link counts as a file in the check of names.
            for member in sorted(members, key=lambda member: member.link is not None):
                self._write_member(root, member)
                files += not member.is_dir
            if sync:
                sync_tree(root, files + self._folders)
        return Extracted(files, self._reader.total)

    def _write_member(self, root: int, member: Member) -> None:
        folder = member.path if member.is_dir else member.path[:-1]
        with ExitStack() as stack:
            fd = root
            for name in folder:
                fd = self._enter_folder(name, fd)
                stack.callback(os.close, fd)
            if member.link is not None:
                os.symlink(member.link, member.path[-1], dir_fd=fd)
                return
            if member.open is None:
                return
            mode = 0o755 if member.executable else 0o644
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
            out = os.open(member.path[-1], flags, mode, dir_fd=fd)
            stack.callback(os.close, out)
            for chunk in self._reader.chunks(member):
                view = memoryview(chunk)
                while view:
                    view = view[os.write(out, view) :]

    def _enter_folder(self, name: str, parent: int) -> int:
        try:
            os.mkdir(name, 0o755, dir_fd=parent)
            self._folders += 1
        except FileExistsError:
            pass
        flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
        return os.open(name, flags, dir_fd=parent)
