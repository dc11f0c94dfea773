"""A worker in the epochs of its topology: restores, goes, and reports snapshots. Pure.

    NEW --Restore--> RESTORING --restored--> WAITING --Go--> RUNNING
                         ^                      |               |
                         +------- Restore of a later generation +

A Restore that names another incarnation of this worker ends it, if that one is newer. All else that
is of another generation is dropped.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from squall_common.daemon.output.story import Story
from squall_engine.epochs.messages import (
    Begin,
    Completed,
    Go,
    Hello,
    Release,
    Report,
    Restore,
    TaskName,
    ToWorker,
)
from squall_engine.epochs.task import TaskEpochs


class MemberState(enum.Enum):
    """The states of a worker."""

    NEW = "it has no tasks yet"
    RESTORING = "its tasks are being made from an epoch"
    WAITING = "its tasks are there; they emit once all workers have restored"
    RUNNING = "its tasks emit"
    ENDED = "a newer incarnation has taken its place"


class MemberEvent(enum.Enum):
    """What changes the state."""

    RESTORE = "the coordinator has begun a generation in which this worker takes part"
    RESTORED = "all its tasks are made and have their state"
    GO = "all workers have restored"
    REPLACED = "the coordinator has begun a generation in which a newer incarnation takes part"


_S, _E = MemberState, MemberEvent
TABLE: dict[tuple[MemberState, MemberEvent], MemberState] = {
    # state        what happened  next state
    (_S.NEW,       _E.RESTORE):   _S.RESTORING,
    (_S.NEW,       _E.REPLACED):  _S.ENDED,

    (_S.RESTORING, _E.RESTORE):   _S.RESTORING,
    (_S.RESTORING, _E.RESTORED):  _S.WAITING,
    (_S.RESTORING, _E.REPLACED):  _S.ENDED,

    (_S.WAITING,   _E.GO):        _S.RUNNING,
    (_S.WAITING,   _E.RESTORE):   _S.RESTORING,
    (_S.WAITING,   _E.REPLACED):  _S.ENDED,

    (_S.RUNNING,   _E.RESTORE):   _S.RESTORING,
    (_S.RUNNING,   _E.REPLACED):  _S.ENDED,
}  # fmt: skip


# ---- commands: what is to be done


@dataclass(frozen=True, slots=True)
class MakeTasks:
    """Drop all tasks, make new ones from the epoch, and call `restored`."""

    restore: Restore


@dataclass(frozen=True, slots=True)
class Start:
    """Let the tasks emit."""


@dataclass(frozen=True, slots=True)
class Confirm:
    """Tell every task that an epoch is complete. May be said again, and late."""

    epoch: int


@dataclass(frozen=True, slots=True)
class Look:
    """A snapshot may be due, or a task need not be silent any more."""


@dataclass(frozen=True, slots=True)
class EndWorker:
    """End this process: a newer one has taken its place."""


Command = MakeTasks | Start | Confirm | Look | EndWorker


class Member:
    """One incarnation of a worker."""

    def __init__(self, worker: int, incarnation: int) -> None:
        self.worker = worker
        self.incarnation = incarnation
        self.state = MemberState.NEW
        self.generation = 0
        self.tasks: dict[TaskName, TaskEpochs] = {}
        self._parts: dict[TaskName, tuple[int, Any]] = {}  # durable: epoch, part
        self._story = Story()

    def hear(self, message: ToWorker) -> list[Command]:
        """React to what the coordinator has said."""
        if self.state is MemberState.ENDED:
            return []
        if isinstance(message, Restore):
            return self._hear_restore(message)
        if message.generation != self.generation:
            return []
        match message:
            case Go(epoch=epoch) if self.state is MemberState.WAITING:
                self._change(MemberEvent.GO)
                return [Start(), Confirm(epoch)]  # sinks may have rows of it
            case Begin(epoch=epoch, full=full) if self.state is MemberState.RUNNING:
                for task in self.tasks.values():
                    if task.is_source:
                        task.begin(epoch, full)
                return [Look()]
            case Release(epoch=epoch):
                for task in self.tasks.values():
                    task.release(epoch)
                return [Look()]
            case Completed(epoch=epoch) if self.state is MemberState.RUNNING:
                return [Confirm(epoch)]
        return []

    def _hear_restore(self, to: Restore) -> list[Command]:
        incarnation = to.members.get(self.worker, 0)
        if not self._takes_part(incarnation):
            if incarnation > self.incarnation:
                self._change(MemberEvent.REPLACED)
                self.tasks.clear()
                self._parts.clear()
                return [EndWorker()]
            return []  # an older message
        if to.generation <= self.generation:
            return []
        self._change(MemberEvent.RESTORE)
        self.generation = to.generation
        self.tasks.clear()
        self._parts.clear()
        return [MakeTasks(to)]

    def _takes_part(self, incarnation: int) -> bool:
        return incarnation == self.incarnation

    def restored(self, generation: int, tasks: Mapping[TaskName, TaskEpochs]) -> None:
        """The tasks that a MakeTasks asked for are there. Ignored if another came meanwhile."""
        if generation == self.generation and self.state is MemberState.RESTORING:
            self._change(MemberEvent.RESTORED)
            self.tasks = dict(tasks)

    # -- what it says --

    def hello(self) -> Hello:
        """To be said often."""
        waits = self.state is not MemberState.RUNNING
        ready = self.state in (MemberState.WAITING, MemberState.RUNNING)
        return Hello(self.worker, self.incarnation, self.generation if ready else 0, waits)

    def report(self, task: TaskName) -> Report | None:
        """That a task has taken its snapshot, to be said until it is released; None: it has not."""
        epoch = self.tasks[task].taken
        if epoch == 0:
            return None
        at, part = self._parts.get(task, (0, None))
        return Report(self.worker, self.generation, epoch, task, part if at == epoch else None)

    def durable(self, generation: int, epoch: int, task: TaskName, part: Any) -> Report | None:
        """A snapshot is durable. Returns the report of that, unless it is of no use any more."""
        if generation != self.generation or task not in self.tasks:
            return None
        if self.tasks[task].taken != epoch:
            return None
        self._parts[task] = (epoch, part)
        return self.report(task)

    def is_durable(self, task: TaskName) -> bool:
        """Whether the snapshot that a task took last is durable."""
        return self._parts.get(task, (0, None))[0] == self.tasks[task].taken

    # -- checks --

    def _change(self, event: MemberEvent) -> None:
        following = TABLE.get((self.state, event))
        self.state = self._story.step(self.state, event.name, following, 0.0)

    def validate(self) -> None:
        """Assert what must be true between two events. Raises ContradictionError."""
        with self._story.checking(self):
            ready = self.state in (MemberState.WAITING, MemberState.RUNNING)
            assert ready or not self.tasks, "tasks of a generation that is over"
            assert self._parts.keys() <= self.tasks.keys(), "a snapshot without its task"
            if self.state is MemberState.NEW:
                assert self.generation == 0, "a generation without a Restore"
        for task in self.tasks.values():
            task.validate()

    def __str__(self) -> str:
        return f"worker {self.worker}.{self.incarnation} {self.state.name} in {self.generation}"
