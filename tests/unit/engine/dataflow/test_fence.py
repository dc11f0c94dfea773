"""Generations are kept apart on links, and a barrier is taken only with all that came before it."""

from __future__ import annotations

from typing import cast

from squall_common.topology.model import WorkerSlot
from squall_engine.core.codec import ValueCodec
from squall_engine.core.sections import ACKS, EPOCHS, METRICS, TUPLES
from squall_engine.dataflow.fence import Barrier, Fence
from squall_engine.dataflow.remote import Exchange, Reject
from squall_engine.plan import Plan

A, B = WorkerSlot("a", 1), WorkerSlot("b", 1)
SESSIONS = ("of a", "of b")
BARRIER = Barrier("words", 1, 7, True)
TWO = [bytes([TUPLES, 1]), bytes([TUPLES, 2])]


class Receiver(Fence):
    def __init__(self, generation: int) -> None:
        super().__init__(generation, {})
        self.barriers: list[Barrier] = []
        self.gaps: list[str] = []
        self.on_barrier = self.barriers.append
        self.on_gap = self.gaps.append

    def take(self, sections: list[bytes], sessions: object = SESSIONS) -> list[bytes]:
        return [one for one in sections if self.admits(A, sessions, one)]


def sent(generation: int, tuples: list[bytes]) -> list[bytes]:
    sender = Fence(generation, {})
    sender.add_barrier(B, BARRIER)
    assert sender.has_barriers
    assert sender.waiting() == [B]
    sections = sender.enclose(B, tuples)
    assert not sender.has_barriers
    return sections


def test_a_barrier_comes_behind_the_tuples_of_its_turn() -> None:
    receiver = Receiver(3)
    assert receiver.take(sent(3, TWO)) == TWO
    assert receiver.barriers == [BARRIER]
    assert not receiver.gaps


def test_what_is_of_another_generation_is_dropped() -> None:
    for generation in (2, 4):
        receiver = Receiver(3)
        acks = bytes([ACKS, 0])
        assert receiver.take([*sent(generation, TWO), acks]) == []
        assert receiver.dropped == 4  # two sections of tuples, the barrier, the acks
        assert receiver.barriers == receiver.gaps == []


def test_tuples_of_a_worker_that_has_not_said_its_generation_are_dropped() -> None:
    receiver = Receiver(3)
    assert receiver.take(TWO) == []
    assert receiver.dropped == 2


def test_a_barrier_without_all_that_was_sent_before_it_is_a_gap() -> None:
    enter, first, second, barrier = sent(3, TWO)
    for missing in ([enter, first, barrier], [enter, barrier], [enter, second, barrier], [barrier]):
        receiver = Receiver(3)
        receiver.take(missing)
        assert not receiver.barriers
        assert len(receiver.gaps) == 1


def test_one_section_too_many_is_a_gap() -> None:
    enter, first, second, barrier = sent(3, TWO)
    receiver = Receiver(3)
    receiver.take([enter, first, first, second, barrier])
    assert not receiver.barriers
    assert receiver.gaps


def test_tuples_of_sessions_that_have_ended_are_dropped() -> None:
    enter, first, second, barrier = sent(3, TWO)
    receiver = Receiver(3)
    receiver.take([enter, first])
    assert receiver.take([second, barrier], sessions=("of a", "another")) == []
    assert not receiver.barriers
    assert receiver.gaps


def test_a_sender_says_its_generation_again_in_new_sessions() -> None:
    sender, receiver = Fence(3, {}), Receiver(3)
    receiver.take(sender.enclose(B, TWO))
    sender.add_barrier(B, BARRIER)
    sender.session_began(B)
    assert receiver.take(sender.enclose(B, TWO), sessions="new") == TWO
    assert receiver.barriers == [BARRIER]
    assert not receiver.gaps


def test_messages_of_coordinators_and_metrics_pass() -> None:
    receiver = Receiver(3)
    free = [bytes([METRICS, 1]), bytes([EPOCHS]) + b"\x91\xa2go"]
    assert receiver.take(free) == free
    assert receiver.dropped == 0


def test_tuples_that_cannot_be_read_once_their_task_runs_are_a_gap() -> None:
    """They were counted when they came, so a barrier would be taken without them."""
    receiver = Receiver(3)
    exchange = Exchange(cast(Plan, None), ValueCodec(), None, cast(Reject, None), lambda _: None)
    exchange.fence = receiver
    enter, first, second, _ = sent(3, TWO)
    assert receiver.take([enter, first, second]) == TWO
    assert exchange.decode(second) == {}
    assert len(receiver.gaps) == 1
