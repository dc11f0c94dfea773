"""The slot's state machine, as a conversation: one event at a time, and the commands."""

from dataclasses import replace

import pytest

from squall_common.config.options.typed import SupervisorOptions
from squall_common.topology.model import Executor
from squall_supervisor.records.assignments import PortAssignment
from squall_supervisor.settings import SlotSettings
from squall_supervisor.slots.slot import IllegalEventError, Slot
from squall_supervisor.slots.table import (
    TABLE,
    BlobsChanged,
    BlobsFailed,
    BlobsLocalized,
    BlobsMissing,
    Command,
    KillWorker,
    LaunchFailed,
    LaunchWorker,
    LocalizeBlobs,
    MemoryExceeded,
    MemoryFarExceeded,
    ReleaseBlobs,
    RestartRequested,
    State,
    TerminateWorker,
    UpdateBlobs,
    WorkerAdopted,
    WorkerExited,
    WorkerLaunched,
)

SETTINGS = SlotSettings.of(SupervisorOptions())
WORDS = PortAssignment("words-1-100", (Executor(1, 1), Executor(2, 2)), zxid=7)
WORDS_LESS = PortAssignment("words-1-100", (Executor(1, 1),), zxid=9)
OTHER = PortAssignment("other-2-200", (Executor(1, 1),), zxid=8)


def waiting_slot() -> Slot:
    slot = Slot(6700, SETTINGS)
    assert slot.want(WORDS, 0.0) == [LocalizeBlobs(WORDS)]
    assert slot.handle(BlobsLocalized(), 0.0) == [LaunchWorker(WORDS)]
    return slot


def started_slot() -> Slot:
    slot = waiting_slot()
    assert slot.handle(WorkerLaunched("w1", 30.0), 0.0) == []
    return slot


def running_slot(now: float = 1.0) -> Slot:
    slot = started_slot()
    assert slot.heartbeat(now, True, now) == []
    assert slot.state is State.RUNNING
    return slot


def relaunch(slot: Slot, worker_id: str, now: float) -> None:
    """Answer a launch, and let the tasks start."""
    assert slot.launching
    slot.handle(WorkerLaunched(worker_id, 30.0), now)
    slot.heartbeat(now, True, now)
    slot.validate()


def test_a_slot_goes_from_assignment_to_running() -> None:
    slot = Slot(6700, SETTINGS)
    assert slot.state is State.EMPTY
    assert slot.want(WORDS, 0.0) == [LocalizeBlobs(WORDS)]
    assert slot.state is State.WAITING_FOR_BLOB_LOCALIZATION
    assert slot.handle(BlobsLocalized(), 1.0) == [LaunchWorker(WORDS)]
    assert slot.state is State.WAITING_FOR_WORKER_START
    assert slot.handle(WorkerLaunched("w1", 30.0), 1.0) == []
    assert slot.heartbeat(1.5, False, 1.6) == []
    assert slot.state is State.WAITING_FOR_WORKER_START
    assert slot.heartbeat(2.5, True, 2.6) == []
    assert slot.state is State.RUNNING
    slot.validate()


def test_the_same_work_again_changes_nothing_though_the_assignment_was_rewritten() -> None:
    """Peers that move only re-route: topology and executors of this port are the same."""
    slot = running_slot()
    rewritten = PortAssignment(WORDS.topology_id, WORDS.executors, zxid=99, owner="someone")
    assert slot.want(rewritten, 2.0) == []
    assert slot.state is State.RUNNING
    assert slot.assignment == WORDS


@pytest.mark.parametrize("wanted", [OTHER, WORDS_LESS])
def test_other_work_ends_the_worker_and_then_starts_the_new_one(wanted: PortAssignment) -> None:
    slot = running_slot()
    assert slot.want(wanted, 5.0) == [TerminateWorker("w1")]
    assert slot.state is State.KILL
    assert slot.deadline() == 8.0
    assert slot.handle(WorkerExited("w1", 0), 5.5) == [LocalizeBlobs(wanted)]
    assert slot.state is State.WAITING_FOR_BLOB_LOCALIZATION
    assert slot.handle(BlobsLocalized(), 5.5) == [LaunchWorker(wanted)]
    slot.validate()


def test_no_work_ends_the_worker_and_empties_the_slot() -> None:
    slot = running_slot()
    assert slot.want(None, 5.0) == [TerminateWorker("w1")]
    assert slot.handle(WorkerExited("w1", 0), 6.0) == []
    assert slot.state is State.EMPTY
    assert slot.deadline() is None
    slot.validate()


