"""One task in one generation: when its snapshot is due, and while it has to be silent. Pure.

    FLOWING --all upstream have taken theirs--> DUE --took--> SILENT --release--> FLOWING

A task that is DUE finishes what it has begun before it takes its snapshot. What it emits meanwhile
belongs to the epoch. A SILENT task emits nothing, so that nothing of the next epoch reaches a task
that has not taken its snapshot of this one.
"""

from __future__ import annotations

import enum
from collections.abc import Hashable, Iterable

from squall_common.daemon.output.story import ContradictionError, Story


class TaskState(enum.Enum):
    FLOWING = "it works, and emits"
    DUE = "nothing more arrives before its snapshot, which it takes once it has settled"
    SILENT = "it has taken its snapshot, and not all have"


class TaskEpochs:
    """The epochs of one task. An upstream is anything that the task gets barriers from; a source
    has none, and its barriers come from the coordinator (`begin`)."""

    def __init__(self, upstream: Iterable[Hashable], epoch: int) -> None:
        """`epoch` is the one that it was restored from; 0: none."""
        self.taken = epoch  # the last of which it has taken its snapshot
        self.closed = epoch  # those up to this one silence it no longer
        self._begun = epoch  # of a source
        self._barriers = dict.fromkeys(upstream, epoch)
        self._full: dict[int, bool] = {}  # by epoch
        self._story = Story()

    @property
    def is_source(self) -> bool:
        return not self._barriers

    @property
    def begun(self) -> int:
        """The last epoch of which it has heard."""
        return max(self._barriers.values()) if self._barriers else self._begun

    @property
    def state(self) -> TaskState:
        if self.taken > self.closed:
            return TaskState.SILENT
        return TaskState.FLOWING if self.due is None else TaskState.DUE

    @property
    def due(self) -> int | None:
        """The epoch of which a snapshot is due."""
        epoch = min(self._barriers.values()) if self._barriers else self._begun
        return epoch if epoch > max(self.taken, self.closed) else None

    def begin(self, epoch: int, full: bool) -> None:
        """Of a source: the coordinator has begun an epoch."""
        if epoch > self._begun:
            self._begun = epoch
            self._full[epoch] = full

    def barrier(self, upstream: Hashable, epoch: int, full: bool) -> None:
        """An upstream task has taken its snapshot, and all that it has emitted before is here."""
        self._barriers[upstream] = max(self._barriers[upstream], epoch)
        self._full[epoch] = full

    def hear(self, upstream: Hashable, epoch: int, full: bool) -> None:
        """The same, from a task that may not be upstream, and perhaps late."""
        if upstream in self._barriers and epoch > self.taken:
            self.barrier(upstream, epoch, full)

    def wants_full(self, epoch: int) -> bool:
        """Whether its snapshot of an epoch has to have all state."""
        return self._full[epoch]

    def took(self, epoch: int) -> None:
        """It has settled, and taken its snapshot."""
        self.taken = epoch
        self._full = {at: full for at, full in self._full.items() if at > epoch}

    def release(self, epoch: int) -> None:
        """All have taken theirs, or the epoch was given up."""
        self.closed = max(self.closed, epoch)

    def validate(self) -> None:
        """Assert what must always be true. Raises ContradictionError."""
        try:
            assert self.taken <= self.begun, "it has taken what was not begun"
            if self.due is not None:
                assert self.due in self._full, "due, and of an unknown kind"
        except AssertionError as error:
            raise ContradictionError(f"{self}: {error}") from error

    def __str__(self) -> str:
        return f"task {self.state.name}, taken {self.taken}, closed {self.closed}"
