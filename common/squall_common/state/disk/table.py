"""A table of bytes on disk, for one process: LMDB, a B+ tree that readers find mapped into memory.

Nothing of it is to survive: it is not synced, and its files have no name once they are open. So
they end with the process, however that ends, and the system has back what they took.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from squall_common.errors import describe
from squall_common.state.errors import StateStoreError, StateTableLostError

# Of addresses, not of memory or disk: the first that the process may have, and then less.
_MAP_BYTES = (1 << 40, 1 << 37, 1 << 34, 1 << 31)
_READERS = 64
PORTION_BYTES = 16 * 1024 * 1024


class TableView:
    """The table as it was at one moment, for any one thread at a time. It keeps what has been
    replaced since on disk: close it."""

    def __init__(self, env: Any) -> None:
        self._transaction = env.begin()

    def __iter__(self) -> Iterator[tuple[bytes, bytes]]:
        """All entries, by key."""
        with self._transaction.cursor() as cursor:
            yield from cursor

    def close(self) -> None:
        """Idempotent."""
        self._transaction.abort()


class DiskTable:
    """Bytes by key, in a file in `folder` (None: the process' temporary folder). Keys have up to
    511 bytes. Reads and writes are of one thread at a time; views are of others."""

    def __init__(self, folder: str | None = None) -> None:
        """Raises StateStoreError."""
        # Without links: the names of open files have none.
        self._folder = os.path.realpath(folder or tempfile.gettempdir())
        try:
            import lmdb
        except ImportError as error:
            raise StateStoreError(
                "topology.state.backend is 'disk', and lmdb is not installed",
                hint="install it where workers run (pip install 'squall[disk]')",
            ) from error
        self._error: type[Exception] = lmdb.Error
        self._panic: type[Exception] = lmdb.PanicError
        path = Path(self._folder, f"state-{os.getpid()}-{os.urandom(8).hex()}")
        files = (path, path.with_name(f"{path.name}-lock"))
        try:
            os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
            self._env = self._opened(lmdb, path)
            _keep_from_children(str(path))
        except (OSError, lmdb.Error) as error:
            raise self._failed("open", error) from error
        finally:
            for file in files:
                file.unlink(missing_ok=True)
        try:
            self._reader = self._env.begin()
        except lmdb.Error as error:
            raise self._failed("read", error) from error

    def _opened(self, lmdb: Any, path: Path) -> Any:
        for size in _MAP_BYTES:
            try:
                return lmdb.open(
                    str(path),
                    subdir=False,
                    map_size=size,
                    metasync=False,
                    sync=False,
                    readahead=False,
                    max_readers=_READERS,
                    mode=0o600,
                )
            except lmdb.Error:
                if size == _MAP_BYTES[-1]:
                    raise
        raise AssertionError

    def get(self, key: bytes) -> bytes | None:
        """The value of a key; None: there is none."""
        found: bytes | None = self._reader.get(key)
        return found

    def after(self, key: bytes, *, entries_max: int, bytes_max: int) -> list[tuple[bytes, bytes]]:
        """The next entries by key, that come after this one (b"": from the first on): at most so
        many, and no more once they have so many bytes."""
        found: list[tuple[bytes, bytes]] = []
        size = 0
        with self._reader.cursor() as cursor:
            at = cursor.set_range(key) if key else cursor.first()
            if at and key and cursor.key() == key:
                at = cursor.next()
            while at and len(found) < entries_max and size < bytes_max:
                found.append(cursor.item())
                size += len(found[-1][1])
                at = cursor.next()
        return found

    def write(
        self, portions: Iterable[Iterable[tuple[bytes, bytes]]], gone: Iterable[bytes] = ()
    ) -> None:
        """Delete these keys and set those. A portion is one transaction, which holds the pages that
        it changes in memory (`PORTION_BYTES`). It is fastest by key, and many at a time. Raises
        StateStoreError, on a full disk for one; then any of it may be done, and the table is read
        as it is then. If that is a StateTableLostError, each further write and view fails too."""
        try:
            with self._env.begin(write=True) as transaction:
                for key in gone:
                    transaction.delete(key)
            self._renew()
            for entries in portions:
                with self._env.begin(write=True) as transaction, transaction.cursor() as cursor:
                    cursor.putmulti(entries)
                self._renew()
        except (OSError, self._error) as error:
            raise self._failed("write", error) from error

    def _renew(self) -> None:
        """Read what was written. The reader of before ends only now: LMDB begins no transaction
        any more once it could not write its meta page, and a reader that is open reads on. It
        keeps no pages from the one write after it, as those that it sees are the newest."""
        reader = self._env.begin()
        self._reader.abort()
        self._reader = reader

    def view(self) -> TableView:
        """The table as it is now. Raises StateStoreError."""
        try:
            return TableView(self._env)
        except self._error as error:
            raise self._failed("read", error) from error

    def close(self) -> None:
        """The table is gone. Idempotent; not while there is a view."""
        self._env.close()

    def _failed(self, what: str, error: Exception) -> StateStoreError:
        said = f"could not {what} the state that is on disk in {self._folder}: {describe(error)}"
        if self._is_lost():
            return StateTableLostError(
                said, hint=f"the worker starts again; see whether the disk of {self._folder} fails"
            )
        return StateStoreError(
            said,
            hint="free space there, or set topology.state.backend.folder to another folder of the "
            "workers' nodes",
        )

    def _is_lost(self) -> bool:
        """Whether LMDB refuses all transactions from now on."""
        env = getattr(self, "_env", None)  # None: it was not opened
        if env is None:
            return False
        try:
            env.begin().abort()
        except self._panic:
            return True
        except self._error:  # too many readers, for one
            return False
        return False


def _keep_from_children(path: str) -> None:
    """Have the files whose names begin so close in programs that this process starts or becomes
    (LMDB does that for some of them only): they would go on taking space."""
    for name in os.listdir("/proc/self/fd"):
        try:
            if os.readlink(f"/proc/self/fd/{name}").startswith(path):
                os.set_inheritable(int(name), False)
        except OSError:  # closed meanwhile, as that of the list is
            continue
