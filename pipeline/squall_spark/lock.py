"""One driver for a checkpoint, and for a view of current values: a second one is refused at once.

In a local folder it is a lock of the file system (flock), which ends with its process. Behind a URL
there are none, so the driver writes its name and the time into a file, again and again; a name that
was not written for `STALE_SECS` is that of a driver that is gone. One that was only paused for that
long finds another name when it goes on, and stops: `Held.check`.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import socket
import threading
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from squall_common.daemon.folders import Folder
from squall_common.errors import SquallError

STALE_SECS = 60.0
_RENEW_SECS = 10.0
_NAME = "lock"


class FolderInUseError(SquallError):
    """Another driver works on the folder."""


class Held:
    """A folder that this driver holds. In a local folder the kernel sees to it."""

    def check(self) -> None:
        """Raises FolderInUseError if another driver has taken the folder."""


class HeldName(Held):
    """A folder behind a URL, held by a name in a file."""

    def __init__(self, folder: Folder, name: str, what: str) -> None:
        self._folder, self._name, self._what = folder, name, what
        self._id = uuid.uuid4().hex
        self._lost: str | None = None  # the name of the other driver

    def write(self) -> None:
        """Write the name anew."""
        own = {
            "host": socket.gethostname(),
            "pid": os.getpid(),
            "at": time.time(),
            "id": self._id,
        }
        self._folder.write(self._name, json.dumps(own).encode())

    def renew(self) -> None:
        """Write the name anew, unless another one is there."""
        if self._look():
            self.write()

    def release(self) -> None:
        if self._look():
            self._folder.delete(self._name)

    def check(self) -> None:
        if not self._look():
            raise _in_use(self._what, self._lost or "")

    def _look(self) -> bool:
        """Whether the folder is still this driver's."""
        if self._lost is None:
            try:
                there = self._folder.read(self._name).decode()
            except FileNotFoundError:
                there = ""  # another one has come and gone
            if _parsed(there).get("id") != self._id:
                self._lost = there
        return self._lost is None


@contextlib.contextmanager
def checkpoint_lock(checkpoint: str) -> Iterator[Held]:
    """Hold a checkpoint. Raises FolderInUseError, and SquallError if it cannot be written."""
    with folder_lock(checkpoint, f"--checkpoint {checkpoint}", _NAME) as held:
        yield held


@contextlib.contextmanager
def folder_lock(url: str, what: str, name: str) -> Iterator[Held]:
    """Hold a folder by a file `name` in it. `what` is the folder in an error's words. Raises as
    `checkpoint_lock` does."""
    folder = Folder(url)
    try:
        with (
            _held_file(Path(url), name, what) if folder.is_local else _held_name(folder, name, what)
        ) as held:
            yield held
    except OSError as error:
        if error.filename is None or not str(error.filename).startswith(url):
            raise
        raise SquallError(f"{what} cannot be written: {error.strerror or error}") from error


@contextlib.contextmanager
def _held_file(folder: Path, name: str, what: str) -> Iterator[Held]:
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / name).open("a+") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.seek(0)
            raise _in_use(what, file.read()) from None
        file.truncate(0)
        file.write(json.dumps({"host": socket.gethostname(), "pid": os.getpid()}))
        file.flush()
        yield Held()


@contextlib.contextmanager
def _held_name(folder: Folder, name: str, what: str) -> Iterator[Held]:
    try:
        there = folder.read(name).decode()
    except FileNotFoundError:
        there = ""
    if there and time.time() - _parsed(there).get("at", 0.0) < STALE_SECS:
        raise _in_use(what, there)
    end, held = threading.Event(), HeldName(folder, name, what)

    def renew() -> None:
        while not end.wait(_RENEW_SECS):
            with contextlib.suppress(Exception):  # the next time, perhaps
                held.renew()

    held.write()
    thread = threading.Thread(target=renew, name="folder-lock", daemon=True)
    thread.start()
    try:
        yield held
    finally:
        end.set()
        thread.join()
        with contextlib.suppress(Exception):
            held.release()


def _parsed(text: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _in_use(what: str, text: str) -> FolderInUseError:
    who = _parsed(text)
    by = f" by process {who['pid']} on {who['host']}" if {"pid", "host"} <= who.keys() else ""
    option = what.partition(" ")[0]
    return FolderInUseError(
        f"{what} is in use{by}",
        hint=f"stop that job first, or give this one its own {option}",
    )
