"""The coordinator reacts to one event at a time. (Whole runs: `tests/simulation/epochs`.)"""

from __future__ import annotations

from typing import Any

from squall_engine.epochs.coordinator import Attempt, Coordinator
from squall_engine.epochs.coordinator_table import (
    TABLE,
    Change,
    Command,
    End,
    EpochDue,
    Heard,
    ManifestWritten,
    ReadRecord,
    RecordRead,
    RecordWritten,
    Say,
    State,
    TimeIsUp,
    WriteManifest,
    WriteRecord,
)
from squall_engine.epochs.messages import (
    Begin,
    Completed,
    Go,
    Hello,
    Record,
    Release,
    Report,
    Restore,
)

SHAPE = {"words": 1, "count": 1}


def parts_of(before: Any, attempt: Attempt) -> Any:
    return dict(attempt.parts)


def coordinator(record: Record) -> Coordinator:
    """One that has read `record` and raised the generation; its only worker runs."""
    made = Coordinator(7, 1, SHAPE, parts_of)
    assert made.happened(Heard(Hello(0, 3, 0, waits=True)), 0.0) == [ReadRecord()]
    (write,) = made.happened(RecordRead(record), 0.0)
    assert isinstance(write, WriteRecord)
    (say,) = made.happened(RecordWritten(write.wanted, True, write.wanted), 0.0)
    assert say == Say(0, Restore(record.generation + 1, record.epoch, SHAPE, {0: 3}, None))
    hello = Hello(0, 3, record.generation + 1, waits=True)
    assert made.happened(Heard(hello), 0.0) == [Say(0, Go(record.generation + 1, record.epoch))]
    assert made.state is State.IDLE
    made.validate()
    return made


def taken(made: Coordinator, *, durable: bool) -> list[Command]:
    found: list[Command] = []
    for component in SHAPE:
        part = component.upper() if durable else None
        report = Report(0, made.record.generation, made.last_begun, (component, 0), part)
        found += made.happened(Heard(report), 0.0)
        made.validate()
    return found


def begun() -> Coordinator:
    made = coordinator(Record())
    assert made.happened(EpochDue(), 0.0) == [Say(0, Begin(1, 1, full=True))]
    return made


def deciding() -> tuple[Coordinator, WriteRecord]:
    made = begun()
    *_, write = taken(made, durable=True)
    assert isinstance(write, WriteManifest)
    assert write.manifest == {("words", 0): "WORDS", ("count", 0): "COUNT"}
    (decide,) = made.happened(ManifestWritten(write.name), 0.0)
    assert isinstance(decide, WriteRecord)
    assert (decide.wanted.epoch, decide.wanted.manifest) == (1, write.name)
    return made, decide


def test_every_state_but_the_last_can_be_left() -> None:
    assert {state for state, _ in TABLE} == set(State) - {State.ENDED}
    assert {change for _, change in TABLE} == set(Change)


def test_an_epoch_completes_by_one_write_after_all_snapshots_and_the_manifest_are_durable() -> None:
    made, decide = deciding()
    done = made.happened(RecordWritten(decide.wanted, True, decide.wanted), 0.0)
    assert done == [Say(0, Completed(1, 1))]
    assert made.state is State.IDLE
    made.validate()


def test_tasks_are_released_when_all_have_taken_their_snapshots_durable_or_not() -> None:
    made = begun()
    assert taken(made, durable=False) == [Say(0, Release(1, 1))]
    assert made.state is State.TAKING


def test_an_unknown_outcome_that_was_read_back_is_a_success() -> None:
    made, decide = deciding()
    done = made.happened(RecordWritten(decide.wanted, None, decide.wanted), 0.0)
    assert done == [Say(0, Completed(1, 1))]


def test_an_unknown_outcome_is_neither_a_success_nor_a_failure() -> None:
    made, decide = deciding()
    assert made.happened(RecordWritten(decide.wanted, None, made.record), 0.0) == [decide]
    assert made.state is State.DECIDING


def test_an_epoch_that_was_given_up_is_followed_by_one_of_another_number() -> None:
    made = begun()
    assert made.happened(TimeIsUp(), 0.0) == [Say(0, Release(1, 1))]
    assert made.happened(EpochDue(), 0.0) == [Say(0, Begin(1, 2, full=True))]


def test_a_late_write_of_an_epoch_that_was_given_up_begins_a_new_generation() -> None:
    made, decide = deciding()
    made.happened(TimeIsUp(), 0.0)
    made.happened(EpochDue(), 0.0)
    *_, write = taken(made, durable=True)
    assert isinstance(write, WriteManifest)
    (again,) = made.happened(ManifestWritten(write.name), 0.0)
    assert isinstance(again, WriteRecord)
    assert made.happened(RecordWritten(again.wanted, False, decide.wanted), 0.0) == [ReadRecord()]
    assert made.state is State.RAISING


def test_another_coordinators_record_ends_this_one() -> None:
    made, decide = deciding()
    other = Record(version=decide.wanted.version, generation=2, coordinator=8)
    assert made.happened(RecordWritten(decide.wanted, False, other), 0.0) == [End()]
    assert made.happened(EpochDue(), 0.0) == []
    made.validate()


def test_a_new_incarnation_of_a_worker_takes_all_tasks_back() -> None:
    made = begun()
    assert made.happened(Heard(Hello(0, 4, 0, waits=True)), 0.0) == [ReadRecord()]
    assert made.attempt is None
    made.validate()


def test_an_older_incarnation_changes_nothing() -> None:
    made = begun()
    assert made.happened(Heard(Hello(0, 2, 0, waits=True)), 0.0) == []


def test_a_report_about_an_epoch_that_is_over_is_answered() -> None:
    made = begun()
    made.happened(TimeIsUp(), 0.0)
    report = Report(0, 1, 1, ("count", 0))
    assert made.happened(Heard(report), 0.0) == [Say(0, Release(1, 1)), Say(0, Completed(1, 0))]
