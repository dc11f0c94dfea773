"""What Apache Beam's 17 trigger transcripts say of windows, as a table.

A step is tuples that come (`add`), or the watermark; after each, the windows that fire. Timestamps
are Beam's, whose windows begin with their start and end before their end; ours hold their end and
not their start, which is the same one millisecond on.

Of the 17, four say when windows of the default trigger fire, and what is in them. Five more differ
in the timestamp that a pane gets (the earliest of its tuples, the latest, one of the user's): their
windows are those of one table here, and a window here has the time of its end. Five are wrong, and
have to be found out. Three are about triggers that count tuples, before or after the end of a
window, and about panes that hold only what is new: Squall has neither. The page
docs/reference/window-cases.md lists all of them.
"""

from __future__ import annotations

import dataclasses
import gc
import weakref
from typing import Any

import pytest
from tests.support.window_cases import counted, listed, summary

from squall.windows.manager import WindowManager
from squall.windows.operators import Late, Ready, Refused, make_operator
from squall.windows.spec import WindowPlan
from squall_common.config.options.typed import TopologyOptions

Fired = list[tuple[int, list[int], bool]]  # end, timestamps, fired again

TRANSCRIPTS: list[tuple[str, list[tuple[str, Any, Fired]]]] = [
    (
        "windows fire once the watermark has passed their end",
        [
            ("add", [1, 2, 3, 10, 11], []),
            ("watermark", 25, [(10, [1, 2, 3], False), (20, [10, 11], False)]),
        ],
    ),
    (
        "late data fires its window again, with all it holds",
        [
            ("add", [1, 2, 3, 10, 11, 25], []),
            (
                "watermark",
                100,
                [(10, [1, 2, 3], False), (20, [10, 11], False), (30, [25], False)],
            ),
            ("add", [7], [(10, [1, 2, 3, 7], True)]),
        ],
    ),
    (
        "the same without late data, whatever timestamp a pane has",
        [
            ("add", [1, 2, 3, 10, 11, 25], []),
            (
                "watermark",
                100,
                [(10, [1, 2, 3], False), (20, [10, 11], False), (30, [25], False)],
            ),
        ],
    ),
    (
        "data behind the watermark is in a window that has not ended",
        [
            ("watermark", 5, []),
            ("add", [2, 3, 7, 8], []),
            ("watermark", 11, [(10, [2, 3, 7, 8], False)]),
        ],
    ),
    (
        "data behind the watermark alone makes a window",
        [
            ("watermark", 8, []),
            ("add", [2, 3, 7], []),
            ("watermark", 11, [(10, [2, 3, 7], False)]),
        ],
    ),
    (
        "a window without data does not fire",
        [("add", [1], []), ("watermark", 100, [(10, [1], False)]), ("watermark", 200, [])],
    ),
]
WRONG: list[tuple[str, list[tuple[str, Any, Fired]]]] = [
    ("a window before its end", [("add", [1, 2, 3], [(10, [1, 2, 3], False)])]),
    ("other values", [("add", [1, 2, 3], []), ("watermark", 100, [(10, [1, 2], False)])]),
    ("another window", [("add", [1, 2, 3], []), ("watermark", 100, [(20, [1, 2, 3], False)])]),
    (
        "no window, and a watermark after it",
        [("add", [1, 2, 3], []), ("watermark", 100, []), ("watermark", 200, [])],
    ),
    ("no window at the end", [("add", [1, 2, 3], []), ("watermark", 100, [])]),
]
SESSIONS: list[tuple[str, list[tuple[str, Any, Fired]]]] = [
    (
        "late data fires a session again",
        [
            ("add", [1, 2, 3, 4, 5, 6], []),
            ("watermark", 100, [(16, [1, 2, 3, 4, 5, 6], False)]),
            ("add", [1], [(16, [1, 1, 2, 3, 4, 5, 6], True)]),
            ("add", [3], [(16, [1, 1, 2, 3, 3, 4, 5, 6], True)]),
        ],
    ),
    (
        "data that joins two sessions makes them one",
        [
            ("add", [1, 19], []),
            ("add", [10], []),
            ("watermark", 28, []),
            ("watermark", 29, [(29, [1, 10, 19], False)]),
        ],
    ),
]


