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
import stat
import struct
import tarfile
import unicodedata
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from squall import archive_tar
from squall.errors import PackageError

_CHUNK_BYTES = 256 * 1024
_NAME_BYTES_MAX = 255  # NAME_MAX of every usual file system
_PATH_BYTES_MAX = 2048
_RATIO_FLOOR_BYTES = 1024 * 1024  # small archives may well compress 1000:1
_DIRECTORY_BYTES_PER_ENTRY = 1024  # a record of 46 bytes, its name, some extra fields
_DIRECTORY_BYTES_FLOOR = 1024 * 1024
_END_BYTES = 22  # the end-of-directory record without its comment
_LINK_STEPS_MAX = 256  # Linux follows 40 links, each of some parts
_ZIP64_BYTES = 76  # what zip64 puts between the directory and that record


# What zipfile raises on bytes that are no proper archive, as fuzzing has it.
_DAMAGE = (
    zipfile.BadZipFile, zlib.error, struct.error, EOFError, NotImplementedError, ValueError,
    RuntimeError, OverflowError, tarfile.TarError, lzma.LZMAError,
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Limits:
    """What an archive may take. A bomb is caught while it unpacks, at the first byte too much."""

    entries_max: int = 10_000
    total_bytes_max: int = 512 * 1024 * 1024
    ratio_max: int = 100  # bytes that come out for each byte of the archive


@dataclass(frozen=True, slots=True)
class Extracted:
    """What was unpacked."""

    files: int
    total_bytes: int


@dataclass(frozen=True, slots=True)
class Member:
    """One file, folder or link, as a reader of archives found it."""

    name: str  # as in the archive, for messages
    path: tuple[str, ...]
    is_dir: bool
    executable: bool
    open: Callable[[], IO[bytes]] | None  # None for a folder or a link
    link: str | None = None  # where a symbolic link leads


def extract(
    archive: Path, target: Path, limits: Limits | None = None, *, blob: bool = False
) -> Extracted:
    """Unpack an archive into `target`, an empty folder that exists: a package (.zip, .jar, .pyz,
    .pex), or a `blob`, which may also be a tar archive (.tar, .tgz, .tar.bz2, .tar.xz) and hold
    symbolic links. Every file is on disk, fsynced, when it returns.

    Raises PackageError that names the archive and the member, and OSError when the disk fails or is
    full; the caller then removes `target`, which may hold part of the archive.
    """
    limits = limits or Limits()
    with _opened(archive, limits, blob) as (members, size):
        return _Writer(archive, target, limits, size).write(members)


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
            if blob and archive_tar.is_tar(file):
                with archive_tar.members(file, archive, limits, size) as found:
                    _check_names(found, archive, limits)
                    check_links(found, archive)
                    yield found, size
                return
            if not zipfile.is_zipfile(file):
                if blob:
                    raise PackageError(
                        f"{archive.name} is no archive",
                        hint="an archive is a .zip, .jar, .tar, .tgz, .tar.bz2 or .tar.xz file",
                    )
                raise PackageError(
                    f"{archive.name} is no archive",
                    hint="a package is a .zip, .jar, .pyz or .pex file, or a folder",
                )
            _check_directory(file, archive, size, limits)
            file.seek(0)
            with zipfile.ZipFile(file) as zip_file:
                found = list(_zip_members(zip_file, archive, links=blob))
                _check_names(found, archive, limits)
                check_links(found, archive)
                yield found, size
        except _DAMAGE as error:
            raise PackageError(f"{archive.name} is damaged: {error}") from error


# Zip.


def _check_directory(file: IO[bytes], archive: Path, size: int, limits: Limits) -> None:
    """Refuse a huge central directory before zipfile makes an object of each of its records."""
    tail_bytes = min(size, _END_BYTES + 65535)
    file.seek(size - tail_bytes)
    tail = file.read(tail_bytes)
    end = tail.rfind(b"PK\5\6")
    if end < 0 or len(tail) - end < _END_BYTES:
        raise PackageError(f"{archive.name} is damaged: it has no end-of-directory record")
    (directory_bytes,) = struct.unpack_from("<I", tail, end + 12)
    end += size - tail_bytes
    if tail.rfind(b"PK\6\7") >= 0:  # zip64: the real length stands elsewhere; take the longest
        directory_bytes = end
    too_many = PackageError(f"{archive.name} has more than {limits.entries_max} entries")
    if directory_bytes > _DIRECTORY_BYTES_FLOOR + limits.entries_max * _DIRECTORY_BYTES_PER_ENTRY:
        raise too_many
    file.seek(max(0, end - directory_bytes - _ZIP64_BYTES))
    if file.read(directory_bytes + _ZIP64_BYTES).count(b"PK\1\2") > limits.entries_max:
        raise too_many


_ZIP_KINDS = {
    stat.S_IFLNK: "a symbolic link",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFIFO: "a pipe",
    stat.S_IFSOCK: "a socket",
}


def _zip_members(zip_file: zipfile.ZipFile, archive: Path, *, links: bool) -> Iterator[Member]:
    for info in zip_file.infolist():
        name = info.orig_filename  # `filename` is cut at a NUL
        if info.header_offset < 0:
            raise refusal(archive, name, "lies outside the archive")
        mode = info.external_attr >> 16
        if links and stat.S_ISLNK(mode) and not info.flag_bits & 0x1:
            with zip_file.open(info) as file:
                text = file.read(_PATH_BYTES_MAX + 1).decode(errors="replace")
            yield Member(name, safe_path(archive, name), False, False, None, text)
            continue
        kind = _ZIP_KINDS.get(stat.S_IFMT(mode))
        if kind is not None:
            raise refusal(archive, name, f"is {kind}; only files and folders are unpacked")
        if info.flag_bits & 0x1:
            raise refusal(archive, name, "is encrypted")
        is_dir = name.endswith("/")
        if is_dir != (stat.S_ISDIR(mode) or (is_dir and stat.S_IFMT(mode) == 0)):
            raise refusal(archive, name, "is a folder by its name or by its mode, but not by both")
        if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            raise refusal(archive, name, f"is compressed by method {info.compress_type}")
        yield Member(
            name=name,
            path=safe_path(archive, name),
            is_dir=is_dir,
            executable=bool(mode & 0o111),
            open=None if is_dir else lambda info=info: zip_file.open(info),  # type: ignore[misc]
        )


# Names.


def refusal(archive: Path, name: str, why: str) -> PackageError:
    return PackageError(f"{archive.name}: member {name[:200]!r} {why}")


def safe_path(archive: Path, name: str) -> tuple[str, ...]:
    if any(unicodedata.category(c) in ("Cc", "Cs") for c in name):
        raise refusal(archive, name, "has control characters in its name")
    if "\\" in name:
        raise refusal(archive, name, "has a backslash in its name")
    if name.startswith("/"):
        raise refusal(archive, name, "has an absolute path")
    path = tuple(part for part in name.split("/") if part not in ("", "."))
    if ".." in path:
        raise refusal(archive, name, "leads out of the archive with '..'")
    encoded = [part.encode() for part in path]
    if sum(map(len, encoded)) + len(encoded) > _PATH_BYTES_MAX or any(
        len(part) > _NAME_BYTES_MAX for part in encoded
    ):
        raise refusal(archive, name, "has too long a name")
    return path


def _check_names(members: list[Member], archive: Path, limits: Limits) -> None:
    """No two members may make the same file, on any file system: letters that differ in case only,
    or in how Unicode composes them, count as the same."""
    if len(members) > limits.entries_max:
        raise PackageError(f"{archive.name} has more than {limits.entries_max} entries")
    spelled: dict[tuple[str, ...], tuple[str, ...]] = {}
    files: set[tuple[str, ...]] = set()
    folders: set[tuple[str, ...]] = set()
    for member in members:
        if not member.path:
            if member.is_dir:
                continue  # "./"
            raise refusal(archive, member.name, "has no name")
        folded = tuple(unicodedata.normalize("NFC", p).casefold() for p in member.path)
        for depth in range(1, len(folded) + 1):
            own = member.path[:depth]
            other = spelled.setdefault(folded[:depth], own)
            if other != own:
                raise refusal(
                    archive, member.name, f"differs from {'/'.join(other)!r} in case only"
                )
        folders.update(folded[:depth] for depth in range(1, len(folded)))
        if member.is_dir:
            folders.add(folded)
        elif folded in files:
            raise refusal(archive, member.name, "is there twice")
        else:
            files.add(folded)
        if len(spelled) > 4 * limits.entries_max:  # folders that are only implied count as well
            raise PackageError(f"{archive.name} has more than {limits.entries_max} entries")
    both = files & folders
    if both:
        name = "/".join(spelled[min(both)])
        raise refusal(archive, name, "is a file and a folder")


# Links.


def check_links(members: list[Member], archive: Path) -> None:
    """Follow each link as a kernel would, over all other links: none may lead out, be absolute, or
    go round in circles. One that leads to nothing is fine."""
    links = {member.path: member for member in members if member.link is not None}
    for member in links.values():
        text = member.link or ""
        if not text or text.startswith("/") or len(text.encode(errors="replace")) > _PATH_BYTES_MAX:
            raise refusal(archive, member.name, "is a link that is not relative")
        if any(unicodedata.category(c) in ("Cc", "Cs") for c in text):
            raise refusal(archive, member.name, "is a link with control characters")
        _follow(member, links, archive)


def _follow(member: Member, links: Mapping[tuple[str, ...], Member], archive: Path) -> None:
    at = list(member.path[:-1])
    todo = _parts(member.link)
    steps = 0
    while todo:
        steps += 1
        if steps > _LINK_STEPS_MAX:
            raise refusal(archive, member.name, "is a link that goes round in circles")
        part = todo.pop(0)
        if part == "..":
            if not at:
                raise refusal(archive, member.name, "is a link that leads out of the archive")
            at.pop()
            continue
        at.append(part)
        other = links.get(tuple(at))
        if other is not None:
            at.pop()
            if (other.link or "").startswith("/"):
                raise refusal(archive, other.name, "is a link that is not relative")
            todo = _parts(other.link) + todo


def _parts(link: str | None) -> list[str]:
    return [part for part in (link or "").split("/") if part not in ("", ".")]


# Writing.


def _bytes_max(limits: Limits, archive_bytes: int) -> int:
    return min(limits.total_bytes_max, max(limits.ratio_max * archive_bytes, _RATIO_FLOOR_BYTES))


def _too_big(archive: Path, name: str, limits: Limits, archive_bytes: int) -> PackageError:
    if _bytes_max(limits, archive_bytes) == limits.total_bytes_max:
        return refusal(
            archive, name, f"goes beyond the limit of {limits.total_bytes_max} bytes in all"
        )
    return refusal(archive, name, f"unpacks to more than {limits.ratio_max} times the archive")


class _Writer:
    def __init__(self, archive: Path, target: Path, limits: Limits, archive_bytes: int) -> None:
        self._archive = archive
        self._target = target
        self._limits = limits
        self._archive_bytes = archive_bytes
        self._left = _bytes_max(limits, archive_bytes)
        self._total = 0

    def write(self, members: list[Member]) -> Extracted:
        files = 0
        with ExitStack() as stack:
            root = os.open(self._target, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            stack.callback(os.close, root)
            # No member's path leads through a link: a link counts as a file in the check of names.
            for member in sorted(members, key=lambda member: member.link is not None):
                self._write_member(root, member)
                files += not member.is_dir
            self._sync(root)
        return Extracted(files, self._total)

    def _write_member(self, root: int, member: Member) -> None:
        folder = member.path if member.is_dir else member.path[:-1]
        with ExitStack() as stack:
            fd = root
            for name in folder:
                fd = _enter_folder(name, fd)
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
            self._copy(member, member.open, out)

    def _copy(self, member: Member, open_file: Callable[[], IO[bytes]], out: int) -> None:
        with open_file() as source:
            while chunk := source.read(_CHUNK_BYTES):
                self._total += len(chunk)
                if self._total > self._left:
                    raise _too_big(self._archive, member.name, self._limits, self._archive_bytes)
                view = memoryview(chunk)
                while view:
                    view = view[os.write(out, view) :]

    def _sync(self, root: int) -> None:
        """fsync everything, after everything was written: the disk then gets it in one go."""
        for _, _, names, fd in os.fwalk(".", dir_fd=root, follow_symlinks=False):
            for name in names:
                if stat.S_ISLNK(os.stat(name, dir_fd=fd, follow_symlinks=False).st_mode):
                    continue
                file = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=fd)
                try:
                    os.fsync(file)
                finally:
                    os.close(file)
            os.fsync(fd)


def _enter_folder(name: str, parent: int) -> int:
    try:
        os.mkdir(name, 0o755, dir_fd=parent)
    except FileExistsError:
        pass
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
    return os.open(name, flags, dir_fd=parent)
