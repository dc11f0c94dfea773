"""How far the tasks before this one are: the least of those that count."""

from __future__ import annotations

from typing import Any

import pytest

from squall.windows.marks import IDLE_MS, UNHEARD_MS, InputMarks, Mark, Progress, State

INTERVAL = 1000


def progress(*tasks: int, idle_ms: int | None = None) -> Progress:
    return Progress(tasks, idle_ms=idle_ms, interval_ms=INTERVAL, now_ms=0)


def go_on(whole: Progress, part: Any, since_ms: int, until_ms: int, at_ms: int = 0) -> None:
    """A part has something in each interval."""
    for now_ms in range(since_ms, until_ms + 1, INTERVAL):
        whole.heard(part, at_ms)
        whole.pass_time(now_ms)


def test_the_part_that_is_furthest_behind_counts() -> None:
    whole = progress(1, 2)
    whole.heard((1, None), 7_200_000)
    whole.heard((2, None), 3_600_000)
    assert whole.at_ms == 3_600_000
    whole.heard((2, None), 3_000_000)  # out of order
    assert whole.at_ms == 3_600_000


def test_a_task_that_was_not_heard_of_holds_the_others_up_for_a_while() -> None:
    whole = progress(1, 2)
    go_on(whole, (1, None), 1000, UNHEARD_MS - 1000, at_ms=50)
    assert whole.at_ms is None
    go_on(whole, (1, None), UNHEARD_MS, UNHEARD_MS, at_ms=50)
    assert whole.at_ms == 50


def test_the_program_says_how_long_a_part_may_be_silent() -> None:
    whole = progress(1, 2, idle_ms=3000)
    go_on(whole, (1, None), 1000, 3000, at_ms=50)
    assert whole.at_ms == 50


def test_a_part_that_falls_silent_holds_the_others_up_for_a_while() -> None:
    whole = progress(1, 2)
    whole.heard((2, None), 5)
    go_on(whole, (1, None), 1000, IDLE_MS, at_ms=50)
    assert whole.at_ms == 5
    go_on(whole, (1, None), IDLE_MS + 1000, IDLE_MS + 1000, at_ms=50)
    assert whole.at_ms == 50
    whole.heard((2, None), 7)  # it goes on
    assert whole.at_ms == 7


def test_time_in_which_nothing_comes_is_not_silence_of_one() -> None:
    whole = progress(1, 2)
    whole.heard((1, None), 50)
    whole.heard((2, None), 5)
    for now_ms in range(1000, 10 * IDLE_MS, 1000):
        whole.pass_time(now_ms)
    assert whole.at_ms == 5
    whole.heard((1, None), 60)
    whole.pass_time(10 * IDLE_MS)
    assert whole.at_ms == 5


def test_time_in_which_this_process_stood_still_is_not_silence() -> None:
    whole = progress(1, 2)
    whole.heard((1, None), 50)
    whole.heard((2, None), 5)
    whole.pass_time(1000)
    whole.heard((1, None), 60)
    whole.pass_time(3_600_000)
    assert whole.at_ms == 5


def test_a_task_whose_source_has_ended_does_not_count() -> None:
    whole = progress(1, 2)
    whole.heard((1, None), 50)
    whole.heard((2, None), 5)
    whole.end(2)
    assert whole.at_ms == 50
    assert whole.state is State.ACTIVE


def test_when_all_sources_have_ended_the_furthest_counts() -> None:
    whole = progress(1, 2)
    whole.heard((1, None), 50)
    whole.heard((2, None), 5)
    whole.end(1)
    assert whole.at_ms == 5
    whole.end(2)
    assert whole.at_ms == 50
    whole.pass_time(1000)
    assert whole.state is State.ENDED


def test_an_empty_task_that_has_ended_holds_nothing_up() -> None:
    whole = progress(1, 2)
    whole.end(2)
    whole.heard((1, None), 50)
    assert whole.at_ms == 50


def test_a_task_that_had_ended_counts_again_when_it_goes_on() -> None:
    whole = progress(1)
    whole.heard((1, None), 50)
    whole.end(1)
    whole.heard((1, None), 20)  # a replay
    assert whole.at_ms == 20
    assert whole.state is State.ACTIVE


def test_the_parts_of_a_task_count_each_for_itself() -> None:
    whole = progress(1)
    whole.heard((1, ("a",)), 50)
    whole.heard((1, ("b",)), 5)
    assert whole.at_ms == 5
    go_on(whole, (1, ("a",)), 1000, IDLE_MS + 1000, at_ms=60)  # the end of file b is not known
    assert whole.at_ms == 60
    whole.end(1)
    assert whole.at_ms == 60


