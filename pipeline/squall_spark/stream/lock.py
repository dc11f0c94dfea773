"""One driver for a checkpoint: a second one is refused at once.

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


class CheckpointInUseError(SquallError):
    """Another driver works on the checkpoint."""


@contextlib.contextmanager
def checkpoint_lock(checkpoint: str) -> Iterator[None]:
    """Hold a checkpoint. Raises CheckpointInUseError, and SquallError if it cannot be written."""
    folder = Folder(checkpoint)
    try:
        with _held_file(Path(checkpoint)) if folder.is_local else _held_name(folder):
            yield
    except OSError as error:
        if error.filename is None or not str(error.filename).startswith(checkpoint):
            raise
        raise SquallError(
            f"--checkpoint {checkpoint} cannot be written: {error.strerror or error}"
        ) from error


@contextlib.contextmanager
def _held_file(checkpoint: Path) -> Iterator[None]:
    checkpoint.mkdir(parents=True, exist_ok=True)
    with (checkpoint / _NAME).open("a+") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.seek(0)
            raise _in_use(str(checkpoint), file.read()) from None
        file.truncate(0)
        file.write(json.dumps(_own_name()))
        file.flush()
        yield


@contextlib.contextmanager
def _held_name(folder: Folder) -> Iterator[None]:
    try:
        there = folder.read(_NAME).decode()
    except FileNotFoundError:
        there = ""
    if there and time.time() - _parsed(there).get("at", 0.0) < STALE_SECS:
        raise _in_use(folder.url, there)
    end = threading.Event()

    def renew() -> None:
        while not end.wait(_RENEW_SECS):
            with contextlib.suppress(Exception):  # the next time, perhaps
                folder.write(_NAME, json.dumps(_own_name()).encode())

    folder.write(_NAME, json.dumps(_own_name()).encode())
    thread = threading.Thread(target=renew, name="checkpoint-lock", daemon=True)
    thread.start()
    try:
        yield
    finally:
        end.set()
        thread.join()
        with contextlib.suppress(Exception):
            folder.delete(_NAME)


def _own_name() -> dict[str, Any]:
    return {"host": socket.gethostname(), "pid": os.getpid(), "at": time.time()}


def _parsed(text: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _in_use(checkpoint: str, text: str) -> CheckpointInUseError:
    who = _parsed(text)
    by = f" by process {who['pid']} on {who['host']}" if {"pid", "host"} <= who.keys() else ""
    return CheckpointInUseError(
        f"--checkpoint {checkpoint} is in use{by}",
        hint="stop that stream first, or give this one its own --checkpoint",
    )
