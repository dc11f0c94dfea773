"""Files behind a URL: where segments and manifests are kept.

    store = CheckpointStore("s3://bucket/squall")
    store.put("words/count/00000/000001-000000000007.segment", [b"...", b"..."])

A path, or `file://`, is a local folder, or one that all nodes mount; any other URL is read by
fsspec (`s3://` needs the `s3` extra). What `put` has written is durable when it returns, and nobody
ever sees half of a file. Calls block: make them on a thread. A call that fails is tried again a few
times, unless trying again cannot help (a full disk, no permission).
"""

from __future__ import annotations

import errno
import random
import time
from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from squall_common.daemon.folders import Folder, path_of
from squall_common.errors import describe
from squall_common.state.errors import StateStoreError

_T = TypeVar("_T")

TRIES = 4
_WAIT_SECS = 0.1  # before the second try; then it doubles
_FINAL = frozenset({errno.EACCES, errno.EPERM, errno.EROFS, errno.ENAMETOOLONG, errno.ENOTDIR})
_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})


class CheckpointStore:
    """Files by name, with `/` in it. For several threads at once."""

    def __init__(
        self, url: str, *, tries: int = TRIES, sleep: Callable[[float], None] = time.sleep
    ) -> None:
        """`url` is a path or a URL that fsspec knows. `tries`: of each call."""
        self.url = url.rstrip("/") or "/"
        self._root = Folder(path_of(self.url))
        self._tries = tries
        self._sleep = sleep

    @property
    def is_local(self) -> bool:
        """Whether it is a folder, which is read about as fast as memory if it was just written."""
        return self._root.is_local

    def put(self, name: str, data: bytes | Sequence[bytes]) -> None:
        """Write a file, or replace it: one of the parts, one after the other. Raises
        StateStoreError."""
        whole = data if isinstance(data, bytes) else b"".join(data)
        folder, base = self._place(name)
        try:
            self._try("write", name, lambda: folder.write(base, whole))
        except FileNotFoundError as error:  # a bucket that is not there, or a folder just removed
            raise self._failed("write", name, error, error.errno) from error

    def put_parts(self, name: str, parts: Iterable[bytes]) -> None:
        """The same for what does not fit into memory; `parts` is iterated over again if a write
        has failed. Raises what its iterators raise, too."""
        folder, base = self._place(name)
        try:
            self._try("write", name, lambda: folder.write_parts(base, parts))
        except FileNotFoundError as error:
            raise self._failed("write", name, error, error.errno) from error

    def get(self, name: str) -> bytes:
        """The content of a file. Raises FileNotFoundError, StateStoreError."""
        folder, base = self._place(name)
        return self._try("read", name, lambda: folder.read(base))

    def get_part(self, name: str, start: int, length: int) -> bytes:
        """`length` bytes from `start` on, fewer at the end of the file; with a negative `start`
        the last `-start` bytes, or all of a shorter file. Raises FileNotFoundError,
        StateStoreError."""
        folder, base = self._place(name)
        return self._try("read", name, lambda: folder.read_part(base, start, length))

    def names(self, folder: str = "") -> list[str]:
        """The names of the files and folders directly in a folder, sorted; [] if there is none.
        Files that are being written are left out. Raises StateStoreError."""
        place = self._root / folder.strip("/") if folder else self._root
        found = self._try("list", folder or ".", place.names)
        return sorted(name for name in found if not name.startswith("."))

    def delete(self, name: str) -> None:
        """Delete a file. Does nothing if there is none. Raises StateStoreError."""
        folder, base = self._place(name)
        self._try("delete", name, lambda: folder.delete(base))

    def remove_folders(self, folders: Sequence[str]) -> None:
        """Remove those of these folders ("": this one) that are empty; object stores have none."""
        for folder in folders:
            place = self._root / folder if folder else self._root
            place.remove_empty()

    def _place(self, name: str) -> tuple[Folder, str]:
        folder, _, base = name.rpartition("/")
        if not base or ".." in name.split("/") or name.startswith("/"):
            raise ValueError(f"{name!r} is not the name of a file in a store")
        return (self._root / folder if folder else self._root), base

    def _try(self, what: str, name: str, call: Callable[[], _T]) -> _T:
        wait = _WAIT_SECS
        for left in range(self._tries - 1, -1, -1):
            try:
                return call()
            except FileNotFoundError:
                raise
            except Exception as error:  # whatever the URL's file system raises
                number = error.errno if isinstance(error, OSError) else None
                is_final = number in _FINAL or number in _FULL or _cannot_be_opened(error)
                if left and not is_final:
                    self._sleep(wait * random.uniform(0.5, 1.0))
                    wait *= 2
                    continue
                raise self._failed(what, name, error, number) from error
        raise AssertionError

    def _failed(
        self, what: str, name: str, error: Exception, number: int | None
    ) -> StateStoreError:
        hint = "check that topology.state.url can be reached from the workers' nodes"
        if number in _FULL:
            hint = "free space there, or store the state elsewhere (topology.state.url)"
        elif number in _FINAL:
            hint = "let the user that the workers run as write there"
        elif _cannot_be_opened(error):
            hint = (
                "write a URL that fsspec knows, and install what reads it (for s3://: pip install "
                "'squall[s3]')"
            )
        return StateStoreError(
            f"could not {what} {name} in the state store {self.url}: {describe(error)}", hint=hint
        )


def _cannot_be_opened(error: Exception) -> bool:
    """Whether nothing that is installed reads such URLs, so that to try again cannot help."""
    is_unknown = isinstance(error, ValueError) and str(error).startswith("Protocol not known")
    return is_unknown or isinstance(error, ImportError)
