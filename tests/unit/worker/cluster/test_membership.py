"""Which links are kept, and whose end is a loss."""

from squall_common.topology.model import WorkerSlot
from squall_worker.cluster.membership import Membership
from squall_worker.transport.frames import Session
from squall_worker.transport.link_table import Greeted, Left, Replaced

A, B = WorkerSlot("a", 1), WorkerSlot("b", 1)
OLD, NEW = Session(1, 1, 1), Session(1, 2, 1)
TASKS_A, TASKS_B = frozenset({1, 2}), frozenset({3})


def no_backlog(slot: WorkerSlot) -> int:
    return 0


def both() -> Membership:
    membership = Membership(grace_secs=4)
    membership.assigned({A: TASKS_A, B: TASKS_B}, 0)
    return membership


def test_a_replaced_worker_is_lost_unless_it_left_drained() -> None:
    membership = both()
    assert membership.happened(Greeted(A, OLD)) == frozenset()
    assert membership.happened(Replaced(A, OLD, NEW, left=False, dropped_frames=0)) == TASKS_A
    assert membership.happened(Replaced(A, OLD, NEW, left=True, dropped_frames=0)) == frozenset()


def test_a_goodbye_with_frames_missing_is_a_loss() -> None:
    membership = both()
    assert membership.happened(Left(A, OLD, drained=True)) == frozenset()
    assert membership.happened(Left(B, OLD, drained=False)) == TASKS_B


def test_a_leaving_worker_keeps_its_link_until_its_goodbye() -> None:
    membership = both()
    membership.assigned({B: TASKS_B | TASKS_A}, 10)
    assert membership.slots == {A, B}
    assert membership.present == {B}
    assert membership.expire(11, no_backlog) == frozenset()
    assert membership.happened(Left(A, OLD, drained=True)) == frozenset()
    assert membership.expire(11, no_backlog) == frozenset()
    assert membership.slots == {B}
    assert membership.deadline() == float("inf")


def test_a_goodbye_before_the_new_assignment_counts() -> None:
    membership = both()
    membership.happened(Left(A, OLD, drained=True))
    membership.assigned({B: TASKS_B}, 10)
    assert membership.expire(10, no_backlog) == frozenset()
    assert membership.slots == {B}


def test_a_goodbye_of_a_former_incarnation_does_not() -> None:
    membership = both()
    membership.happened(Left(A, OLD, drained=True))
    membership.happened(Replaced(A, OLD, NEW, left=True, dropped_frames=0))
    membership.assigned({B: TASKS_B}, 10)
    assert membership.expire(10, no_backlog) == frozenset()
    assert membership.slots == {A, B}


def test_a_leaving_worker_that_says_nothing_is_lost_after_the_grace() -> None:
    membership = both()
    membership.assigned({B: TASKS_B}, 10)
    assert membership.deadline() == 14
    assert membership.expire(13.9, no_backlog) == frozenset()
    assert membership.expire(14, no_backlog) == TASKS_A
    assert membership.expire(14, no_backlog) == frozenset()


def test_frames_that_a_leaving_worker_never_took_are_lost() -> None:
    """Its tasks run elsewhere now: sections queued for it are never taken."""
    membership = both()
    membership.assigned({B: TASKS_B}, 10)
    membership.happened(Left(A, OLD, drained=True))
    assert membership.expire(10, lambda slot: 100) == TASKS_A


def test_a_worker_that_comes_back_is_no_longer_leaving() -> None:
    membership = both()
    membership.assigned({B: TASKS_B}, 10)
    membership.assigned({A: TASKS_A, B: TASKS_B}, 11)
    assert membership.expire(100, no_backlog) == frozenset()
    assert membership.slots == {A, B}


def test_tasks_from_before_a_change_are_lost_with_the_incarnation() -> None:
    """The assignment is read before the old incarnation has ended."""
    membership = both()
    membership.assigned({A: frozenset({4}), B: TASKS_B}, 10)
    lost = membership.happened(Replaced(A, OLD, NEW, left=False, dropped_frames=0))
    assert lost == TASKS_A | {4}
    lost = membership.happened(Replaced(A, NEW, Session(1, 3, 1), left=False, dropped_frames=0))
    assert lost == {4}


def test_earlier_tasks_of_a_leaving_slot_are_lost_with_it() -> None:
    membership = both()
    membership.assigned({A: frozenset({4}), B: TASKS_B}, 10)
    membership.assigned({B: TASKS_B}, 11)
    assert membership.expire(15, no_backlog) == TASKS_A | {4}
