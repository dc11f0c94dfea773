"""A worker follows one generation at a time."""

from __future__ import annotations

from squall_engine.epochs.member import (
    TABLE,
    Confirm,
    EndWorker,
    Look,
    MakeTasks,
    Member,
    MemberEvent,
    MemberState,
    Start,
)
from squall_engine.epochs.messages import Begin, Completed, Go, Hello, Release, Report, Restore
from squall_engine.epochs.task import TaskEpochs, TaskState

WORDS, COUNT = ("words", 0), ("count", 0)


def restore(generation: int, incarnation: int = 2, epoch: int = 5) -> Restore:
    return Restore(generation, epoch, {"words": 1, "count": 1}, {0: incarnation}, None)


def running() -> Member:
    member = Member(0, 2)
    assert member.hear(restore(3)) == [MakeTasks(restore(3))]
    assert member.hello() == Hello(0, 2, 0, waits=True)
    member.restored(3, {WORDS: TaskEpochs((), 5), COUNT: TaskEpochs([WORDS], 5)})
    assert member.hello() == Hello(0, 2, 3, waits=True)
    assert member.hear(Go(3, 5)) == [Start(), Confirm(5)]
    member.validate()
    return member


def test_every_state_but_the_last_can_be_left() -> None:
    assert {state for state, _ in TABLE} == set(MemberState) - {MemberState.ENDED}
    assert {event for _, event in TABLE} == set(MemberEvent)


def test_a_source_begins_an_epoch_and_is_silent_until_all_have_taken_it() -> None:
    member = running()
    assert member.hear(Begin(3, 6, full=False)) == [Look()]
    task = member.tasks[WORDS]
    assert task.due == 6
    assert member.tasks[COUNT].due is None
    task.took(6)
    assert task.closed == 5
    assert member.hear(Release(3, 6)) == [Look()]
    assert task.state is TaskState.FLOWING


def test_a_report_says_when_the_snapshot_is_durable() -> None:
    member = running()
    member.hear(Begin(3, 6, full=False))
    member.tasks[WORDS].took(6)
    assert member.report(WORDS) == Report(0, 3, 6, WORDS)
    assert member.durable(3, 5, WORDS, "old") is None
    assert member.durable(3, 6, WORDS, "part") == Report(0, 3, 6, WORDS, "part")
    assert member.is_durable(WORDS)


def test_what_belongs_to_another_generation_is_dropped() -> None:
    member = running()
    assert member.hear(Begin(2, 6, full=False)) == []
    assert member.hear(Completed(4, 6)) == []
    assert member.durable(2, 5, WORDS, "part") is None
    assert member.hear(restore(2)) == []


def test_tasks_of_a_generation_that_was_left_meanwhile_are_not_taken() -> None:
    member = Member(0, 2)
    member.hear(restore(3))
    member.hear(restore(4))
    member.restored(3, {WORDS: TaskEpochs((), 5)})
    assert member.state is MemberState.RESTORING
    assert not member.tasks


def test_a_newer_incarnation_ends_a_worker_and_an_older_one_does_not() -> None:
    member = running()
    assert member.hear(restore(4, incarnation=1)) == []
    assert member.hear(restore(4, incarnation=3)) == [EndWorker()]
    assert member.hear(restore(5)) == []
    member.validate()
