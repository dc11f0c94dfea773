"""Describes a slot's steps to people: for the log, and for the history of a topology. Pure."""

from __future__ import annotations

import signal

from squall_supervisor.slots.slot import Step
from squall_supervisor.slots.table import (
    BlobsFailed,
    HeartbeatTimedOut,
    LaunchFailed,
    MemoryExceeded,
    MemoryFarExceeded,
    RestartRequested,
    State,
    WorkerExited,
)

# Why a worker ended, by the state of its slot at that moment.
_WHY = {
    State.KILL: ", the port is wanted for something else or for nothing",
    State.KILL_BLOB_UPDATE: ", for new code or configuration",
    State.KILL_AND_RELAUNCH: ", ended by its supervisor to be launched again",
}


def is_trouble(step: Step) -> bool:
    """Whether a step is one that was not asked for."""
    return isinstance(
        step.event,
        WorkerExited
        | HeartbeatTimedOut
        | LaunchFailed
        | BlobsFailed
        | MemoryExceeded
        | MemoryFarExceeded,
    ) and step.state not in (State.KILL, State.KILL_BLOB_UPDATE)


def history_event(step: Step) -> tuple[str, str] | None:
    """Event and text for the history of the slot's topology; None if this step is not recorded."""
    match step.event:
        case WorkerExited(status=status):
            return "worker exited", f"{exit_text(status)}{_WHY.get(step.state, '')}"
        case HeartbeatTimedOut():
            return "worker killed", "it sent no heartbeat in time"
        case MemoryExceeded(used_bytes=used) | MemoryFarExceeded(used_bytes=used):
            return "worker killed", f"it used {used / 2**20:.0f} MiB, more than its limit"
        case RestartRequested():
            return "worker restart asked for", ""
        case LaunchFailed(reason=reason):
            return "worker not launched", reason
        case BlobsFailed(reason=reason):
            return "code not fetched", reason
    return None


def exit_text(status: int | None) -> str:
    """Describes how a process ended."""
    if status is None:
        return "exited (its status is unknown: it was started by an earlier supervisor)"
    if status >= 0:
        return f"exited with status {status}"
    try:
        return f"killed by {signal.Signals(-status).name}"
    except ValueError:
        return f"killed by signal {-status}"
