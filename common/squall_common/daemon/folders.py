"""Folders of small files that are written whole: on a local disk, or behind a URL (fsspec)."""

from __future__ import annotations

import errno
import inspect
import os
import shutil
import stat
import tempfile
import threading
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from squall_common.daemon.files import sync_dir, sync_file, write_atomic

# To read for the folder's group too: people who look at the history need not be a daemon's user.
_FILE_MODE, _FOLDER_MODE = 0o640, 0o750


def _make(folder: Path) -> None:
    """Make a folder and its parents; those that are new are the group's to read, whatever the
    umask. A folder whose group is inherited (setgid) passes that on."""
    if folder.is_dir():
        return
    _make(folder.parent)
    try:
        folder.mkdir()
    except FileExistsError:
        return
    os.chmod(folder, folder.stat().st_mode & stat.S_ISGID | _FOLDER_MODE)


class Folder:
    """A folder of small files. A path with `://` is a URL that fsspec knows; fsspec is imported
    when one is used. All methods raise OSError, and what the URL's file system raises."""

    def __init__(self, url: str) -> None:
        self.url = url.rstrip("/") or "/"
        self._path = None if "://" in url else Path(url)

    @property
    def is_local(self) -> bool:
        return self._path is not None

    def __truediv__(self, name: str) -> Folder:
        return Folder(f"{self.url.rstrip('/')}/{name}")

    def names(self) -> list[str]:
        """The names of everything in it; [] if there is no such folder."""
        if self._path is not None:
            return [p.name for p in self._path.iterdir()] if self._path.is_dir() else []
        system, path = self._system()
        system.invalidate_cache()
        if not system.exists(path):
            return []
        found = (str(name).rstrip("/").rpartition("/")[2] for name in system.ls(path, detail=False))
        return [name for name in found if name]

    def exists(self) -> bool:
        if self._path is not None:
            return self._path.is_dir()
        system, path = self._system()
        system.invalidate_cache()
        return bool(system.exists(path))

    def read(self, name: str) -> bytes:
        if self._path is not None:
            return (self._path / name).read_bytes()
        system, path = self._system()
        found: bytes = system.cat_file(f"{path}/{name}")
        return found

    def read_part(self, name: str, start: int, length: int) -> bytes:
        """`length` bytes from `start` on, fewer at the end of the file; with a negative `start`
        the last `-start` bytes, or all of a shorter file."""
        if self._path is not None:
            with (self._path / name).open("rb") as file:
                if start < 0:
                    start = max(0, file.seek(0, os.SEEK_END) + start)
                file.seek(start)
                return file.read(length)
        system, path = self._system()
        end = None if start < 0 else start + length
        found: bytes = system.cat_file(f"{path}/{name}", start=start, end=end)
        return found

    def adopt(self, name: str, file: Path) -> None:
        """Move a file of this machine here, in one step, replacing one of that name."""
        if self._path is None:
            system, path = self._system()
            if "file" not in system.protocol:
                system.makedirs(path, exist_ok=True)
                system.put_file(str(file), f"{path}/{name}")
                file.unlink()
                return
            place = Path(path)
        else:
            place = self._path
        _make(place)
        target = place / name
        try:
            os.chmod(file, _FILE_MODE)
            sync_file(file)
            os.replace(file, target)
        except OSError as error:
            if error.errno != errno.EXDEV:
                raise
            beside = target.with_name(f".{name}.{os.getpid()}")
            try:
                shutil.copyfile(file, beside)
                os.chmod(beside, _FILE_MODE)
                sync_file(beside)
                os.replace(beside, target)
            finally:
                beside.unlink(missing_ok=True)
            file.unlink()
        sync_dir(place)

    def write(self, name: str, data: bytes) -> None:
        """Replace a file in one step."""
        if self._path is not None:
            _make(self._path)
            write_atomic(self._path / name, data, mode=_FILE_MODE)
            return
        system, path = self._system()
        system.makedirs(path, exist_ok=True)
        if "file" in system.protocol:  # file://: no put in one step
            write_atomic(Path(path) / name, data, mode=_FILE_MODE)
            return
        system.pipe_file(f"{path}/{name}", data)

    def write_parts(self, name: str, parts: Iterable[bytes]) -> None:
        """Replace a file in one step by these parts, one after the other, which need not fit into
        memory. For a URL they are in a file of the temporary folder first."""
        if self._path is not None:
            _make(self._path)
        with tempfile.NamedTemporaryFile(dir=self._path, prefix=f".{name}.", delete=False) as file:
            beside = Path(file.name)
            try:
                for part in parts:
                    file.write(part)
                file.flush()
                self.adopt(name, beside)
            finally:
                beside.unlink(missing_ok=True)

    def create(self, name: str, data: bytes) -> None:
        """Write a file that is not there yet. Raises FileExistsError if it is. Of two that create
        the same file at once only one succeeds, where the URL's file system can do that: local
        disks and the large object stores can."""
        system, path = (None, str(self._path)) if self._path is not None else self._system()
        if system is None or "file" in system.protocol:
            _make(Path(path))
            beside = Path(path, f".{name}.{os.getpid()}.{threading.get_ident()}")
            try:
                write_atomic(beside, data, mode=_FILE_MODE)
                os.link(beside, Path(path, name))
            finally:
                beside.unlink(missing_ok=True)
            sync_dir(Path(path))
            return
        system.makedirs(path, exist_ok=True)
        system.invalidate_cache()
        if system.exists(f"{path}/{name}"):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), f"{path}/{name}")
        # (Releases of fsspec and s3fs before the end of 2024 have no such mode.)
        takes = inspect.signature(getattr(system, "_pipe_file", system.pipe_file)).parameters
        system.pipe_file(f"{path}/{name}", data, **({"mode": "create"} if "mode" in takes else {}))

    def delete(self, name: str) -> None:
        """Does nothing if there is no such file here."""
        if self._path is not None:
            (self._path / name).unlink(missing_ok=True)
            return
        system, path = self._system()
        try:
            system.rm_file(f"{path}/{name}")
        except FileNotFoundError:  # another daemon was quicker
            pass

    def remove_empty(self) -> None:
        """Remove the folder itself when nothing is in it; object stores have none."""
        if self._path is not None:
            try:
                self._path.rmdir()
            except OSError:
                pass

    def _system(self) -> tuple[Any, str]:
        from fsspec.core import url_to_fs

        found: tuple[Any, str] = url_to_fs(self.url)
        return found


def path_of(url: str) -> str:
    """A `file://` URL as a path; anything else as it is."""
    scheme, found, path = url.partition("://")
    return path if found and scheme == "file" else url


def is_local(url: str) -> bool:
    """Whether it is the path of a folder, or a `file://` URL."""
    return "://" not in path_of(url)


def is_relative(url: str) -> bool:
    """Whether a place means something else in each process: a path that does not begin with /."""
    return "://" not in url and not url.startswith("/")