def test_a_worker_that_does_not_end_is_killed_again_and_again() -> None:
    slot = running_slot()
    slot.want(None, 5.0)
    assert slot.advance(7.9) == []
    assert slot.advance(8.0) == [KillWorker("w1")]
    assert slot.advance(10.9) == []
    assert slot.advance(11.0) == [KillWorker("w1")]


def test_no_grace_does_not_make_it_kill_forever_at_one_moment() -> None:
    slot = Slot(6700, replace(SETTINGS, worker_shutdown_secs=0.0))
    slot.want(WORDS, 0.0)
    slot.handle(BlobsLocalized(), 0.0)
    slot.handle(WorkerLaunched("w1", 30.0), 0.0)
    assert slot.want(None, 1.0) == [TerminateWorker("w1"), KillWorker("w1")]
    assert slot.advance(1.5) == []


def test_a_change_of_mind_while_killing_starts_the_work_again_after_the_kill() -> None:
    slot = running_slot()
    slot.want(None, 5.0)
    assert slot.want(OTHER, 5.1) == []
    assert slot.want(WORDS, 5.2) == []
    assert slot.state is State.KILL
    assert slot.handle(WorkerExited("w1", 0), 6.0) == [LocalizeBlobs(WORDS)]


def test_an_exit_relaunches_at_once() -> None:
    slot = running_slot()
    assert slot.handle(WorkerExited("w1", -9), 100.0) == [LaunchWorker(WORDS)]
    assert slot.state is State.WAITING_FOR_WORKER_START


def test_a_missing_heartbeat_kills_hard_and_relaunches() -> None:
    slot = running_slot()
    slot.heartbeat(20.0, True, 20.1)
    assert slot.deadline() == 50.0
    assert slot.advance(49.9) == []
    assert slot.advance(50.0) == [KillWorker("w1")]
    assert slot.state is State.KILL_AND_RELAUNCH
    assert slot.handle(WorkerExited("w1", -9), 50.1) == [LaunchWorker(WORDS)]


def test_an_old_heartbeat_read_again_does_not_move_the_time_back() -> None:
    slot = running_slot()
    slot.heartbeat(20.0, True, 20.1)
    slot.heartbeat(10.0, True, 20.2)
    assert slot.deadline() == 50.0


def test_a_worker_that_never_beats_has_the_start_timeout() -> None:
    slot = started_slot()
    assert slot.deadline() == 120.0
    assert slot.advance(120.0) == [KillWorker("w1")]
    assert slot.state is State.KILL_AND_RELAUNCH


def test_a_worker_that_hangs_while_it_starts_is_replaced_after_the_worker_timeout() -> None:
    """The start timeout is for workers that have not beaten yet."""
    slot = started_slot()
    slot.heartbeat(0.1, False, 0.2)
    assert slot.deadline() == 30.1
    assert slot.advance(30.0) == []
    assert slot.advance(30.1) == [KillWorker("w1")]
    assert slot.state is State.KILL_AND_RELAUNCH


def test_a_worker_that_beats_may_take_longer_than_the_start_timeout_for_its_tasks() -> None:
    slot = started_slot()
    for second in range(1, 150):
        assert slot.heartbeat(float(second), False, float(second)) == []
    assert slot.deadline() == 179.0
    assert slot.advance(179.0) == [KillWorker("w1")]


def test_a_stopped_supervisor_holds_no_heartbeat_against_its_workers() -> None:
    slot = running_slot(now=1.0)
    slot.forgive(105.0)
    assert slot.advance(100.0) == []
    assert slot.advance(105.0) == [KillWorker("w1")]


def test_backoff_doubles_for_workers_that_die_at_once() -> None:
    slot = running_slot(now=1.0)
    now, launches = 2.0, []
    for n in range(2, 12):
        slot.handle(WorkerExited(f"w{n - 1}", 1), now)
        if not slot.launching:
            due = slot.deadline()
            assert due is not None
            assert slot.advance(due - 0.001) == []
            launches.append(due - now)
            now = due
            assert slot.advance(now) == [LaunchWorker(WORDS)]
        else:
            launches.append(0.0)
        relaunch(slot, f"w{n}", now)
    assert launches == [0, 1, 2, 4, 8, 16, 32, 60, 60, 60]


