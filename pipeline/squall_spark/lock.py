"""One driver for a checkpoint, and for a view of current values: a second one is refused at once.

In a local folder it is a lock of the file system (flock), which ends with its process. Behind a URL
there are none, so each driver has two files of its own, which no other driver ever writes:

    lock.TERM.ID        its claim, written once. The term is higher than all that were there.
    lock.TERM.ID.at     the time, written again and again

A claim whose time was not written for `STALE_SECS` is that of a driver that is gone, and its
successor deletes it. A driver that was only paused for that long finds its claim gone, or a later
one there, when it goes on, and stops: `Held.check`. Wherever it was paused, also between a look and
a write, what it writes then is a time without a claim, which means nothing to others.

Earlier versions of Squall write their name and the time into `lock` itself, again and again: they
are not disturbed while they run.

Two that begin in the same moment both write first and look then, so at least one sees the other.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import re
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
_TIME = ".at"


class FolderInUseError(SquallError):
    """Another driver works on the folder."""


class Held:
    """A folder that this driver holds. In a local folder the kernel sees to it."""

    def check(self) -> None:
        """Raises FolderInUseError if another driver has taken the folder."""


class HeldName(Held):
    """A folder behind a URL, held by a claim of this driver's."""

    def __init__(self, folder: Folder, name: str, what: str) -> None:
        self._folder, self._name, self._what = folder, name, what
        self._claim = ""
        self._lost: str | None = None  # the claim of the other driver, or what is known of it

    def take(self) -> None:
        """Claim the folder. Raises FolderInUseError."""
        others = _claims(self._folder, self._name)
        self._refuse([self._name, *others])
        term = max(map(_term, others), default=0) + 1
        self._claim = f"{self._name}.{term:09d}.{uuid.uuid4().hex}"
        self._folder.write(self._claim, _now())
        try:
            self._settle(term)
        except BaseException:
            # What is left of it would be in the way of the next try for a minute.
            with contextlib.suppress(OSError, SquallError):
                self._folder.delete(self._claim)
            raise

    def _settle(self, term: int) -> None:
        """Look once more, and delete what earlier drivers have left."""
        others = [each for each in _claims(self._folder, self._name) if each != self._claim]
        self._refuse(others, term)
        for each in (self._name, *others):
            self._folder.delete(each)
        # Also times without a claim: a paused driver has written them too late. (Not those with
        # one: this driver may have been paused itself, and have a successor.)
        names = set(self._folder.names())
        for each in names:
            claim = each.removesuffix(_TIME)
            if each.startswith(f"{self._name}.") and claim != each and claim not in names:
                self._folder.delete(each)

    def renew(self) -> None:
        """Write the time anew, unless another driver has taken the folder."""
        if self._look():
            self._folder.write(self._claim + _TIME, _now())

    def release(self) -> None:
        for name in (self._claim, self._claim + _TIME):
            self._folder.delete(name)

    def check(self) -> None:
        if not self._look():
            raise _in_use(self._what, self._lost or "")

    def _look(self) -> bool:
        """Whether the folder is still this driver's."""
        if self._lost is None:
            claims = _claims(self._folder, self._name)
            later = [each for each in claims if _term(each) > _term(self._claim)]
            if later or self._claim not in claims:
                self._lost = _read(self._folder, max(later, default=""))
        return self._lost is None

    def _refuse(self, others: list[str], term: int | None = None) -> None:
        """Raises FolderInUseError if one of these claims is of a driver that runs, or came between
        this driver's look and its claim of a term."""
        for each in others:
            claim = _read(self._folder, each)
            if not claim:
                continue  # it has just ended
            written = (claim, _read(self._folder, each + _TIME))
            at = max(_parsed(text).get("at", 0.0) for text in written)
            if time.time() - at < STALE_SECS or (term is not None and _term(each) >= term):
                raise _in_use(self._what, claim)


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
    end, held = threading.Event(), HeldName(folder, name, what)

    def renew() -> None:
        while not end.wait(_RENEW_SECS):
            with contextlib.suppress(Exception):  # the next time, perhaps
                held.renew()

    held.take()
    thread = threading.Thread(target=renew, name="folder-lock", daemon=True)
    thread.start()
    try:
        yield held
    finally:
        end.set()
        thread.join()
        with contextlib.suppress(Exception):
            held.release()


def _claims(folder: Folder, name: str) -> list[str]:
    """The claims that are there: NAME.TERM.ID."""
    found = (each for each in folder.names() if each.startswith(f"{name}."))
    return [each for each in found if re.fullmatch(r"\d+\.[0-9a-f]+", each[len(name) + 1 :])]


def _term(claim: str) -> int:
    return int(claim.rsplit(".", 2)[1])


def _now() -> bytes:
    """Who writes this, and when."""
    own = {"host": socket.gethostname(), "pid": os.getpid(), "at": time.time()}
    return json.dumps(own).encode()


def _read(folder: Folder, name: str) -> str:
    """A file's text; "" if it is not there (any more), or has no name."""
    try:
        return folder.read(name).decode() if name else ""
    except FileNotFoundError:
        return ""


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
