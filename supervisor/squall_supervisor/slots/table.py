"""The slot's table: its states, what can happen to it, what it can command, and the transitions.

Events are in the past, commands in the imperative. `slot.Slot` runs the table.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Any

from squall_supervisor.records.assignments import PortAssignment


class State(enum.Enum):
    """What is true of a slot."""

    EMPTY = "This port is not to run anything, and no worker of ours runs on it."
    WAITING_FOR_BLOB_LOCALIZATION = (
        "A topology is wanted; its code is not whole on this disk yet, and nothing runs."
    )
    WAITING_FOR_WORKER_START = (
        "A worker was launched (or is being launched) and has not said that its tasks run."
    )
    RUNNING = "The worker has said that its tasks run, and a heartbeat came within its timeout."
    KILL = "The worker must end: this port is to run something else, or nothing."
    KILL_AND_RELAUNCH = (
        "The worker has ended or is being ended; another follows when the back-off is over."
    )
    KILL_BLOB_UPDATE = "The worker is being ended because its code or configuration has changed."
    WAITING_FOR_BLOB_UPDATE = "Nothing runs; the changed code or configuration is being fetched."


# Events: what has happened.


@dataclass(frozen=True, slots=True)
class Assigned:
    """A port that had no work got some."""


@dataclass(frozen=True, slots=True)
class Reassigned:
    """The port is to run another topology, or another set of executors."""


@dataclass(frozen=True, slots=True)
class Unassigned:
    """The port is not to run anything any more."""


@dataclass(frozen=True, slots=True)
class BlobsLocalized:
    """Package, code and configuration of the topology are whole on this disk."""


@dataclass(frozen=True, slots=True)
class BlobsFailed:
    """They could not be fetched or unpacked this time."""

    reason: str


@dataclass(frozen=True, slots=True)
class BlobsMissing:
    """They were missing when a worker was to be launched."""


@dataclass(frozen=True, slots=True)
class BlobsChanged:
    """Nimbus has a newer version than this node runs."""


@dataclass(frozen=True, slots=True)
class WorkerLaunched:
    """The process exists."""

    worker_id: str
    timeout_secs: float  # of its heartbeats


@dataclass(frozen=True, slots=True)
class LaunchFailed:
    """No process could be made (a full disk, no memory ...)."""

    reason: str


@dataclass(frozen=True, slots=True)
class WorkerAdopted:
    """A worker that outlived the previous supervisor was found, and is ours."""

    worker_id: str
    timeout_secs: float
    assignment: PortAssignment


@dataclass(frozen=True, slots=True)
class HeartbeatReceived:
    """The worker wrote a heartbeat at `at` (monotonic seconds)."""

    at: float


@dataclass(frozen=True, slots=True)
class TasksStarted:
    """The worker says that all its tasks run and its port is bound."""


@dataclass(frozen=True, slots=True)
class WorkerExited:
    """The process and everything that it started has ended. `status` is None if it is unknown (an
    adopted worker is not our child)."""

    worker_id: str
    status: int | None


@dataclass(frozen=True, slots=True)
class HeartbeatTimedOut:
    """No heartbeat came within the timeout."""


@dataclass(frozen=True, slots=True)
class GraceOver:
    """The worker was asked to end, and its time for that is over."""


@dataclass(frozen=True, slots=True)
class WorkerGone:
    """No process is left, and none is on its way."""


@dataclass(frozen=True, slots=True)
class RelaunchDue:
    """The back-off is over."""


@dataclass(frozen=True, slots=True)
class RetryDue:
    """It is time to try the download again."""


@dataclass(frozen=True, slots=True)
class RestartRequested:
    """A user asked to end the worker and start it again; it does not count as a short life."""


@dataclass(frozen=True, slots=True)
class MemoryExceeded:
    """The worker's processes hold more memory than their limit, and did at the last look."""

    used_bytes: int


@dataclass(frozen=True, slots=True)
class MemoryFarExceeded:
    """They hold so much memory that there is no time for an orderly end."""

    used_bytes: int


