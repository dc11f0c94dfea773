from __future__ import annotations

from typing import Any

from squall.windows.sessions import SessionWindows


class Lists:
    """Windows that hold their items."""

    def of(self, item: Any) -> list[Any]:
        return [item]

    def add(self, contents: list[Any], item: Any) -> list[Any]:
        return [*contents, item]

    def merge(self, first: list[Any], second: list[Any]) -> list[Any]:
        return first + second


def fired(windows: SessionWindows, now: int) -> list[tuple[Any, int, int, list[int]]]:
    return [
        (session.key, session.start_ms, session.end_ms, sorted(session.contents))
        for session, leaves in windows.advance(now)
        if not leaves
    ]


def filled(times: list[int], *, gap: int = 10, lateness: int = 0) -> SessionWindows:
    windows = SessionWindows(Lists(), gap, lateness)
    for at in times:
        assert windows.add("k", at, at) == (True, None)
    return windows


def test_a_session_ends_a_gap_after_its_last_tuple() -> None:
    windows = filled([1, 5, 14])
    assert fired(windows, 23) == []
    assert fired(windows, 24) == [("k", 1, 24, [1, 5, 14])]
    assert len(windows) == 0


def test_exactly_a_gap_apart_is_two_sessions() -> None:
    assert fired(filled([1, 11]), 100) == [("k", 1, 11, [1]), ("k", 11, 21, [11])]
    assert fired(filled([1, 10]), 100) == [("k", 1, 20, [1, 10])]


def test_a_tuple_between_two_sessions_makes_them_one() -> None:
    windows = filled([1, 18])
    assert len(windows) == 2
    assert windows.add("k", 9, 9) == (True, None)
    assert len(windows) == 1
    assert fired(windows, 100) == [("k", 1, 28, [1, 9, 18])]


def test_tuples_out_of_order_and_duplicates_are_in_the_session() -> None:
    assert fired(filled([15, 6, 15, 1, 10]), 100) == [("k", 1, 25, [1, 6, 10, 15, 15])]


def test_each_key_has_its_own_sessions_and_they_fire_by_their_end() -> None:
    windows = SessionWindows(Lists(), 10)
    for key, at in (("b", 5), ("a", 1), ("b", 8)):
        windows.add(key, at, at)
    assert fired(windows, 100) == [("a", 1, 11, [1]), ("b", 5, 18, [5, 8])]


def test_a_tuple_is_late_when_its_session_would_have_ended() -> None:
    windows = filled([1])
    assert fired(windows, 11) == [("k", 1, 11, [1])]
    assert windows.add("k", 1, 1) == (False, None)
    assert windows.add("k", 2, 2) == (True, None)  # would end at 12


def test_an_old_tuple_that_joins_an_open_session_is_not_late() -> None:
    windows = filled([1, 8])
    assert fired(windows, 15) == []
    assert windows.add("k", 3, 3) == (True, None)
    assert fired(windows, 18) == [("k", 1, 18, [1, 3, 8])]


def test_a_late_tuple_fires_its_session_again_within_the_lateness() -> None:
    windows = filled([1], lateness=20)
    assert fired(windows, 15) == [("k", 1, 11, [1])]
    accepted, again = windows.add("k", 3, 3)
    assert accepted
    assert again is not None
    assert (again.start_ms, again.end_ms, again.contents) == (1, 13, [1, 3])
    assert fired(windows, 32) == []
    assert len(windows) == 1
    left = [session for session, leaves in windows.advance(33) if leaves]
    assert left == [again]
    assert windows.add("k", 3, 3) == (False, None)


def test_a_session_that_a_tuple_extends_into_the_future_fires_again_at_its_new_end() -> None:
    windows = filled([1], lateness=100)
    assert fired(windows, 12) == [("k", 1, 11, [1])]
    assert windows.add("k", 8, 8) == (True, None)
    assert fired(windows, 17) == []
    assert fired(windows, 18) == [("k", 1, 18, [1, 8])]


def test_a_growing_session_is_waited_for_once() -> None:
    windows = filled(list(range(1, 1000, 5)))
    assert len(windows._due) == 1
    assert windows.next_ms == 11
    assert fired(windows, 2000) == [("k", 1, 1006, list(range(1, 1000, 5)))]
    assert windows.next_ms is None