BEAM: dict[str, list[str]] = {  # Beam's transcripts that a table shows
    "windows fire once the watermark has passed their end": ["fixed_default"],
    "late data fires its window again, with all it holds": ["fixed_default_late_data"],
    "the same without late data, whatever timestamp a pane has": [
        "timestamp_combiner_earliest",
        "timestamp_combiner_latest",
        "timestamp_combiner_custom_timestamping_eow",
        "timestamp_combiner_custom_timestamping_earliest",
        "timestamp_combiner_custom_timestamping_earliest",
    ],
    "data behind the watermark is in a window that has not ended": ["known_late_data_watermark"],
    "data behind the watermark alone makes a window": [
        "known_late_data_no_watermark_hold_possible"
    ],
    "a window before its end": ["bad_output"],
    "other values": ["bad_expected_values"],
    "another window": ["bad_expected_window"],
    "no window, and a watermark after it": ["missing_output"],
    "no window at the end": ["missing_output_at_end"],
}


def play(plan: WindowPlan, steps: list[tuple[str, Any, Fired]], shift: int) -> None:
    operator = make_operator(plan, lambda item: None, None, event_time=True, hold=True, start_ms=0)
    watermark = 0
    for what, given, expected in steps:
        outputs: list[Any] = []
        if what == "watermark":
            watermark = given
            outputs += operator.advance(given, 0)
        else:
            for at in given:
                late = at + shift <= watermark
                event = (at + shift, [at])
                outputs += operator.add_late(event, 0) if late else operator.add([event], 0)
        assert not any(isinstance(one, Late) for one in outputs)
        fired = [
            (one.end_ms, sorted(item[0] for item in one.tuples), one.late)
            for one in outputs
            if isinstance(one, Ready)
        ]
        assert fired == expected


def plan(**conf: int) -> WindowPlan:
    options = {f"topology.bolts.{key.replace('_', '.')}": value for key, value in conf.items()}
    return WindowPlan.read(TopologyOptions.read(options))


@pytest.mark.parametrize(
    "steps", [case[1] for case in TRANSCRIPTS], ids=[case[0] for case in TRANSCRIPTS]
)
def test_transcripts_of_fixed_windows(steps: list[tuple[str, Any, Fired]]) -> None:
    play(fixed(), steps, 1)


@pytest.mark.parametrize("steps", [case[1] for case in WRONG], ids=[case[0] for case in WRONG])
def test_transcripts_that_are_wrong_are_found_out(steps: list[tuple[str, Any, Fired]]) -> None:
    with pytest.raises(AssertionError):
        play(fixed(), steps, 1)


def test_the_page_lists_each_of_beams_17_transcripts_and_says_which_have_a_table() -> None:
    transcripts = listed("Beam's 17 transcripts")
    assert len(transcripts) == 17
    tested = [one.name for one in transcripts if one.verdict != "no counterpart"]
    assert sorted(tested) == sorted(name for names in BEAM.values() for name in names)
    assert BEAM.keys() <= {case[0] for case in (*TRANSCRIPTS, *WRONG)}
    assert counted(transcripts) == summary("Beam's transcripts")


def fixed() -> WindowPlan:
    return plan(
        window_length_duration_ms=10,
        window_sliding_interval_duration_ms=10,
        window_allowed_lateness_ms=1000,
        tuple_timestamp_max_lag_ms=1000,
    )


@pytest.mark.parametrize(
    "steps", [case[1] for case in SESSIONS], ids=[case[0] for case in SESSIONS]
)
def test_transcripts_of_sessions(steps: list[tuple[str, Any, Fired]]) -> None:
    play(plan(window_session_gap_ms=10, window_allowed_lateness_ms=1000), steps, 0)


def test_a_timestamp_far_in_the_future_does_not_hang_windows_of_a_number_of_tuples() -> None:
    windows = plan(window_length_count=2, window_sliding_interval_duration_ms=10)
    operator = make_operator(
        windows, lambda item: None, None, event_time=True, hold=True, start_ms=0
    )
    far = 10**15
    list(operator.add([(5, "a"), (far, "b"), (far + 5, "c")], 0))
    fired = [one for one in operator.advance(far + 10, 0) if isinstance(one, Ready)]
    assert 10_000 <= len(fired) <= 10_010
    assert [one.tuples for one in fired[-2:]] == [["a", "b"], ["b", "c"]]
    assert fired[-1].end_ms == far + 10
    again = [one for one in operator.advance(far + 20, 0) if isinstance(one, Ready)]
    assert [(one.tuples, one.end_ms) for one in again] == [(["b", "c"], far + 20)]