Event = (
    Assigned
    | Reassigned
    | Unassigned
    | BlobsLocalized
    | BlobsFailed
    | BlobsMissing
    | BlobsChanged
    | WorkerLaunched
    | LaunchFailed
    | WorkerAdopted
    | HeartbeatReceived
    | TasksStarted
    | WorkerExited
    | HeartbeatTimedOut
    | GraceOver
    | WorkerGone
    | RelaunchDue
    | RetryDue
    | RestartRequested
    | MemoryExceeded
    | MemoryFarExceeded
)


# Commands: what the shell is to do.


@dataclass(frozen=True, slots=True)
class LocalizeBlobs:
    """Fetch what is missing; answer BlobsLocalized or BlobsFailed."""

    assignment: PortAssignment


@dataclass(frozen=True, slots=True)
class UpdateBlobs:
    """Fetch the newest version; answer BlobsLocalized or BlobsFailed."""

    assignment: PortAssignment


@dataclass(frozen=True, slots=True)
class ReleaseBlobs:
    """Stop waiting for blobs: no answer is expected any more."""


@dataclass(frozen=True, slots=True)
class LaunchWorker:
    """Start a process; answer WorkerLaunched, LaunchFailed or BlobsMissing."""

    assignment: PortAssignment


@dataclass(frozen=True, slots=True)
class TerminateWorker:
    """Ask the process to end (SIGTERM)."""

    worker_id: str


@dataclass(frozen=True, slots=True)
class KillWorker:
    """End the process and all that it started (SIGKILL)."""

    worker_id: str


Command = LocalizeBlobs | UpdateBlobs | ReleaseBlobs | LaunchWorker | TerminateWorker | KillWorker

_EMPTY = State.EMPTY
_LOCALIZE = State.WAITING_FOR_BLOB_LOCALIZATION
_START = State.WAITING_FOR_WORKER_START
_RUNNING = State.RUNNING
_KILL = State.KILL
_RELAUNCH = State.KILL_AND_RELAUNCH
_KILL_UPDATE = State.KILL_BLOB_UPDATE
_UPDATE = State.WAITING_FOR_BLOB_UPDATE