def test_a_worker_that_never_reaches_running_counts_towards_the_backoff() -> None:
    slot = started_slot()
    assert slot.handle(WorkerExited("w1", 1), 50.0) == [LaunchWorker(WORDS)]
    slot.handle(WorkerLaunched("w2", 30.0), 50.0)
    assert slot.handle(WorkerExited("w2", 1), 100.0) == []
    assert slot.deadline() == 101.0


def test_a_worker_that_lasted_clears_the_backoff() -> None:
    slot = running_slot(now=1.0)
    slot.handle(WorkerExited("w1", 1), 2.0)
    relaunch(slot, "w2", 2.0)
    slot.handle(WorkerExited("w2", 1), 2.5)
    slot.advance(3.5)
    relaunch(slot, "w3", 3.5)
    assert slot.handle(WorkerExited("w3", -9), 13.5) == [LaunchWorker(WORDS)]


def test_a_failed_launch_is_tried_again_with_backoff() -> None:
    slot = waiting_slot()
    assert slot.handle(LaunchFailed("no space left"), 0.0) == [LaunchWorker(WORDS)]
    assert slot.handle(LaunchFailed("no space left"), 0.0) == []
    assert slot.state is State.KILL_AND_RELAUNCH
    assert slot.advance(1.0) == [LaunchWorker(WORDS)]
    slot.validate()


def test_blobs_found_gone_at_the_launch_are_fetched_again() -> None:
    slot = running_slot()
    slot.handle(WorkerExited("w1", 1), 100.0)
    assert slot.handle(BlobsMissing(), 100.0) == [LocalizeBlobs(WORDS)]
    assert slot.handle(BlobsLocalized(), 101.0) == [LaunchWorker(WORDS)]
    slot.validate()


def test_a_failed_download_is_tried_again_ever_more_slowly() -> None:
    slot = Slot(6700, SETTINGS)
    slot.want(WORDS, 0.0)
    now, waits = 0.0, []
    for _ in range(8):
        assert slot.handle(BlobsFailed("no leader"), now) == []
        due = slot.deadline()
        assert due is not None
        waits.append(due - now)
        now = due
        assert slot.advance(now) == [LocalizeBlobs(WORDS)]
    assert waits == [0.25, 0.5, 1, 2, 4, 8, 10, 10]


def test_work_that_changes_during_the_download_is_taken_up_at_once() -> None:
    slot = Slot(6700, SETTINGS)
    slot.want(WORDS, 0.0)
    slot.handle(BlobsFailed("no leader"), 0.0)
    assert slot.want(OTHER, 0.1) == [ReleaseBlobs(), LocalizeBlobs(OTHER)]
    assert slot.deadline() is None
    assert slot.want(None, 0.2) == [ReleaseBlobs()]
    assert slot.state is State.EMPTY
    slot.validate()


def test_work_taken_away_while_a_launch_is_under_way_ends_the_new_process() -> None:
    slot = waiting_slot()
    assert slot.want(None, 1.0) == []
    assert slot.state is State.KILL
    slot.validate()
    assert slot.handle(WorkerLaunched("w1", 30.0), 1.1) == [TerminateWorker("w1")]
    slot.validate()
    assert slot.handle(WorkerExited("w1", 0), 1.2) == []
    assert slot.state is State.EMPTY


def test_work_taken_away_while_a_launch_fails_empties_the_slot() -> None:
    slot = waiting_slot()
    slot.want(None, 1.0)
    slot.handle(LaunchFailed("no space left"), 1.1)
    assert slot.state is State.EMPTY


def test_work_that_changes_in_the_backoff_is_taken_up_at_once() -> None:
    slot = started_slot()
    slot.handle(WorkerExited("w1", 1), 1.0)
    slot.handle(WorkerLaunched("w2", 30.0), 1.0)
    slot.handle(WorkerExited("w2", 1), 1.0)
    assert slot.state is State.KILL_AND_RELAUNCH
    assert slot.want(OTHER, 1.5) == [LocalizeBlobs(OTHER)]
    slot.validate()


def test_changed_code_ends_the_worker_fetches_and_starts_it_again() -> None:
    slot = running_slot()
    assert slot.handle(BlobsChanged(), 5.0) == [TerminateWorker("w1")]
    assert slot.state is State.KILL_BLOB_UPDATE
    assert slot.handle(WorkerExited("w1", 0), 6.0) == [UpdateBlobs(WORDS)]
    assert slot.state is State.WAITING_FOR_BLOB_UPDATE
    assert slot.handle(BlobsFailed("no leader"), 6.0) == []
    assert slot.advance(6.25) == [UpdateBlobs(WORDS)]
    assert slot.handle(BlobsLocalized(), 7.0) == [LaunchWorker(WORDS)]
    slot.validate()


