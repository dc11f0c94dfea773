"""Time series."""

from __future__ import annotations

from squall_ui.live import series
from squall_ui.live.series import Series


def test_ten_minutes_are_fine_and_a_day_is_coarse() -> None:
    one = Series()
    for second in range(0, 100_000, 2):
        one.add(1_000_000 + second, {"x": float(second)})
    times, values = one.read("x", 600)
    assert len(times) == len(values) == 300
    assert (times[-1], values[-1]) == (1_099_998, 99_998.0)
    assert times[1] - times[0] == 2
    times, values = one.read("x", 86_400)
    assert len(times) == 720
    assert times[1] - times[0] == 120
    # The mean of the two minutes.
    assert values[-2] is not None
    assert abs(values[-2] - (times[-2] - 1_000_000 + 59)) <= 60


def test_a_gap_is_a_gap() -> None:
    one = Series()
    one.add(1000, {"x": 1.0})
    one.add(1010, {"x": 2.0})
    assert one.read("x", 600) == ([1000, 1002, 1004, 1006, 1008, 1010], [1.0] + [None] * 4 + [2.0])
    one.add(1_000_000, {"x": 3.0})
    _, values = one.read("x", 600)
    assert [value for value in values if value is not None] == [3.0]


def test_values_of_one_slot_are_averaged() -> None:
    one = Series()
    for value in (1.0, 2.0, 6.0):
        one.add(1000.5, {"x": value})
    assert one.read("x", 10)[1] == [3.0]


def test_a_clock_that_goes_back_spoils_nothing() -> None:
    one = Series()
    one.add(1000, {"x": 1.0})
    one.add(500, {"x": 9.0})
    assert one.read("x", 600) == ([1000], [1.0])


def test_before() -> None:
    one = Series()
    one.add(1000, {"x": 0.25})
    one.add(1120, {"x": 0.75})
    assert one.before("x", 1120, 120) == 0.25
    assert one.before("x", 1120, 60) is None
    assert one.before("y", 1120, 60) is None


def test_their_number_is_bounded(monkeypatch: object) -> None:
    one = Series()
    one.add(1000, {f"x{number}": 1.0 for number in range(series.SERIES_MAX + 10)})
    assert len(list(one.names())) == series.SERIES_MAX
    assert one.read("unknown", 600) == ([], [])