def test_an_aggregate_with_many_panes_does_not_look_at_empty_ones() -> None:
    class Sum:
        def of(self, item: int) -> int:
            return item

        def add(self, contents: int, item: int) -> int:
            return contents + item

        def merge(self, first: int, second: int) -> int:
            return first + second

    day = 86_400_000
    windows = plan(window_length_duration_ms=day, window_sliding_interval_duration_ms=day - 1)
    operator = make_operator(
        windows, lambda item: None, Sum(), event_time=True, hold=True, start_ms=0
    )
    list(operator.add([(day // 2, 3), (day - 1, 4)], 0))
    fired = [one for one in operator.advance(2 * day, 0) if isinstance(one, Ready)]
    assert [(one.total, one.tuples) for one in fired] == [(7, [3, 4]), (4, [4])]


class Key:
    """A key, or a tuple, that a weak reference can watch."""


class Number:
    """An aggregate that counts."""

    def of(self, item: Any) -> int:
        return 1

    def add(self, contents: int, item: Any) -> int:
        return contents + 1

    def merge(self, first: int, second: int) -> int:
        return first + second


@pytest.mark.parametrize("contents", [None, Number()], ids=["tuples", "aggregate"])
def test_nothing_is_kept_of_a_key_whose_window_of_tuples_is_full(contents: Any) -> None:
    by_two = plan(window_length_count=2, window_sliding_interval_count=2)
    windows = dataclasses.replace(by_two, key=("key",))
    operator = make_operator(
        windows, lambda item: item[0], contents, event_time=False, hold=True, start_ms=0
    )
    key = Key()
    watched = weakref.ref(key)
    for number in (1, 2):
        outputs = list(operator.add([(number, (key, number))], number))
    assert [len(one.tuples) for one in outputs] == [2, 2]  # a window, and its release
    del key, outputs
    gc.collect()
    assert watched() is None


def test_nothing_is_kept_of_panes_of_which_every_tuple_is_refused() -> None:
    class Refuses(Number):
        def of(self, item: Any) -> int:
            raise ValueError("it cannot be added")

    windows = plan(window_length_duration_ms=10, window_sliding_interval_duration_ms=10)
    operator: Any = make_operator(
        windows, lambda item: None, Refuses(), event_time=True, hold=True, start_ms=0
    )
    for at in range(5, 100, 10):
        assert [type(one) for one in operator.add([(at, at)], 0)] == [Refused]
        assert list(operator.advance(at + 5, 0)) == []
    assert operator._held == {}


@pytest.mark.parametrize("event_time", [False, True], ids=["clock", "event time"])
def test_windows_that_fail_for_many_keys_are_discarded_together(
    event_time: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[int] = []
    discard = WindowManager.discard

    def counting(manager: WindowManager, items: Any) -> None:
        calls.append(len(items))
        discard(manager, items)

    monkeypatch.setattr(WindowManager, "discard", counting)
    windows = dataclasses.replace(
        plan(window_length_duration_ms=20, window_sliding_interval_duration_ms=10), key=("key",)
    )
    operator = make_operator(
        windows, lambda item: item[0], None, event_time=event_time, hold=True, start_ms=0
    )
    list(operator.add([(5, (key,)) for key in range(100)], 5))
    for one in operator.advance(10, 10):
        if isinstance(one, Ready) and one.key != 7:
            operator.discard(one)
    assert calls == [99]
    assert list(operator.held()) == [(7,)]


def test_windows_of_a_late_tuple_are_not_fired_again_once_it_has_failed() -> None:
    windows = plan(
        window_length_duration_ms=20,
        window_sliding_interval_duration_ms=10,
        window_allowed_lateness_ms=1000,
    )
    operator = make_operator(
        windows, lambda item: None, None, event_time=True, hold=True, start_ms=0
    )
    list(operator.add([(5, [5]), (45, [45])], 0))
    list(operator.advance(45, 0))
    ends = []
    for one in operator.add_late((6, [6]), 0):
        assert isinstance(one, Ready)
        ends.append(one.end_ms)
        operator.discard(one)
    assert ends == [10]
    assert list(operator.held()) == [[45]]


def test_an_aggregate_looks_only_at_the_panes_of_its_key() -> None:
    """A length and an interval without a common divisor make panes of a millisecond."""

    class Watched(dict[int, Any]):
        looks = 0

        def get(self, key: int, default: Any = None) -> Any:
            Watched.looks += 1
            return super().get(key, default)

        def __iter__(self) -> Any:
            for key in super().__iter__():
                Watched.looks += 1
                yield key

    windows = plan(window_length_duration_ms=1001, window_sliding_interval_duration_ms=100)
    keys, tuples = 100, 1000
    operator: Any = make_operator(
        windows, lambda item: item[0], Number(), event_time=True, hold=True, start_ms=0
    )
    operator._held = Watched()
    list(operator.add([(at + 1, (at % keys, at)) for at in range(tuples)], 0))
    fired = [one for one in operator.advance(1000, 0) if isinstance(one, Ready)]
    assert sum(len(one.tuples) for one in fired) == sum(one.total for one in fired)
    assert Watched.looks <= 3 * sum(one.total for one in fired)
