"""When a child is asked, killed and replaced: seconds as numbers, no clock."""

from __future__ import annotations

from squall_worker.multilang.life import ChildLife, Do, State
from squall_worker.multilang.linger import Linger, Stay
from squall_worker.multilang.outbox import CHUNK_BYTES, Outbox


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
    life.told_pid(0.0)
    for now in range(1, 5):
        assert life.tick(float(now)) is Do.BEAT
        life.heard(now + 0.1)


def test_no_second_heartbeat_before_the_first_is_answered() -> None:
    life = bolt()
    life.told_pid(0.0)
    assert seconds(life, 1, 12) == [(1, Do.BEAT), (11, Do.KILL)]


def test_anything_it_says_answers_a_heartbeat() -> None:
    life = bolt()
    life.told_pid(0.0)
    life.tick(1.0)
    life.heard(9.0)
    assert life.silent_secs(10.0) == 0.0
    assert seconds(life, 10, 19) == [(10, Do.BEAT)]


def test_one_that_never_tells_its_pid_is_killed() -> None:
    assert seconds(bolt(), 1, 11) == [(10, Do.KILL)]


def test_a_spout_owes_only_the_answer_to_a_command() -> None:
    life = ChildLife(timeout_secs=10.0, beats=False)
    life.started(0.0)
    life.told_pid(0.0)
    assert seconds(life, 1, 50) == []
    life.asked(50.0)
    assert seconds(life, 51, 58) == []
    life.heard(58.0)  # an emit: it works
    assert seconds(life, 58, 68) == []
    life.answered()
    assert seconds(life, 68, 90) == []
    life.asked(90.0)
    assert seconds(life, 90, 101) == [(100, Do.KILL)]


def test_a_pause_of_ours_is_not_its_silence() -> None:
    life = bolt()
    life.told_pid(0.0)
    assert life.tick(1.0) is Do.BEAT
    assert life.tick(500.0) is Do.NOTHING
    assert life.tick(501.0) is Do.NOTHING
    assert seconds(life, 502, 510) == [(509, Do.KILL)]


def test_a_silence_is_warned_of_once_at_half_of_the_time_out() -> None:
    life = bolt()
    life.told_pid(0.0)
    life.tick(1.0)
    assert [now for now in range(2, 11) if life.warns(float(now))] == [6]


def test_the_first_death_is_made_good_at_once_the_next_after_growing_pauses() -> None:
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


def test_one_that_has_lived_a_while_is_replaced_at_once() -> None:
    life = bolt()
    life.exited(1.0)
    life.started(1.0)
    assert life.exited(100.0) == 0.0


def test_a_stopped_one_is_not_started() -> None:
    life = bolt()
    life.stop()
    life.exited(1.0)
    assert seconds(life, 1, 100) == []


def test_a_child_that_was_killed_is_waited_for() -> None:
    life = bolt()
    life.killed()
    assert seconds(life, 1, 100) == []
    life.exited(100.0)
    assert life.tick(100.0) is Do.START


def test_task_ids_go_ahead_of_queued_tuples_and_after_what_is_half_written() -> None:
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


def test_tuples_are_held_until_the_child_is_there() -> None:
    box = Outbox()
    box.add_urgent(b"handshake")
    box.add_tuple("1", b"tuple")
    assert bytes(box.chunk()) == b"handshake"
    box.wrote(9)
    assert not box
    box.holds_tuples = False
    assert bytes(box.chunk()) == b"tuple"


def test_only_tuples_of_which_nothing_was_written_are_kept_for_the_next_child() -> None:
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


def chosen(asleep: int, awake: int, *, loop: int, secs: float = 20.0) -> Stay:
    """How most of the time is spent with a child that makes so many answers a second each way."""
    rates = {Stay.NOT: loop, Stay.ASLEEP: asleep, Stay.AWAKE: awake}
    linger = Linger(0.00005)
    now, spent = 1.0, dict.fromkeys(Stay, 0.0)
    how = Stay.NOT
    while now < 1.0 + secs:
        step = 1.0 / rates[how]
        now += step
        spent[how] += step
        how = linger.begins(now)
    best = max(spent, key=lambda stay: spent[stay])
    assert spent[best] > 0.85 * secs
    return best


def test_lingering_awake_is_chosen_where_a_core_is_idle() -> None:
    assert chosen(loop=14_000, asleep=17_000, awake=44_000) is Stay.AWAKE


def test_lingering_asleep_is_chosen_where_others_want_the_cores() -> None:
    assert chosen(loop=10_000, asleep=18_000, awake=11_000) is Stay.ASLEEP


def test_what_gains_nothing_is_done_asleep_for_that_takes_the_least_cpu() -> None:
    assert chosen(loop=16_000, asleep=16_000, awake=16_500) is Stay.ASLEEP
    assert chosen(loop=4_000, asleep=4_000, awake=4_000) is Stay.ASLEEP  # a busy machine


def test_the_loop_has_its_way_where_lingering_costs_answers() -> None:
    assert chosen(loop=20_000, asleep=11_000, awake=14_000) is Stay.NOT


def test_a_child_that_has_little_to_say_is_not_waited_for() -> None:
    assert chosen(loop=500, asleep=5_000, awake=5_000) is Stay.NOT


def test_answers_that_are_given_in_one_go_count() -> None:
    linger = Linger(0.00005)
    now = 1.0
    for _ in range(1_000):
        now += 0.001
        if linger.begins(now) is not Stay.NOT:
            linger.goes_on(30)
        else:
            linger.goes_on(10)
    assert linger.begins(now) is not Stay.NOT


def test_a_core_that_was_lost_while_looking_is_slept_for() -> None:
    linger = Linger(0.00005)
    now = 1.0
    while linger.begins(now) is not Stay.AWAKE:
        now += 0.0001
    linger.lost_core(now)
    linger.lost_core(now)
    assert linger.begins(now) is Stay.AWAKE, "it may happen"
    linger.lost_core(now)
    until = now + 1.9
    while now < until:
        assert linger.begins(now) is Stay.ASLEEP
        now += 0.0001


def test_lingering_can_be_turned_off() -> None:
    linger = Linger(0)
    assert {linger.begins(float(now)) for now in range(100)} == {Stay.NOT}
