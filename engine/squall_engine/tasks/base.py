"""What every task of a worker has, as the run loop sees it: its place, its outputs, its counts.

A *task* runs one instance of a component; an executor is only a range of tasks with common
statistics.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Protocol

from squall_common.daemon.mypyc import mypyc_attr
from squall_common.topology.model import Executor
from squall_engine.core import Output, Tuple, TurnState
from squall_engine.core.inspectors import Observer
from squall_engine.core.stats import TaskCounts
from squall_engine.hooks.task_hooks import TaskHooks
from squall_engine.tasks.in_hand import InHand

# A component that holds the loop for longer is named in a warning.
HOLD_SECS = 0.05


class _NoLock:
    def __enter__(self) -> None:
        pass

    def __exit__(self, *_: object) -> None:
        pass


NO_LOCK = _NoLock()


class Host(Protocol):
    """What tasks need from the engine."""

    turn: TurnState
    observer: Observer | None

    def now(self) -> float: ...

    def held_loop(self, component: str, what: str, secs: float) -> None: ...

    def report(self, component: str, task: int, error: BaseException) -> None: ...

    def wake(self) -> None: ...

    def die(self, error: BaseException) -> None: ...

    def messages_of(self, tuples: Sequence[Tuple]) -> Mapping[int, Any]: ...


@dataclass(frozen=True, slots=True)
class TaskParts:
    """The parts that every kind of task has."""

    host: Host
    component: str
    task: int
    executor: Executor
    outputs: Sequence[Output]
    counts: TaskCounts


@mypyc_attr(allow_interpreted_subclasses=True)
class Task:
    """One task: its place in the topology, its outputs and its counts."""

    def __init__(self, parts: TaskParts) -> None:
        self.host = parts.host
        self.component = parts.component
        self.task = parts.task
        self.executor = parts.executor
        self.outputs = parts.outputs
        self.counts = parts.counts
        self.user: Any = None  # the user's object, once made
        self.hooks: TaskHooks | None = None
        self.dirty = False  # it may have emitted, acked ... between two turns
        self.in_hand: InHand | None = None  # records what is in hand; not for a SyncBolt
        # Of its state, what is read of the store if it starts again; None: that is not stored.
        self.stored_bytes: Callable[[], int | None] | None = None
        # Held while the task's buffers and counts are used; a real lock only for tasks on threads.
        self.lock: AbstractContextManager[Any] = NO_LOCK
