"""The reports that a supervisor publishes about its slots: a pure function from a slot to its
report."""

from __future__ import annotations

from collections.abc import Callable

from squall_common.cluster.slot_reports import Condition, SlotReport, digest
from squall_supervisor.slots.slot import Slot
from squall_supervisor.slots.table import LaunchFailed, RelaunchDue, State

# This many short-lived workers in a row are a crash loop: a single one may be an accident.
_SHORT_LIVES = 2


def report_of(slot: Slot, refused: Callable[[str], bool], now: float) -> SlotReport | None:
    """The report of a slot, or None if it runs nothing and is to run nothing. `refused` says
    whether a topology's package cannot be used on this node."""
    about = slot.wanted
    if about is None:
        return None
    return SlotReport(about.topology_id, digest(about.executors), _condition(slot, refused, now))


def _condition(slot: Slot, refused: Callable[[str], bool], now: float) -> Condition:
    assert slot.wanted is not None
    if slot.state in (State.WAITING_FOR_BLOB_LOCALIZATION, State.WAITING_FOR_BLOB_UPDATE):
        if refused(slot.wanted.topology_id):
            return Condition.PACKAGE_REFUSED
        return Condition.WAITING_FOR_BLOBS if slot.localize_failures else Condition.STARTING
    if slot.relaunches >= _SHORT_LIVES and _last_launch_failed(slot):
        return Condition.LAUNCH_FAILED
    if _crashes(slot, now):
        return Condition.CRASH_LOOP
    return Condition.RUNNING if slot.state is State.RUNNING else Condition.STARTING


def _last_launch_failed(slot: Slot) -> bool:
    outcomes = (
        step.event for step in reversed(slot.history) if type(step.event) is not RelaunchDue
    )
    return isinstance(next(outcomes, None), LaunchFailed)


def _crashes(slot: Slot, now: float) -> bool:
    lasts = slot.running_since is not None and (
        now - slot.running_since >= slot.settings.worker_min_uptime_secs
    )
    return (slot.relaunches >= _SHORT_LIVES and not lasts) or slot.ended_often(now)
