from __future__ import annotations

from squall.windows.watermarks import Watermarks


def test_the_watermark_is_the_latest_timestamp_less_the_lag() -> None:
    marks = Watermarks(["s1"], lag_ms=5)
    for at in (100, 110):
        marks.track("s1", at, 0)
    assert marks.advance(0) == 105


def test_tuples_out_of_order_do_not_turn_it_back() -> None:
    marks = Watermarks(["s1"], lag_ms=5)
    for at in (100, 110, 104):
        marks.track("s1", at, 0)
    assert marks.advance(0) == 105
    marks.track("s1", 1, 0)
    assert marks.advance(0) is None
    assert marks.current_ms == 105


def test_it_waits_for_all_inputs_and_is_that_of_the_slowest() -> None:
    marks = Watermarks(["s1", "s2"], lag_ms=5)
    for at in (100, 110):
        marks.track("s1", at, 0)
    assert marks.advance(0) is None
    for at in (95, 98):
        marks.track("s2", at, 0)
    assert marks.advance(0) == 93


def test_without_tuples_there_is_none() -> None:
    assert Watermarks(["s1"]).advance(0) is None
    assert Watermarks([]).advance(0) is None


def test_a_tuple_is_late_only_if_it_lies_before_the_watermark() -> None:
    marks = Watermarks(["s1"], lag_ms=5)
    marks.track("s1", 110, 0)
    assert not marks.is_late(104)  # the watermark has not advanced yet
    assert marks.advance(0) == 105
    assert [marks.is_late(at) for at in (105, 106, 115, 104)] == [False, False, False, True]
    marks.track("s1", 115, 0)
    assert marks.advance(0) == 110


def test_an_idle_input_does_not_hold_it_back() -> None:
    marks = Watermarks(["s1", "s2"], idle_ms=1000, now_ms=0)
    marks.track("s1", 500, 900)
    assert marks.advance(900) is None  # s2 may still come
    assert marks.advance(1000) == 500  # silent for as long as the timeout
    marks.track("s2", 100, 1100)
    assert marks.advance(1100) is None  # it does not go back
    marks.track("s2", 550, 1200)
    marks.track("s1", 700, 1200)
    assert marks.advance(1200) == 550


def test_when_all_inputs_are_idle_it_stays() -> None:
    marks = Watermarks(["s1"], idle_ms=1000, now_ms=0)
    marks.track("s1", 500, 0)
    assert marks.advance(5000) is None
    marks.track("s1", 600, 5000)
    assert marks.advance(5000) == 600
