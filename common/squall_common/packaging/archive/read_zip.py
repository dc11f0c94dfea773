"""Reading zip archives for `archive.extract`: the central directory, as its maker meant it.

The high half of a member's external attributes is a Unix mode only where the tool wrote one. Seen
in archives of real tools:

* `jar`, shade, sbt: 0, for files and folders alike;
* Maven's jar plugin before 3: 0177777 (a Java -1) for the folders META-INF/maven/...;
* Python's zipfile, shiv: permissions without a type (0600);
* `git archive`: 0 unless the file is executable or a link;
* .NET before 4.6.1, old PowerShell: 0, and names with backslashes, made by "MS-DOS";
* Info-ZIP on Linux: UTF-8 names without the flag that says so.

A mode that claims to be a link, a device or a pipe is believed whoever wrote it: it is refused, or
checked as a link.
"""

from __future__ import annotations

import stat
import struct
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from squall_common.errors import PackageError
from squall_common.packaging.archive.members import (
    PATH_BYTES_MAX,
    Limits,
    Member,
    refusal,
    safe_path,
)

_DIRECTORY_BYTES_PER_ENTRY = 1024  # a record of 46 bytes, its name, some extra fields
_DIRECTORY_BYTES_FLOOR = 1024 * 1024
_END_BYTES = 22  # the end-of-directory record without its comment
_END64_BYTES = 56  # zip64's own end-of-directory record
_LOCATOR_BYTES = 20  # says where that one is; stands right before the first

_KINDS = {
    stat.S_IFLNK: "a symbolic link",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFIFO: "a pipe",
    stat.S_IFSOCK: "a socket",
}
_BACKSLASH_SYSTEMS = frozenset({0, 10, 11, 14})  # MS-DOS, NTFS (two numbers), VFAT
_UTF8_FLAG = 0x800
_ENCRYPTED_FLAGS = 0x1 | 0x40 | 0x2000
_PATCH_FLAG = 0x20
_UNICODE_PATH = 0x7075  # Info-ZIP's extra field with the name in UTF-8


def check_directory(file: IO[bytes], archive: Path, size: int, limits: Limits) -> None:
    """Refuse a huge central directory before zipfile makes an object of each of its records."""
    tail_bytes = min(size, _END_BYTES + 65535)
    file.seek(size - tail_bytes)
    tail = file.read(tail_bytes)
    found = tail.rfind(b"PK\5\6")
    if found < 0 or len(tail) - found < _END_BYTES:
        raise PackageError(f"{archive.name} is damaged: it has no end-of-directory record")
    (directory_bytes,) = struct.unpack_from("<I", tail, found + 12)
    end = found + size - tail_bytes
    start = _zip64_start(file, end)
    if start is None:
        start = end - directory_bytes - _LOCATOR_BYTES - _END64_BYTES
    too_many = PackageError(f"{archive.name} has more than {limits.entries_max} entries")
    slack = _LOCATOR_BYTES + _END64_BYTES + _DIRECTORY_BYTES_FLOOR
    if end - start > slack + limits.entries_max * _DIRECTORY_BYTES_PER_ENTRY:
        raise too_many
    file.seek(max(0, start))
    if file.read(end - max(0, start)).count(b"PK\1\2") > limits.entries_max:
        raise too_many


def _zip64_start(file: IO[bytes], end: int) -> int | None:
    """Where the directory of a zip64 archive begins, at the earliest; None without zip64. zip64's
    record is where its locator says or right before it: readers differ, so both count."""
    locator_at = end - _LOCATOR_BYTES
    if locator_at < 0:
        return None
    file.seek(locator_at)
    signature, _, offset, _ = struct.unpack("<4sLQL", file.read(_LOCATOR_BYTES))
    if signature != b"PK\6\7":
        return None
    starts = []
    for at in {offset, locator_at - _END64_BYTES}:
        if 0 <= at <= locator_at - _END64_BYTES:
            file.seek(at)
            record = file.read(_END64_BYTES)
            if record.startswith(b"PK\6\6"):
                starts.append(at - struct.unpack_from("<Q", record, 40)[0])
    return min(starts, default=None)


def members(zip_file: zipfile.ZipFile, archive: Path, *, links: bool) -> Iterator[Member]:
    """All members, in the archive's order. Raises PackageError, and what zipfile raises on
    damage."""
    for info in zip_file.infolist():
        name = _name(info)
        if info.header_offset < 0:
            raise refusal(archive, name, "lies outside the archive")
        if info.flag_bits & _ENCRYPTED_FLAGS:
            raise refusal(archive, name, "is encrypted")
        if info.flag_bits & _PATCH_FLAG:
            raise refusal(archive, name, "is compressed patch data")
        mode = _mode(info)
        if links and stat.S_ISLNK(mode):
            with zip_file.open(info) as file:
                text = file.read(PATH_BYTES_MAX + 1).decode(errors="replace")
            yield Member(name, safe_path(archive, name), False, False, None, text)
            continue
        kind = _KINDS.get(stat.S_IFMT(mode))
        if kind is not None:
            raise refusal(archive, name, f"is {kind}; only files and folders are unpacked")
        is_dir = name.endswith("/")
        if stat.S_IFMT(mode) != 0 and is_dir != stat.S_ISDIR(mode):
            raise refusal(archive, name, "is a folder by its name or by its mode, but not by both")
        if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            raise refusal(archive, name, f"is compressed by method {info.compress_type}")
        yield Member(
            name=name,
            path=safe_path(archive, name),
            is_dir=is_dir,
            executable=bool(mode & 0o111),
            open=None if is_dir else lambda info=info: zip_file.open(info),  # type: ignore[misc]
            size_bytes=0 if is_dir else info.file_size,
        )


def _mode(info: zipfile.ZipInfo) -> int:
    """The member's Unix mode; 0 where the archive has none, or a type that Unix does not know."""
    mode = info.external_attr >> 16
    known = (0, stat.S_IFREG, stat.S_IFDIR, *_KINDS)
    return mode if stat.S_IFMT(mode) in known else 0


def _name(info: zipfile.ZipInfo) -> str:
    """The member's name as its maker meant it. All checks of names come after this."""
    name = info.orig_filename  # `filename` is cut at a NUL
    if not info.flag_bits & _UTF8_FLAG and not name.isascii():
        raw = name.encode("cp437")  # as zipfile has decoded it
        try:
            name = (_unicode_path(info.extra, raw) or raw).decode()
        except UnicodeDecodeError:
            pass  # a name in MS-DOS letters, or in some other: as the format has it
    if "\\" in name and "/" not in name and info.create_system in _BACKSLASH_SYSTEMS:
        name = name.replace("\\", "/")
    return name


def _unicode_path(extra: bytes, raw: bytes) -> bytes | None:
    """The name in Info-ZIP's extra field, when it belongs to the name `raw`."""
    while len(extra) >= 4:
        kind, size = struct.unpack_from("<HH", extra)
        data, extra = extra[4 : 4 + size], extra[4 + size :]
        if kind == _UNICODE_PATH and len(data) > 5 and data[0] == 1:
            (crc,) = struct.unpack_from("<I", data, 1)
            return data[5:] if crc == zlib.crc32(raw) else None
    return None
