"""Folders of small files that are written whole: on a local disk, or behind a URL (fsspec)."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Any

from squall_common.daemon.files import write_atomic

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
