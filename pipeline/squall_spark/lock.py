"""One driver for a checkpoint, and for a view of current values: a second one is refused at once.

In a local folder it is a lock of the file system (flock), which ends with its process. Behind a URL
there are none, so the driver writes its name and the time into a file, again and again; a name that
was not written for `STALE_SECS` is that of a driver that is gone.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import socket
import threading
import time
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


@contextlib.contextmanager
def checkpoint_lock(checkpoint: str) -> Iterator[None]:
    """Hold a checkpoint. Raises FolderInUseError, and SquallError if it cannot be written."""
    with folder_lock(checkpoint, f"--checkpoint {checkpoint}", _NAME):
        yield


@contextlib.contextmanager
def folder_lock(url: str, what: str, name: str) -> Iterator[None]:
    """Hold a folder by a file `name` in it. `what` is the folder in an error's words. Raises as
    `checkpoint_lock` does."""
    folder = Folder(url)
    try:
        with (
            _held_file(Path(url), name, what) if folder.is_local else _held_name(folder, name, what)
        ):
            yield
    except OSError as error:
        if error.filename is None or not str(error.filename).startswith(url):
            raise
        raise SquallError(f"{what} cannot be written: {error.strerror or error}") from error


@contextlib.contextmanager
def _held_file(folder: Path, name: str, what: str) -> Iterator[None]:
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / name).open("a+") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.seek(0)
            raise _in_use(what, file.read()) from None
        file.truncate(0)
        file.write(json.dumps(_own_name()))
        file.flush()
        yield


@contextlib.contextmanager
def _held_name(folder: Folder, name: str, what: str) -> Iterator[None]:
    try:
        there = folder.read(name).decode()
    except FileNotFoundError:
        there = ""
    if there and time.time() - _parsed(there).get("at", 0.0) < STALE_SECS:
        raise _in_use(what, there)
    end = threading.Event()

    def renew() -> None:
        while not end.wait(_RENEW_SECS):
            with contextlib.suppress(Exception):  # the next time, perhaps
                folder.write(name, json.dumps(_own_name()).encode())

    folder.write(name, json.dumps(_own_name()).encode())
    thread = threading.Thread(target=renew, name="folder-lock", daemon=True)
    thread.start()
    try:
        yield
    finally:
        end.set()
        thread.join()
        with contextlib.suppress(Exception):
            folder.delete(name)


def _own_name() -> dict[str, Any]:
    return {"host": socket.gethostname(), "pid": os.getpid(), "at": time.time()}


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
