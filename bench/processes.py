"""CPU time and memory of this process's children, such as a JVM and its Python workers."""

from __future__ import annotations

import threading
from typing import Any

import psutil

_LOOK_SECS = 0.1


def cpu_secs() -> float:
    """The CPU time of this process and of all below it so far, with those that have ended."""
    total = 0.0
    for process in (psutil.Process(), *psutil.Process().children(recursive=True)):
        try:
            total += sum(process.cpu_times()[:4])  # with children that have ended
        except psutil.Error:
            continue
    return total


class Tree:
    """Watches the processes below this one, in a `with` statement, ten times a second: what one
    does in the last tenth of its life is not seen."""

    def __init__(self) -> None:
        self.largest_mib = {"python": 0.0, "java": 0.0}  # resident, of one process
        self._cpu: dict[tuple[int, float], float] = {}
        self._cpu_before: dict[tuple[int, float], float] = {}
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._watch)

    def __enter__(self) -> Tree:
        self._look_at_all()
        self._cpu_before = dict(self._cpu)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join()

    def cpu_secs(self) -> float:
        """The CPU time, since the `with` statement began, of the processes that were seen."""
        return sum(self._cpu.values()) - sum(self._cpu_before.values())

    def _watch(self) -> None:
        while not self._end.wait(_LOOK_SECS):
            self._look_at_all()

    def _look_at_all(self) -> None:
        for child in psutil.Process().children(recursive=True):
            try:
                self._look(child)
            except psutil.Error:
                continue

    def _look(self, child: Any) -> None:
        times = child.cpu_times()
        self._cpu[(child.pid, child.create_time())] = times.user + times.system
        for name in self.largest_mib:
            if name in child.name():
                mib = round(child.memory_info().rss / 2**20, 1)
                self.largest_mib[name] = max(self.largest_mib[name], mib)
