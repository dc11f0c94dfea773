"""Values of tuples that wait in windows, in files: above a bound, a window's tuples keep their
place in its queue, and their values are read when somebody looks at them.

    DiskRows    the rows of one task, in a few files to which rows are appended
    DiskRow     one row: a sequence that takes the place of a tuple's values

A file is gone when none of its rows is left. Files that consist mostly of rows that are gone are
written anew (`compact`). Nothing of it is to survive: files have no name, and are not synced, so
they end with the process, however that ends.
"""

from __future__ import annotations

import os
import tempfile
import threading
from collections import deque
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from typing import Any, Protocol, overload

from squall_common.errors import describe
from squall_common.state.errors import StateStoreError

_FILE_BYTES_MIN = 16 * 1024 * 1024
_FILES = 32  # about: with more bytes files are larger
_WASTE_BYTES_MIN = 64 * 1024 * 1024
_RECENT = 4  # rows that have been read, whose values are kept
_SIZE_BITS = 32
_SIZE = (1 << _SIZE_BITS) - 1


class RowCodec(Protocol):
    """Stores values: a codec of the topology that nothing else uses."""

    def encode_rows(self, rows: Sequence[Sequence[Any]]) -> bytes: ...

    def decode_rows(self, data: bytes | memoryview) -> list[list[Any]]: ...


def _place(offset: int, size: int) -> int:
    """Where a row is in its file, as one number: there are many."""
    return offset << _SIZE_BITS | size


class DiskRow(Sequence[Any]):
    """The values of a tuple, equal to a list of them. Reading raises StateStoreError."""

    __slots__ = ("_file", "_loaded", "_place", "key", "message_id")

    def __init__(
        self, file: _File, offset: int, size: int, key: Hashable, message_id: Hashable
    ) -> None:
        self._file, self._place = file, _place(offset, size)
        self._loaded: Sequence[Any] | None = None
        self.key = key
        """The key of its windows, which is asked for more often than the row is read."""
        self.message_id = message_id
        """Likewise what identifies its tuple."""

    def _values(self) -> Sequence[Any]:
        loaded = self._loaded
        return self._file.rows.read(self) if loaded is None else loaded

    @overload
    def __getitem__(self, at: int) -> Any: ...

    @overload
    def __getitem__(self, at: slice) -> Sequence[Any]: ...

    def __getitem__(self, at: int | slice) -> Any:
        return self._values()[at]

    def __len__(self) -> int:
        return len(self._values())

    def __iter__(self) -> Iterator[Any]:
        return iter(self._values())

    def __eq__(self, other: object) -> bool:
        if isinstance(other, list | tuple | DiskRow):
            return list(self._values()) == list(other)
        return NotImplemented

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return repr(list(self._values()))

    def __reduce__(self) -> tuple[Any, ...]:
        return list, (list(self._values()),)  # a copy is a list

    def __del__(self) -> None:
        file = getattr(self, "_file", None)
        if file is not None:  # in any thread: see `DiskRows.forget`
            file.rows.gone.append((file, self._place & _SIZE))


class _File:
    """A file without a name."""

    __slots__ = ("fd", "live", "rows", "size")

    def __init__(self, rows: DiskRows, fd: int) -> None:
        self.rows, self.fd = rows, fd
        self.size = 0
        self.live = 0  # bytes of rows that are not gone

    def __del__(self) -> None:
        os.close(self.fd)