# Commands about a worker are left out while there is none (its launch is still under way).
TABLE: dict[tuple[State, type[Any]], tuple[State, tuple[type[Any], ...]]] = {
    # state         what happened         next state     commands
    (_EMPTY,        Assigned):            (_LOCALIZE,    (LocalizeBlobs,)),
    (_EMPTY,        WorkerAdopted):       (_START,       ()),

    (_LOCALIZE,     BlobsLocalized):      (_START,       (LaunchWorker,)),
    (_LOCALIZE,     BlobsFailed):         (_LOCALIZE,    ()),
    (_LOCALIZE,     RetryDue):            (_LOCALIZE,    (LocalizeBlobs,)),
    (_LOCALIZE,     BlobsChanged):        (_LOCALIZE,    ()),
    (_LOCALIZE,     Reassigned):          (_LOCALIZE,    (ReleaseBlobs, LocalizeBlobs)),
    (_LOCALIZE,     Unassigned):          (_EMPTY,       (ReleaseBlobs,)),

    (_START,        WorkerLaunched):      (_START,       ()),
    (_START,        LaunchFailed):        (_RELAUNCH,    ()),
    (_START,        BlobsMissing):        (_LOCALIZE,    (LocalizeBlobs,)),
    (_START,        HeartbeatReceived):   (_START,       ()),
    (_START,        TasksStarted):        (_RUNNING,     ()),
    (_START,        HeartbeatTimedOut):   (_RELAUNCH,    (KillWorker,)),
    (_START,        MemoryExceeded):      (_RELAUNCH,    (TerminateWorker,)),
    (_START,        MemoryFarExceeded):   (_RELAUNCH,    (KillWorker,)),
    (_START,        WorkerExited):        (_RELAUNCH,    ()),
    (_START,        BlobsChanged):        (_KILL_UPDATE, (TerminateWorker,)),
    (_START,        Reassigned):          (_KILL,        (TerminateWorker,)),
    (_START,        Unassigned):          (_KILL,        (TerminateWorker,)),

    (_RUNNING,      HeartbeatReceived):   (_RUNNING,     ()),
    (_RUNNING,      HeartbeatTimedOut):   (_RELAUNCH,    (KillWorker,)),
    (_RUNNING,      MemoryExceeded):      (_RELAUNCH,    (TerminateWorker,)),
    (_RUNNING,      MemoryFarExceeded):   (_RELAUNCH,    (KillWorker,)),
    (_RUNNING,      WorkerExited):        (_RELAUNCH,    ()),
    (_RUNNING,      RestartRequested):    (_RELAUNCH,    (TerminateWorker,)),
    (_RUNNING,      BlobsChanged):        (_KILL_UPDATE, (TerminateWorker,)),
    (_RUNNING,      Reassigned):          (_KILL,        (TerminateWorker,)),
    (_RUNNING,      Unassigned):          (_KILL,        (TerminateWorker,)),

    (_KILL,         WorkerLaunched):      (_KILL,        (TerminateWorker,)),
    (_KILL,         LaunchFailed):        (_KILL,        ()),
    (_KILL,         BlobsMissing):        (_KILL,        ()),
    (_KILL,         HeartbeatReceived):   (_KILL,        ()),
    (_KILL,         GraceOver):           (_KILL,        (KillWorker,)),
    (_KILL,         MemoryFarExceeded):   (_KILL,        (KillWorker,)),
    (_KILL,         WorkerExited):        (_KILL,        ()),
    (_KILL,         BlobsChanged):        (_KILL,        ()),
    (_KILL,         Assigned):            (_KILL,        ()),
    (_KILL,         Reassigned):          (_KILL,        ()),
    (_KILL,         Unassigned):          (_KILL,        ()),
    (_KILL,         WorkerGone):          (_EMPTY,       ()),

    (_RELAUNCH,     HeartbeatReceived):   (_RELAUNCH,    ()),
    (_RELAUNCH,     GraceOver):           (_RELAUNCH,    (KillWorker,)),
    (_RELAUNCH,     MemoryFarExceeded):   (_RELAUNCH,    (KillWorker,)),
    (_RELAUNCH,     WorkerExited):        (_RELAUNCH,    ()),
    (_RELAUNCH,     RelaunchDue):         (_START,       (LaunchWorker,)),
    (_RELAUNCH,     BlobsChanged):        (_KILL_UPDATE, ()),
    (_RELAUNCH,     Reassigned):          (_KILL,        ()),
    (_RELAUNCH,     Unassigned):          (_KILL,        ()),

    (_KILL_UPDATE,  WorkerLaunched):      (_KILL_UPDATE, (TerminateWorker,)),
    (_KILL_UPDATE,  LaunchFailed):        (_KILL_UPDATE, ()),
    (_KILL_UPDATE,  BlobsMissing):        (_KILL_UPDATE, ()),
    (_KILL_UPDATE,  HeartbeatReceived):   (_KILL_UPDATE, ()),
    (_KILL_UPDATE,  GraceOver):           (_KILL_UPDATE, (KillWorker,)),
    (_KILL_UPDATE,  MemoryFarExceeded):   (_KILL_UPDATE, (KillWorker,)),
    (_KILL_UPDATE,  WorkerExited):        (_KILL_UPDATE, ()),
    (_KILL_UPDATE,  BlobsChanged):        (_KILL_UPDATE, ()),
    (_KILL_UPDATE,  Reassigned):          (_KILL,        ()),
    (_KILL_UPDATE,  Unassigned):          (_KILL,        ()),
    (_KILL_UPDATE,  WorkerGone):          (_UPDATE,      (UpdateBlobs,)),

    (_UPDATE,       BlobsLocalized):      (_START,       (LaunchWorker,)),
    (_UPDATE,       BlobsFailed):         (_UPDATE,      ()),
    (_UPDATE,       RetryDue):            (_UPDATE,      (UpdateBlobs,)),
    (_UPDATE,       BlobsChanged):        (_UPDATE,      ()),
    (_UPDATE,       Reassigned):          (_LOCALIZE,    (ReleaseBlobs, LocalizeBlobs)),
    (_UPDATE,       Unassigned):          (_EMPTY,       (ReleaseBlobs,)),
}  # fmt: skip
