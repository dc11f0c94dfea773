"""Reading tar archives for `archive.extract`: headers and bytes only, never tarfile's extraction.

tarfile is asked for one header after the other, over a reader that counts: what a header claims
about its own length is a stranger's word, and so is what a few compressed bytes unfold to.
"""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from squall_common.errors import PackageError
from squall_common.packaging.archive.members import Limits, Member, refusal, safe_path

_READ_BYTES_MAX = 1024 * 1024  # of one read while headers are scanned: a long name is short
_BLOCK_BYTES = 512
_HEADER_BYTES = 8 * 1024  # of a member: its header, padding, an extended header
_LZMA_BYTES_MAX = 128 * 1024 * 1024  # memory of the decompressor


def is_tar(file: IO[bytes]) -> bool:
    """Whether the file holds a tar archive, compressed or not; the file is at its start then."""
    file.seek(0)
    start = file.read(_BLOCK_BYTES)
    file.seek(0)
    if start[257:262] == b"ustar":
        return True
    return start.startswith((b"\x1f\x8b", b"BZh", b"\xfd7zXZ\x00"))


@contextmanager
def members(file: IO[bytes], archive: Path, limits: Limits, size: int) -> Iterator[list[Member]]:
    """All members, in the archive's order; they can be opened while it lasts. Raises PackageError,
    and what the decompressors raise on damage."""
    out_max = (
        min(limits.total_bytes_max, max(limits.ratio_max * size, _READ_BYTES_MAX))
        + min(limits.entries_max, max(size, 1)) * _HEADER_BYTES
    )
    with _Counted(_plain(file), archive, out_max) as counted, _tar(counted) as tar:
        found = list(_members(tar, archive, limits, counted))
        while counted.read(_READ_BYTES_MAX):  # to the end, where the checksum of a .gz stands
            pass
        yield found


def _plain(file: IO[bytes]) -> Any:
    """The bytes of the tar archive itself."""
    start = file.read(6)
    file.seek(0)
    if start.startswith(b"\x1f\x8b"):
        return gzip.GzipFile(fileobj=file)
    if start.startswith(b"BZh"):
        return bz2.BZ2File(file)
    if start.startswith(b"\xfd7zXZ"):
        _check_xz(file)
        return lzma.LZMAFile(file)
    raw = io.FileIO(file.fileno(), closefd=False)
    raw.seek(0)  # `file` has read ahead
    return io.BufferedReader(raw)


def _check_xz(file: IO[bytes]) -> None:
    """Refuse an archive whose dictionary would take a lot of memory, before LZMAFile makes it."""
    probe = lzma.LZMADecompressor(format=lzma.FORMAT_XZ, memlimit=_LZMA_BYTES_MAX)
    probe.decompress(file.read(64 * 1024), max_length=1)
    file.seek(0)


def _tar(file: _Counted) -> tarfile.TarFile:
    return tarfile.TarFile(fileobj=file, mode="r", encoding="utf-8", errors="surrogateescape")


class _Counted(io.RawIOBase):
    """A reader that ends with an error where a bomb would go on."""

    def __init__(self, file: Any, archive: Path, bytes_max: int) -> None:
        self._file = file
        self._archive = archive
        self._bytes_max = bytes_max
        self.scanning = True

    def read(self, size: int = -1) -> bytes:
        if self.scanning and not 0 <= size <= _READ_BYTES_MAX:
            raise PackageError(f"{self._archive.name} is damaged: a header of {size} bytes")
        data: bytes = self._file.read(size)
        self._check(self._file.tell())
        return data

    def seek(self, offset: int, whence: int = 0) -> int:
        if whence == 0:
            self._check(offset)
        at: int = self._file.seek(offset, whence)
        return at

    def tell(self) -> int:
        at: int = self._file.tell()
        return at

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def close(self) -> None:
        self._file.close()
        super().close()

    def _check(self, at: int) -> None:
        if at > self._bytes_max:
            raise PackageError(f"{self._archive.name} unpacks to more than is allowed")


def _members(
    tar: tarfile.TarFile, archive: Path, limits: Limits, counted: _Counted
) -> Iterator[Member]:
    files: dict[tuple[str, ...], tarfile.TarInfo] = {}
    entries = 0
    while (info := tar.next()) is not None:
        entries += 1
        if entries > limits.entries_max:
            raise PackageError(f"{archive.name} has more than {limits.entries_max} entries")
        name, executable = info.name, bool(info.mode & 0o111)
        path = safe_path(archive, name)
        if info.isdir():
            yield Member(name + "/", path, True, False, None)
        elif info.issym():
            yield Member(name, path, False, False, None, info.linkname)
        elif info.islnk():
            # A hard link, to an earlier member: a copy of it.
            original = files.get(safe_path(archive, info.linkname))
            if original is None:
                raise refusal(archive, name, "is a hard link to no earlier file of the archive")
            files[path] = original
            yield Member(name, path, False, executable, _opener(tar, original, counted))
        elif info.isreg():
            if info.issparse():
                raise refusal(archive, name, "is a sparse file")
            files[path] = info
            yield Member(name, path, False, executable, _opener(tar, info, counted))
        else:
            raise refusal(archive, name, "is neither a file nor a folder nor a link")


def _opener(tar: tarfile.TarFile, info: tarfile.TarInfo, counted: _Counted) -> Any:
    def open_member() -> IO[bytes]:
        counted.scanning = False
        file = tar.extractfile(info)
        assert file is not None  # it is a file
        return file

    return open_member
