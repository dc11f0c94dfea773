"""Power failures at every step of a piece of work, and full disks: what is on the disk afterwards.

A step is a call that changes names or makes something durable. Before each, the disk is
photographed as a power failure in that moment would leave it (`disk`), several times, since what
was not synced may be there or not.

    points = CrashPoints(folder, seed=1, photos=12)
    with points.watching():
        work(points.disk_folder)
    for point in points.taken: ... look at point.folder
"""

from __future__ import annotations

import copy
import errno
import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

from tests.simulation.disk import Disk

from squall_common.daemon import files

_HOST = "node"
_STEPS = ("replace", "rename", "unlink", "mkdir", "rmdir", "link", "symlink")
# What a full disk refuses.
_NEED_ROOM = frozenset({"fsync", "syncfs", "mkdir", "link", "symlink"})


@dataclass(frozen=True, slots=True)
class Point:
    """The disk after a power failure before the step, and what had been promised by then."""

    folder: Path
    step: str
    promised: Any


class CrashPoints:
    """`promised` is the work's: what whoever reads the disk may find. A copy is kept of it with
    each point."""

    def __init__(self, root: Path, *, seed: int = 0, photos: int = 0) -> None:
        self._root = root
        self.disk = Disk(root / "disks", seed)
        self.disk_folder = self.disk.folder(_HOST)
        self.promised: Any = None
        self.taken: list[Point] = []
        self.steps = 0
        self._photos = photos
        self._full_from: int | None = None
        self._busy = False

    def fill_disk_at(self, step: int) -> None:
        """From that step on nothing more fits onto the disk."""
        self._full_from = step

    @contextmanager
    def watching(self) -> Iterator[None]:
        """While this lasts, every step is one."""
        with ExitStack() as stack:
            stack.enter_context(self.disk.noting())
            for name in (*_STEPS, "fsync"):
                real = getattr(os, name)
                stack.enter_context(mock.patch.object(os, name, self._step(name, real)))
            syncfs = self._step("syncfs", files.sync_file_system)
            stack.enter_context(mock.patch.object(files, "sync_file_system", syncfs))
            yield
            self._before("the end")

    def _step(self, name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def step(*args: Any, **kwargs: Any) -> Any:
            if not self._busy:
                self._before(name)
            return real(*args, **kwargs)

        return step

    def _before(self, name: str) -> None:
        self.steps += 1
        self._busy = True
        try:
            for _ in range(self._photos):
                folder = self._root / f"photo-{len(self.taken)}"
                self.disk.photograph(_HOST, folder)
                what = f"{self.steps}: {name}"
                self.taken.append(Point(folder, what, copy.deepcopy(self.promised)))
        finally:
            self._busy = False
        if self._full_from is not None and self.steps >= self._full_from and name in _NEED_ROOM:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