def test_a_restart_that_was_asked_for_drains_the_worker_and_starts_it_at_once() -> None:
    slot = running_slot()
    assert slot.handle(RestartRequested(), 2.0) == [TerminateWorker("w1")]
    assert slot.state is State.KILL_AND_RELAUNCH
    assert slot.handle(WorkerExited("w1", 0), 3.0) == [LaunchWorker(WORDS)]
    relaunch(slot, "w2", 3.5)
    assert slot.state is State.RUNNING


def test_a_worker_that_does_not_restart_within_the_grace_is_killed() -> None:
    slot = running_slot()
    slot.handle(RestartRequested(), 2.0)
    assert slot.deadline() == 2.0 + SETTINGS.worker_shutdown_secs
    assert slot.advance(slot.deadline()) == [KillWorker("w1")]


def test_only_a_running_worker_is_restarted() -> None:
    with pytest.raises(IllegalEventError):
        started_slot().handle(RestartRequested(), 1.0)


def test_a_worker_over_its_limit_of_memory_is_drained_and_counts_as_crashing() -> None:
    slot = running_slot()
    assert slot.handle(MemoryExceeded(2**30), 2.0) == [TerminateWorker("w1")]
    assert slot.state is State.KILL_AND_RELAUNCH
    assert slot.handle(WorkerExited("w1", 0), 2.5) == [LaunchWorker(WORDS)]
    relaunch(slot, "w2", 3.0)
    assert slot.handle(MemoryExceeded(2**30), 4.0) == [TerminateWorker("w2")]
    assert slot.handle(WorkerExited("w2", 0), 4.5) == []  # twice in a row: it backs off
    assert slot.deadline() == 4.5 + SETTINGS.backoff_first_secs


def test_a_worker_far_over_its_limit_is_killed_even_while_it_drains() -> None:
    slot = running_slot()
    assert slot.handle(MemoryFarExceeded(2**31), 2.0) == [KillWorker("w1")]
    assert slot.state is State.KILL_AND_RELAUNCH
    slot = running_slot()
    slot.handle(MemoryExceeded(2**30), 2.0)
    assert slot.handle(MemoryFarExceeded(2**31), 2.5) == [KillWorker("w1")]
    slot.handle(WorkerExited("w1", -9), 3.0)
    with pytest.raises(IllegalEventError):
        slot.handle(MemoryFarExceeded(2**31), 3.0)


def test_an_adopted_worker_goes_on_and_is_distinguished_from_a_hung_one() -> None:
    slot = Slot(6700, SETTINGS)
    assert slot.handle(WorkerAdopted("w1", 30.0, WORDS), 100.0) == []
    slot.validate()
    assert slot.heartbeat(99.5, True, 100.0) == []
    assert slot.state is State.RUNNING
    hung = Slot(6701, SETTINGS)
    hung.handle(WorkerAdopted("w2", 30.0, WORDS), 100.0)
    assert hung.heartbeat(60.0, True, 100.0) == [KillWorker("w2")]


def test_an_illegal_event_shows_the_last_steps_and_changes_nothing() -> None:
    slot = running_slot()
    before = (slot.state, slot.worker_id, slot.launching, list(slot.history))
    with pytest.raises(IllegalEventError) as error:
        slot.handle(BlobsLocalized(), 3.0)
    message = str(error.value)
    assert "port 6700: BlobsLocalized() cannot happen in RUNNING" in message
    assert "EMPTY --Assigned()--> WAITING_FOR_BLOB_LOCALIZATION" in message
    assert "TasksStarted()--> RUNNING" in message
    assert (slot.state, slot.worker_id, slot.launching, list(slot.history)) == before


def test_the_exit_of_another_worker_is_refused() -> None:
    slot = running_slot()
    with pytest.raises(IllegalEventError, match="w0"):
        slot.handle(WorkerExited("w0", 0), 3.0)


def test_each_state_can_be_entered_and_left_and_says_what_is_true() -> None:
    for state in State:
        assert any(row[0] is state and origin is not state for (origin, _), row in TABLE.items())
        assert any(origin is state and row[0] is not state for (origin, _), row in TABLE.items())
        assert state.value.endswith(".")


def test_every_command_of_the_table_is_a_command() -> None:
    kinds = set(Command.__args__)
    assert {kind for _, commands in TABLE.values() for kind in commands} == kinds
