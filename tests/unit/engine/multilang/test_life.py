"""When a child is asked, killed and replaced: seconds as numbers, no clock."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.support.validated import validated_children

from squall_common.daemon.output.story import ContradictionError, IllegalEventError
from squall_engine.multilang.life import ChildLife
from squall_engine.multilang.life_table import TABLE, Do, State
from squall_engine.multilang.outbox import CHUNK_BYTES, Outbox


@pytest.fixture(autouse=True)
def _validated() -> Iterator[None]:
    """Every life of these tests, after every call."""
    with validated_children():
        yield


def bolt(*, timeout: float = 10.0) -> ChildLife:
    life = ChildLife(timeout_secs=timeout, beats=True)
    life.started(0.0)
    return life


def seconds(life: ChildLife, start: int, end: int) -> list[tuple[int, Do]]:
    """What there was to do at each whole second."""
    found = [(now, life.tick(float(now))) for now in range(start, end)]
    return [(now, do) for now, do in found if do is not Do.NOTHING]


def test_a_bolt_gets_a_heartbeat_a_second() -> None:
    life = bolt()
    life.pid_received(0.0)
    for now in range(1, 5):
        assert life.tick(float(now)) is Do.BEAT
        life.heard(now + 0.1)


def test_no_second_heartbeat_before_the_first_is_answered() -> None:
    life = bolt()
    life.pid_received(0.0)
    assert seconds(life, 1, 12) == [(1, Do.BEAT), (11, Do.KILL)]


def test_any_message_answers_a_heartbeat() -> None:
    life = bolt()
    life.pid_received(0.0)
    life.tick(1.0)
    life.heard(9.0)
    assert life.silent_secs(10.0) == 0.0
    assert seconds(life, 10, 19) == [(10, Do.BEAT)]


def test_a_child_that_never_sends_its_pid_is_killed() -> None:
    assert seconds(bolt(), 1, 11) == [(10, Do.KILL)]


def test_a_spout_owes_only_the_answer_to_a_command() -> None:
    life = ChildLife(timeout_secs=10.0, beats=False)
    life.started(0.0)
    life.pid_received(0.0)
    assert seconds(life, 1, 50) == []
    life.asked(50.0)
    assert seconds(life, 51, 58) == []
    life.heard(58.0)  # an emit: it works
    assert seconds(life, 58, 68) == []
    life.answered()
    assert seconds(life, 68, 90) == []
    life.asked(90.0)
    assert seconds(life, 90, 101) == [(100, Do.KILL)]


def test_a_pause_of_the_worker_does_not_count_as_silence_of_the_child() -> None:
    life = bolt()
    life.pid_received(0.0)
    assert life.tick(1.0) is Do.BEAT
    assert life.tick(500.0) is Do.NOTHING
    assert life.tick(501.0) is Do.NOTHING
    assert seconds(life, 502, 510) == [(509, Do.KILL)]


def test_a_silence_is_warned_about_once_at_half_of_the_timeout() -> None:
    life = bolt()
    life.pid_received(0.0)
    life.tick(1.0)
    assert [now for now in range(2, 11) if life.warns(float(now))] == [6]


def test_the_first_dead_child_is_replaced_at_once_and_the_next_after_growing_pauses() -> None:
    life = bolt()
    pauses = []
    now = 0.0
    for _ in range(12):
        pauses.append(life.exited(now))
        assert life.state is State.WAITING
        now += pauses[-1]
        assert life.tick(now) is Do.START
        life.started(now)
    assert [round(pause, 3) for pause in pauses[:4]] == [0.0, 0.1, 0.2, 0.4]
    assert pauses[-1] == 30.0


def test_a_child_that_has_run_for_a_while_is_replaced_at_once() -> None:
    life = bolt()
    life.exited(1.0)
    life.started(1.0)
    assert life.exited(100.0) == 0.0


def test_a_stopped_child_is_not_started() -> None:
    life = bolt()
    life.stop(0.0)
    life.exited(1.0)
    assert seconds(life, 1, 100) == []


def test_a_child_that_was_killed_is_waited_for() -> None:
    life = bolt()
    life.killed(0.0)
    assert seconds(life, 1, 100) == []
    life.exited(100.0)
    assert life.tick(100.0) is Do.START


def test_a_child_that_sends_something_else_first_still_owes_its_pid() -> None:
    """A child that never tells it is killed, whatever else it says: here the end of a command that
    it was never given."""
    life = ChildLife(timeout_secs=10.0, beats=False)
    life.started(0.0)
    life.heard(2.0)
    life.answered()
    assert seconds(life, 3, 13) == [(12, Do.KILL)]


def test_a_failed_start_is_tried_again_after_a_pause() -> None:
    life = ChildLife(timeout_secs=10.0, beats=True)
    assert life.tick(1.0) is Do.START
    life.start_failed(1.0)
    assert life.tick(1.0) is Do.START
    life.start_failed(1.0)
    assert life.tick(1.05) is Do.NOTHING
    assert life.tick(1.1) is Do.START


def test_every_state_of_a_child_has_a_way_in_and_stopped_has_no_way_out() -> None:
    for state in State:
        assert state is State.WAITING or any(row[0] is state for row in TABLE.values())
    assert {row[0] for (state, _), row in TABLE.items() if state is State.STOPPED} == {
        State.STOPPED
    }


def test_a_second_child_is_refused_with_the_events_that_led_there() -> None:
    life = bolt()
    life.pid_received(1.0)
    with pytest.raises(IllegalEventError) as caught:
        life.started(2.0)
    reported = str(caught.value)
    assert reported.startswith("ChildStarted() cannot happen in RUNNING; what led here:")
    assert "0.000 WAITING --ChildStarted()--> STARTING" in reported
    assert "1.000 STARTING --PidReceived()--> RUNNING" in reported
    assert life.state is State.RUNNING


def test_a_contradiction_shows_the_events_that_led_there() -> None:
    life = bolt()
    life._owes_since = None
    with pytest.raises(ContradictionError, match="it owes no pid") as caught:
        life.validate()
    assert "WAITING --ChildStarted()--> STARTING" in str(caught.value)


def test_task_ids_go_before_queued_tuples_and_after_a_half_written_one() -> None:
    box = Outbox()
    box.holds_tuples = False
    box.add_tuple("1", b"tuple-1|")
    assert bytes(box.chunk()) == b"tuple-1|"
    box.wrote(3)
    box.add_tuple("2", b"tuple-2|")
    box.add_urgent(b"ids-1|")
    box.add_urgent(b"ids-2|")
    assert bytes(box.chunk()) == b"le-1|"
    box.wrote(5)
    assert bytes(box.chunk()) == b"ids-1|ids-2|tuple-2|"
    box.wrote(20)
    assert not box


def test_tuples_are_held_until_the_child_is_ready() -> None:
    box = Outbox()
    box.add_urgent(b"handshake")
    box.add_tuple("1", b"tuple")
    assert bytes(box.chunk()) == b"handshake"
    box.wrote(9)
    assert not box
    box.holds_tuples = False
    assert bytes(box.chunk()) == b"tuple"


def test_only_entirely_unwritten_tuples_are_kept_for_the_next_child() -> None:
    box = Outbox()
    box.holds_tuples = False
    for i in range(3):
        box.add_tuple(str(i), b"x" * CHUNK_BYTES)
    box.chunk()
    box.wrote(1)
    box.drop_written()
    assert box.unwritten() == ["1", "2"]
    assert box.tuples == 2
    assert not box  # held


def test_nothing_is_written_twice() -> None:
    box = Outbox()
    box.holds_tuples = False
    for i in range(3):
        box.add_tuple(str(i), b"tuple-%d|" % i)
        box.wrote(len(box.chunk()))
        assert not box.chunk()
    box.add_urgent(b"ids|")
    assert bytes(box.chunk()) == b"ids|"
