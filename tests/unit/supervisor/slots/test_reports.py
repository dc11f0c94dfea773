"""What a slot says of itself to Nimbus."""

from squall_common.cluster.slot_reports import Condition
from squall_common.config.options.typed import SupervisorOptions
from squall_common.topology.model import Executor
from squall_supervisor.records.assignments import PortAssignment
from squall_supervisor.settings import SlotSettings
from squall_supervisor.slots.reports import report_of
from squall_supervisor.slots.slot import Slot
from squall_supervisor.slots.table import (
    BlobsFailed,
    BlobsLocalized,
    LaunchFailed,
    RestartRequested,
    WorkerExited,
    WorkerLaunched,
)

WORDS = PortAssignment("words-1-100", (Executor(1, 1),), zxid=7)


def condition(slot: Slot, now: float, refused: bool = False) -> Condition:
    report = report_of(slot, lambda topology_id: refused, now)
    assert report is not None
    return report.condition


def launched_slot() -> Slot:
    slot = Slot(6700, SlotSettings.of(SupervisorOptions()))
    slot.want(WORDS, 0.0)
    slot.handle(BlobsLocalized(), 0.0)
    slot.handle(WorkerLaunched("w", 30.0), 0.0)
    return slot


def crash(slot: Slot, at: float, *, ran: bool) -> float:
    """The worker ends; the next one is launched as soon as the slot wants it. Returns when."""
    if ran:
        slot.heartbeat(at, True, at)
    slot.handle(WorkerExited("w", 3), at)
    next_at = slot.relaunch_at or at
    slot.advance(next_at)
    slot.handle(WorkerLaunched("w", 30.0), next_at)
    return next_at


def test_an_empty_slot_has_no_report() -> None:
    assert (
        report_of(Slot(6700, SlotSettings.of(SupervisorOptions())), lambda topology_id: False, 0.0)
        is None
    )


def test_a_worker_starts_and_runs() -> None:
    slot = launched_slot()
    assert condition(slot, 1.0) is Condition.STARTING
    slot.heartbeat(2.0, True, 2.0)
    assert condition(slot, 2.0) is Condition.RUNNING


def test_missing_blobs_and_a_refused_package_are_reported() -> None:
    slot = Slot(6700, SlotSettings.of(SupervisorOptions()))
    slot.want(WORDS, 0.0)
    assert condition(slot, 0.0) is Condition.STARTING
    slot.handle(BlobsFailed("Nimbus is away"), 1.0)
    assert condition(slot, 1.0) is Condition.WAITING_FOR_BLOBS
    assert condition(slot, 1.0, refused=True) is Condition.PACKAGE_REFUSED


def test_one_short_life_is_an_accident_and_two_are_a_loop() -> None:
    slot = launched_slot()
    now = crash(slot, 1.0, ran=False)
    assert condition(slot, now) is Condition.STARTING
    now = crash(slot, now + 1.0, ran=False)
    assert condition(slot, now) is Condition.CRASH_LOOP
    slot.heartbeat(now + 1, True, now + 1)
    assert condition(slot, now + 1) is Condition.CRASH_LOOP  # not yet known to last
    assert condition(slot, now + 12) is Condition.RUNNING


def test_workers_that_live_for_a_while_and_end_again_and_again_are_a_loop() -> None:
    slot = launched_slot()
    now = 0.0
    for _ in range(3):
        assert condition(slot, now) is not Condition.CRASH_LOOP
        slot.heartbeat(now, True, now)
        now = crash(slot, now + 20.0, ran=True)
    slot.heartbeat(now, True, now)
    assert condition(slot, now + 15.0) is Condition.CRASH_LOOP
    assert condition(slot, now + 120.0) is Condition.RUNNING


def test_requested_restarts_are_not_a_crash_loop() -> None:
    slot = launched_slot()
    for now in (1.0, 3.0, 5.0, 7.0):
        slot.heartbeat(now, True, now)
        slot.handle(RestartRequested(), now)
        slot.handle(WorkerExited("w", 0), now)
        slot.advance(now + 1)
        slot.handle(WorkerLaunched("w", 30.0), now + 1)
        assert condition(slot, now + 1) is Condition.STARTING


def test_a_failed_launch_is_reported() -> None:
    slot = Slot(6700, SlotSettings.of(SupervisorOptions()))
    slot.want(WORDS, 0.0)
    slot.handle(BlobsLocalized(), 0.0)
    slot.handle(LaunchFailed("no space left on device"), 0.0)
    assert condition(slot, 0.5) is Condition.STARTING  # it is tried again at once
    slot.handle(LaunchFailed("no space left on device"), 0.5)
    assert condition(slot, 0.5) is Condition.LAUNCH_FAILED


def test_another_assignment_is_a_new_beginning() -> None:
    slot = launched_slot()
    now = 1.0
    for _ in range(3):
        now = crash(slot, now, ran=False)
    other = PortAssignment("other-2-200", (Executor(1, 1),), zxid=8)
    slot.want(other, now)
    slot.handle(WorkerExited("w", 0), now)
    assert condition(slot, now) is Condition.STARTING
