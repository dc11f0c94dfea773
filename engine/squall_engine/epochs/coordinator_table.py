"""The coordinator of a topology as a table: its states, what changes them, and what it asks for.

    GATHERING --> RAISING --> LOADING --> RESTORING --> IDLE <--------------------------+
                     ^           |            |          |  ^ ^-----------+------------+|
                     |           |            |          v  |             |            ||
                     |           |            |        TAKING --> WRITING --> DECIDING-++
                     +--------- rolled back ---------------------------------------- +

`coordinator.Coordinator` runs the table.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Any

from squall_engine.epochs.messages import Name, Record, ToCoordinator, ToWorker


class State(enum.Enum):
    """What the coordinator waits for."""

    GATHERING = "each worker's first Hello"
    RAISING = "the write that raises the generation, or the reading before it"
    LOADING = "the manifest of the epoch to go back to"
    RESTORING = "every worker to have restored"
    IDLE = "the time of the next epoch"
    TAKING = "all snapshots to be taken and durable"
    WRITING = "the manifest of the epoch to be durable"
    DECIDING = "the write that completes the epoch"
    ENDED = "nothing: another incarnation coordinates"


class Change(enum.Enum):
    """What leads from one state to another."""

    ALL_PRESENT = "every worker has said Hello"
    RAISED = "the generation is raised"
    LOADED = "the manifest was read, or there is none"
    ALL_RESTORED = "every worker has restored"
    BEGUN = "an epoch was begun"
    ALL_DURABLE = "all snapshots are durable"
    MANIFEST_WRITTEN = "the manifest is durable"
    COMPLETED = "the record names the epoch"
    GIVEN_UP = "the epoch was given up"
    ROLLED_BACK = "a worker is new, or the topology is to get another shape"
    SUPERSEDED = "another incarnation has written the record"


_S, _C = State, Change
TABLE: dict[tuple[State, Change], State] = {
    # state        what happened         next state
    (_S.GATHERING, _C.ALL_PRESENT):      _S.RAISING,

    (_S.RAISING,   _C.RAISED):           _S.LOADING,
    (_S.RAISING,   _C.ROLLED_BACK):      _S.RAISING,
    (_S.RAISING,   _C.SUPERSEDED):       _S.ENDED,

    (_S.LOADING,   _C.LOADED):           _S.RESTORING,
    (_S.LOADING,   _C.ROLLED_BACK):      _S.RAISING,

    (_S.RESTORING, _C.ALL_RESTORED):     _S.IDLE,
    (_S.RESTORING, _C.ROLLED_BACK):      _S.RAISING,

    (_S.IDLE,      _C.BEGUN):            _S.TAKING,
    (_S.IDLE,      _C.ROLLED_BACK):      _S.RAISING,

    (_S.TAKING,    _C.ALL_DURABLE):      _S.WRITING,
    (_S.TAKING,    _C.GIVEN_UP):         _S.IDLE,
    (_S.TAKING,    _C.ROLLED_BACK):      _S.RAISING,

    (_S.WRITING,   _C.MANIFEST_WRITTEN): _S.DECIDING,
    (_S.WRITING,   _C.GIVEN_UP):         _S.IDLE,
    (_S.WRITING,   _C.ROLLED_BACK):      _S.RAISING,

    (_S.DECIDING,  _C.COMPLETED):        _S.IDLE,
    (_S.DECIDING,  _C.GIVEN_UP):         _S.IDLE,
    (_S.DECIDING,  _C.ROLLED_BACK):      _S.RAISING,
    (_S.DECIDING,  _C.SUPERSEDED):       _S.ENDED,
}  # fmt: skip


# ---- events: what has happened


@dataclass(frozen=True, slots=True)
class Heard:
    """A worker has said something."""

    message: ToCoordinator


@dataclass(frozen=True, slots=True)
class RecordRead:
    """The answer to ReadRecord."""

    record: Record


@dataclass(frozen=True, slots=True)
class RecordWritten:
    """The outcome of WriteRecord: `succeeded`, refused (False), or unknown (None). Unless it
    succeeded, `present` is what the record says since: it was read after the outcome came."""

    wanted: Record
    succeeded: bool | None
    present: Record


@dataclass(frozen=True, slots=True)
class ManifestRead:
    """The answer to ReadManifest."""

    name: Name
    manifest: Any


@dataclass(frozen=True, slots=True)
class ManifestWritten:
    """What WriteManifest asked for is durable."""

    name: Name


@dataclass(frozen=True, slots=True)
class EpochDue:
    """The next epoch is to begin. `full`: its snapshots are to have all state. Ignored while one
    is under way."""

    full: bool = False


@dataclass(frozen=True, slots=True)
class TimeIsUp:
    """The epoch under way, if there is one, takes too long."""


@dataclass(frozen=True, slots=True)
class ShapeChanged:
    """The topology is to go on with other numbers of tasks."""

    shape: dict[str, int]


@dataclass(frozen=True, slots=True)
class RepeatDue:
    """What was said may have been lost."""


Event = (
    Heard
    | RecordRead
    | RecordWritten
    | ManifestRead
    | ManifestWritten
    | EpochDue
    | TimeIsUp
    | ShapeChanged
    | RepeatDue
)


# ---- commands: what is to be done


@dataclass(frozen=True, slots=True)
class Say:
    """Send a message to a worker. It may be lost."""

    worker: int
    message: ToWorker


@dataclass(frozen=True, slots=True)
class ReadRecord:
    """Read the record, and answer with RecordRead."""


@dataclass(frozen=True, slots=True)
class WriteRecord:
    """Replace the record if its version is the one before `wanted.version`, and answer with
    RecordWritten."""

    wanted: Record


@dataclass(frozen=True, slots=True)
class ReadManifest:
    """Read a manifest, and answer with ManifestRead."""

    name: Name


@dataclass(frozen=True, slots=True)
class WriteManifest:
    """Make a manifest durable under a new name, again and again until that is known, and answer
    with ManifestWritten."""

    name: Name
    manifest: Any


@dataclass(frozen=True, slots=True)
class End:
    """End this process: another incarnation coordinates."""


Command = Say | ReadRecord | WriteRecord | ReadManifest | WriteManifest | End
