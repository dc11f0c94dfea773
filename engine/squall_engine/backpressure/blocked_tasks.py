"""The tasks of a worker that may run. Pure.

A target (a task, here or elsewhere) is *closed* when it takes no more tuples. The tasks here that
feed it are *blocked*, that is, not run, until it is open again. The caller must report every
change: this class only counts. Tasks that share their edges feed the same targets, and are counted
as one *feeder*: thousands of tasks that feed thousands would be millions of pairs.

There is no deadlock: a blocked task waits for a target whose progress depends only on what *it*
feeds, never on another task's credit or inbox. The caller leaves out feeds within one strongly
connected component, so the graph of waiting tasks has no cycle, and its ends (the bolts that feed
nothing, or whose targets are open) run.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from typing import Generic, TypeVar

Feeder = TypeVar("Feeder", bound=Hashable)


class BlockedTasks(Generic[Feeder]):
    """Closed targets, and the feeders that wait for them."""

    def __init__(self, feeds: Mapping[Feeder, Iterable[int]]) -> None:
        """`feeds`: feeder -> the targets that it feeds and has to wait for."""
        self._feeders: dict[int, list[Feeder]] = {}
        for feeder, targets in feeds.items():
            for target in set(targets):
                self._feeders.setdefault(target, []).append(feeder)
        self._waits: dict[Feeder, int] = {}  # blocked feeder -> closed targets that it feeds
        self._closed: set[int] = set()

    @property
    def blocked(self) -> Mapping[Feeder, int]:
        """The feeders whose tasks may not run (and how many targets each waits for)."""
        return self._waits

    @property
    def closed_targets(self) -> frozenset[int]:
        """The targets that take no more tuples."""
        return frozenset(self._closed)

    def close_target(self, target: int) -> bool:
        """Close a target, which takes no more tuples. True when it was open."""
        if target in self._closed:
            return False
        self._closed.add(target)
        for feeder in self._feeders.get(target, ()):
            self._waits[feeder] = self._waits.get(feeder, 0) + 1
        return True

    def open_target(self, target: int) -> bool:
        """Open a target, which takes tuples again. True when it was closed."""
        if target not in self._closed:
            return False
        self._closed.discard(target)
        for feeder in self._feeders.get(target, ()):
            self._waits[feeder] -= 1
            if not self._waits[feeder]:
                del self._waits[feeder]
        return True
