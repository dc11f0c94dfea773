"""What coordinator and workers say to each other about epochs, and the record that decides.

Messages may be late, doubled and lost: each says all that matters, and is said again until its
effect is seen.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

# (component, index among the component's tasks)
TaskName = tuple[str, int]
# The number of tasks of each component.
Shape = Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Name:
    """The name of an object in the store. No two objects with different contents have the same."""

    generation: int
    epoch: int
    what: str


@dataclass(frozen=True, slots=True)
class Record:
    """What is decided about a topology, in one place that can be compared and set. The `version` is
    that of the place."""

    version: int = 0
    generation: int = 0
    coordinator: int = 0  # the incarnation that wrote it
    epoch: int = 0  # the last complete one; 0: none
    manifest: Name | None = None
    history: str = ""  # in which its epochs are counted; see `new_history`
    # Which start of the topology it belongs to (its id), when that was (milliseconds since 1970, as
    # the next), and the generation before it.
    start: str = ""
    start_time_ms: int = 0
    start_generation: int = 0
    # Why and when a coordinator has claimed it last, but for a start.
    rollback_reason: str = ""
    rollback_time_ms: int = 0

    @property
    def rollbacks(self) -> int:
        """Since the topology was started; the first generation of a start is none."""
        return max(0, self.generation - self.start_generation - 1) if self.start else 0


def new_history(topology: str) -> str:
    """The identity of a new history of epochs: sinks note it with the number of the last epoch that
    they have applied, so that they do not take epoch 7 of another history, which has counted from 1
    again, for one that they know."""
    return f"{topology}@{os.urandom(6).hex()}"


# ---- to the coordinator


@dataclass(frozen=True, slots=True)
class Hello:
    """A worker exists. Said often."""

    worker: int
    incarnation: int
    generation: int  # in which it has restored its tasks; 0: none
    waits: bool  # for Go


@dataclass(frozen=True, slots=True)
class Report:
    """A task has taken its snapshot. `part` describes it in the manifest once it is durable."""

    worker: int
    generation: int
    epoch: int
    task: TaskName
    part: Any = None


# ---- to workers


@dataclass(frozen=True, slots=True)
class Restore:
    """Begin a new generation: drop all tasks, and make new ones from an epoch."""

    generation: int
    epoch: int
    shape: Shape
    members: Mapping[int, int]  # worker: the incarnation that takes part
    manifest: Any = field(repr=False)  # that of the epoch; None: there is none yet
    history: str = ""  # the record's


@dataclass(frozen=True, slots=True)
class Go:
    """All have restored: emit."""

    generation: int
    epoch: int


@dataclass(frozen=True, slots=True)
class Begin:
    """Begin an epoch at the sources. `full`: snapshots have all state, not only what changed."""

    generation: int
    epoch: int
    full: bool


@dataclass(frozen=True, slots=True)
class Release:
    """The epoch silences tasks no longer: all have taken their snapshots, or it was given up."""

    generation: int
    epoch: int


@dataclass(frozen=True, slots=True)
class Completed:
    """The epoch is complete: whatever comes, it will not be undone."""

    generation: int
    epoch: int


ToCoordinator = Hello | Report
ToWorker = Restore | Go | Begin | Release | Completed