def test_it_is_active_until_an_interval_brings_nothing() -> None:
    whole = progress(1)
    assert whole.state is State.SILENT
    whole.heard((1, None), 1)
    assert whole.state is State.ACTIVE
    whole.pass_time(1000)
    assert whole.state is State.ACTIVE
    whole.pass_time(2000)
    assert whole.state is State.SILENT


# -- the inputs of a task --


def inputs(
    *names: str, apart: bool = False, idle_ms: int | None = None, lag_ms: int = 0
) -> InputMarks:
    """Each input is the stream "default" of a component with tasks 1 and 2 more than the one
    before."""
    tasks = {(name, "default"): [2 * place + 1, 2 * place + 2] for place, name in enumerate(names)}
    return InputMarks(
        tasks, idle_ms=idle_ms, interval_ms=INTERVAL, now_ms=0, apart=apart, lag_ms=lag_ms
    )


def mark(at_ms: int | None, state: State = State.ACTIVE, lag_ms: int = 0) -> Mark:
    return Mark("default", at_ms, lag_ms, state)


def test_the_least_mark_of_all_tasks_counts() -> None:
    marks = inputs("a", "b")
    for component, task, at_ms in [("a", 1, 90), ("a", 2, 70), ("b", 3, 80)]:
        marks.told(component, task, mark(at_ms), 0)
        assert marks.at_ms(0) is None
    marks.told("b", 4, mark(60), 0)
    assert marks.at_ms(0) == 60
    marks.told("b", 4, mark(100, State.SILENT), 0)
    assert marks.at_ms(0) == 70


def test_a_task_that_waits_for_its_own_input_holds_others_up() -> None:
    marks = inputs("a")
    for now_ms in range(1000, 5 * UNHEARD_MS, 1000):
        marks.told("a", 1, mark(50), now_ms)
        marks.told("a", 2, mark(None), now_ms)
        marks.pass_time(now_ms)
        assert marks.at_ms(now_ms) is None


@pytest.mark.parametrize(("apart", "expected"), [(True, None), (False, 50)])
def test_one_side_of_a_join_waits_for_the_other_and_a_merge_does_not(
    apart: bool, expected: int | None
) -> None:
    marks = inputs("a", "b", apart=apart)
    for now_ms in range(1000, 3 * IDLE_MS, 1000):
        marks.told("a", 1, mark(50), now_ms)
        marks.told("a", 2, mark(50), now_ms)
        marks.pass_time(now_ms)
    assert marks.at_ms(3 * IDLE_MS) == expected


def test_a_side_of_a_join_may_be_silent_for_as_long_as_the_program_says() -> None:
    marks = inputs("a", "b", apart=True, idle_ms=5000)
    for now_ms in range(1000, 4001, 1000):
        assert marks.at_ms(now_ms) is None
        marks.told("a", 1, mark(50), now_ms)
        marks.told("a", 2, mark(50), now_ms)
        marks.pass_time(now_ms)
    assert marks.at_ms(5000) == 50
    assert marks.at_ms(50_000) is None  # all are silent: it stays where it is


def test_a_side_that_has_ended_does_not_hold_the_other_up() -> None:
    marks = inputs("a", "b", apart=True)
    for component, task, at_ms in [("a", 1, 9), ("a", 2, 7), ("b", 3, 80), ("b", 4, 90)]:
        marks.told(component, task, mark(at_ms), 0)
    assert marks.at_ms(0) == 7
    for task in (1, 2):
        marks.told("a", task, mark(9, State.ENDED), 0)
    marks.pass_time(1000)
    marks.pass_time(2000)
    assert marks.at_ms(2000) == 80
    for task in (3, 4):
        marks.told("b", task, mark(95, State.ENDED), 0)
    marks.pass_time(3000)
    marks.pass_time(4000)
    assert marks.at_ms(4000) == 95
    assert marks.state is State.ENDED


def test_what_a_mark_has_less_of_the_wanted_lag_is_subtracted() -> None:
    marks = inputs("a", lag_ms=60)
    marks.told("a", 1, mark(1000, lag_ms=10), 0)
    marks.told("a", 2, mark(1000, lag_ms=80), 0)
    assert marks.at_ms(0) == 950
    assert marks.lag_ms == 10


def test_marks_of_other_streams_are_left_alone() -> None:
    marks = inputs("a")
    marks.told("a", 1, Mark("other", 5, 0, State.ACTIVE), 0)
    marks.told("c", 1, mark(5), 0)
    marks.told("a", 1, mark(50), 0)
    marks.told("a", 2, mark(50), 0)
    assert marks.at_ms(0) == 50
