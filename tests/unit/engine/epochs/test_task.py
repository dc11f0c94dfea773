"""A task's snapshot is due when all that comes before it is there."""

from __future__ import annotations

import pytest

from squall_common.daemon.output.story import ContradictionError
from squall_engine.epochs.task import TaskEpochs, TaskState


def test_a_snapshot_is_due_once_every_upstream_has_taken_its_own() -> None:
    task = TaskEpochs(["a", "b"], 0)
    task.barrier("a", 1, False)
    assert task.due is None
    task.barrier("b", 1, False)
    assert str(task).startswith("task DUE")
    assert not task.wants_full(1)


def test_a_barrier_that_comes_twice_changes_nothing() -> None:
    task = TaskEpochs(["a"], 0)
    task.barrier("a", 1, True)
    task.took(1)
    task.release(1)
    task.barrier("a", 1, True)
    assert task.state is TaskState.FLOWING


def test_no_snapshot_is_due_for_an_epoch_that_was_given_up() -> None:
    task = TaskEpochs(["a"], 0)
    task.release(1)
    task.barrier("a", 1, True)
    assert task.due is None


def test_the_epoch_after_one_that_was_given_up_is_taken() -> None:
    task = TaskEpochs((), 4)
    task.begin(5, False)
    task.release(5)
    task.begin(6, True)
    assert (task.due, task.wants_full(6)) == (6, True)
    task.took(6)
    assert task.state is TaskState.SILENT


def test_a_snapshot_that_nobody_asked_for_is_a_contradiction() -> None:
    task = TaskEpochs((), 4)
    task.took(5)
    with pytest.raises(ContradictionError, match="not begun"):
        task.validate()