class DiskRows:
    """The rows of one task. Rows are added by one thread, and read by any."""

    def __init__(self, codec: RowCodec, folder: str | None = None) -> None:
        """`folder`: where the files are; None: the process' temporary folder."""
        self.gone: deque[tuple[_File, int]] = deque()
        """Rows that nothing refers to any more."""
        self._codec = codec
        self._folder = os.path.realpath(folder or tempfile.gettempdir())
        self._file: _File | None = None  # the one that rows are appended to
        self._files: set[_File] = set()
        self._recent: deque[DiskRow] = deque()
        self._lock = threading.Lock()
        self._count = 0
        self._live = 0
        self._bytes = 0
        self._retry_bytes = 0  # no compaction before the files have so many bytes

    def __len__(self) -> int:
        """How many rows there are."""
        self.forget()
        return self._count

    @property
    def file_bytes(self) -> int:
        """How much the files hold, for any thread."""
        return self._bytes

    def forget(self) -> None:
        """Let go of what nothing refers to any more."""
        gone = self.gone
        while gone:
            file, size = gone.popleft()
            file.live -= size
            self._live -= size
            self._count -= 1
            if not file.live and file is not self._file:
                self._drop(file)

    def _drop(self, file: _File) -> None:
        self._files.discard(file)
        self._bytes -= file.size

    def add(
        self, rows: Sequence[tuple[Sequence[Any], Hashable, Hashable]]
    ) -> list[DiskRow | Exception]:
        """Write rows: values, key and message id of each. In place of a row whose values cannot be
        stored is the reason. Until `settle` their values are in memory, too. Raises StateStoreError
        (a full disk, for one); then nothing was added."""
        encode = self._codec.encode_rows
        parts: list[bytes | Exception] = []
        with self._lock:
            for values, _, _ in rows:
                try:
                    parts.append(encode((values,)))
                except Exception as error:
                    parts.append(error)
        file, at = self._append([part for part in parts if isinstance(part, bytes)])
        found: list[DiskRow | Exception] = []
        for part, (values, key, message_id) in zip(parts, rows, strict=True):
            if isinstance(part, Exception):
                found.append(part)
                continue
            row = DiskRow(file, at, len(part), key, message_id)
            row._loaded = values
            self._recent.append(row)
            self._count += 1
            at += len(part)
            found.append(row)
        return found

    def _append(self, parts: Sequence[bytes]) -> tuple[_File, int]:
        """Write at the end of a file. Returns it, and where they begin."""
        self.forget()
        file = self._file
        if file is None or file.size >= max(_FILE_BYTES_MIN, self._bytes // _FILES):
            file = self._begun()
        at = file.size
        left = memoryview(b"".join(parts))
        total = len(left)
        try:
            while left:
                left = left[os.pwrite(file.fd, left, at + total - len(left)) :]
        except OSError as error:
            raise self._failed("write", error) from error
        file.size += total
        file.live += total
        self._live += total
        self._bytes += total
        return file, at

    def _begun(self) -> _File:
        try:
            fd, path = tempfile.mkstemp(prefix="windows-", dir=self._folder)
            os.unlink(path)
        except OSError as error:
            raise self._failed("write", error) from error
        before, self._file = self._file, _File(self, fd)
        self._files.add(self._file)
        if before is not None and not before.live:
            self._drop(before)
        return self._file

    def read(self, row: DiskRow) -> Sequence[Any]:
        """The values of a row. Raises StateStoreError."""
        with self._lock:
            data = self._bytes_of(row)
            try:
                found = self._codec.decode_rows(data)[0]
            except ValueError as error:
                raise self._failed("read", error) from error
            row._loaded = found
            self._recent.append(row)
            if len(self._recent) > _RECENT:
                self._recent.popleft()._loaded = None
        return found

    def _bytes_of(self, row: DiskRow) -> bytes:
        try:
            data = os.pread(row._file.fd, row._place & _SIZE, row._place >> _SIZE_BITS)
        except OSError as error:
            raise self._failed("read", error) from error
        if len(data) != row._place & _SIZE:
            raise self._failed("read", EOFError("a file has been cut off"))
        return data

    def settle(self) -> None:
        """Keep no values in memory."""
        with self._lock:
            while self._recent:
                self._recent.popleft()._loaded = None

    @property
    def is_wasteful(self) -> bool:
        """Whether most of the files is rows that are gone."""
        wasted = self._bytes - self._live
        return wasted > max(_WASTE_BYTES_MIN, self._live) and self._bytes >= self._retry_bytes

    def compact(self, rows: Iterable[Any]) -> None:
        """Write the rows among these anew that are in files of which half is gone, so that these
        files end. What does not fit onto the disk stays where it is."""
        self.forget()
        sparse = {file for file in self._files if file.live * 2 < file.size}
        if self._file in sparse:
            self._file = None  # nothing more is appended to it
        try:
            for row in rows:
                if type(row) is DiskRow and row._file in sparse:
                    with self._lock:
                        data = self._bytes_of(row)
                        file, at = self._append([data])
                        self.gone.append((row._file, len(data)))
                        self._count += 1  # it is not gone, but has moved
                        row._file, row._place = file, _place(at, len(data))
        except StateStoreError:
            self._retry_bytes = self._bytes + _WASTE_BYTES_MIN
        self.forget()
        for file in sparse:
            if not file.live and file in self._files:
                self._drop(file)

    def _failed(self, what: str, error: Exception) -> StateStoreError:
        return StateStoreError(
            f"could not {what} tuples of windows that are on disk in {self._folder}: "
            f"{describe(error)}",
            hint="free space there, or set topology.state.backend.folder to another folder of the "
            "workers' nodes",
        )


def put_values(tup: Any, values: Sequence[Any]) -> None:
    """Replace the values of a tuple, which stays the same object: calls and hooks know it by
    that."""
    try:
        tup.values = values
    except AttributeError:  # the compiled tuple has it for reading only, and its initializer
        tup.__init__(values, tup.id, tup.root, tup.source, tup.settled, tup.anchors)


def known_key(key_of: Callable[[Any], Hashable]) -> Callable[[Any], Hashable]:
    """`key_of` that reads no row for it."""

    def found(tup: Any) -> Hashable:
        values = tup.values
        return values.key if type(values) is DiskRow else key_of(tup)

    return found
