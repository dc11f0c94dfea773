from __future__ import annotations

from squall.windows.lateness import LateFirings


def key_of(item: str) -> str:
    return item[0]


def test_a_late_event_fires_each_window_that_held_it_and_has_fired() -> None:
    late = LateFirings(20, 10, 30)
    late.keep([(3, "a1"), (4, "b1"), (17, "a2")])
    event = (12, "a3")
    late.keep([event])
    fired = list(late.fire(event, [], 30, key_of))
    assert [(one.reference_ms, [item for _, item in one.events]) for one in fired] == [
        (20, ["a1", "a2", "a3"]),
        (30, ["a2", "a3"]),
    ]
    assert [item for _, item in fired[0].before] == ["a1", "a2"]


def test_windows_that_have_not_fired_are_left_alone() -> None:
    late = LateFirings(20, 10, 30)
    assert list(late.ends(12, 20)) == [20]
    assert list(late.ends(12, 10)) == []


def test_what_no_late_event_can_need_is_released() -> None:
    late = LateFirings(20, 10, 30)
    late.keep([(3, "a"), (11, "b"), (21, "c")])
    assert late.release(50) == []  # an event at 20 would fire the window from 0 to 20
    assert late.release(51) == ["a"]
    assert late.release(60) == []
    assert late.release(61) == ["b"]
    assert late.items == ["c"]


def test_how_late_is_too_late() -> None:
    late = LateFirings(20, 10, 30)
    assert late.accepts(70, 100)
    assert not late.accepts(69, 100)
