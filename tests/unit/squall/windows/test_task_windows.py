"""What the windows of a task store, and how another task goes on from it."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from squall.windows import EventTime, Windows, sliding, task_windows, tumbling
from squall.windows.groups import GroupedWindows
from squall.windows.held import Held
from squall.windows.operators import Ready, make_operator
from squall.windows.spec import WindowPlan
from squall.windows.task_windows import TaskWindows
from squall.windows.watermarks import Watermarks
from squall_common.config.options.typed import TopologyOptions
from squall_common.errors import SquallError
from squall_common.topology.serialization import Registry
from squall_engine.embed import ValueCodec

CODEC = ValueCodec(Registry(), allow_pickle=False)
INPUT = ("rows", "default")
AT = EventTime("at", idle_secs=60)
TUMBLING = tumbling(secs=10, key="user", event_time=AT)


class Row:
    """A tuple of task 3, with the fields `user` and `at`."""

    source_task, source_stream = 3, "default"

    def __init__(self, user: Any, at: int) -> None:
        self.values = [user, at]

    def get(self, field: str) -> Any:
        return self.values[0]


class ByUser:
    """Users are their key groups."""

    fields = frozenset(["user"])

    def key_of(self, tup: Any) -> Any:
        return tup.values[0]

    def group_of(self, key: Any) -> int:
        return int(key)


def made(windows: Windows = TUMBLING, *, grouped: bool = False, now_ms: int = 0) -> TaskWindows:
    plan = WindowPlan.read(TopologyOptions.read(windows.conf()))

    def key_of(tup: Any) -> Any:
        return tup.values[0]

    make = partial(make_operator, plan, key_of, None, event_time=True, hold=True, start_ms=0)
    return TaskWindows(
        "clicks",
        plan,
        GroupedWindows(make, ByUser(), event_time=True) if grouped else make(),
        Watermarks([INPUT], idle_ms=plan.idle_ms, now_ms=now_ms),
        Held("user", key_of, None),  # type: ignore[arg-type]
        key_of=key_of,
        contents=None,
        event_time=True,
        now_ms=now_ms,
    )


def fed(windows: TaskWindows, *rows: tuple[Any, int], now_ms: int = 0) -> None:
    events = [(at, Row(user, at)) for user, at in rows]
    windows.held.count += len(events)
    assert windows.held.ids is not None
    windows.held.ids.update(user for user, _ in rows)
    assert list(windows.operator.add(events, now_ms)) == []
    windows.watermarks.track(INPUT, max(at for at, _ in events), now_ms)


def advanced(windows: TaskWindows, now_ms: int) -> list[tuple[Any, int]]:
    """The key and the end of the windows that fire up to the watermark."""
    outputs = windows.operator.advance(windows.watermarks.current_ms, now_ms)
    return [(one.key, one.end_ms) for one in outputs if isinstance(one, Ready)]


def row_of(task: int, stream: str, values: list[Any]) -> Row:
    assert (task, stream) == (3, "default")
    return Row(*values)


def groups_of(windows: TaskWindows) -> list[Any]:
    return [(*one, row_of) for one in windows.changed_groups(CODEC, Row)]


def test_another_task_goes_on_by_its_own_clock() -> None:
    first, second = made(now_ms=1_000), made(now_ms=500)
    fed(first, ("a", 3_000), ("b", 12_000), now_ms=1_000)
    second.restore(first.stored(CODEC, Row, 2_000), CODEC, row_of, 700)
    assert (second.held.count, second.held.ids) == (2, {"a", "b"})
    # Its input was heard of a second before: it is idle 59 seconds later, not before.
    assert second.watermarks.advance(700 + 59_000) is None
    assert second.watermarks.advance(700 + 58_999) == 12_000
    assert advanced(second, 700 + 58_999) == [("a", 10_000)]


def test_tuples_in_several_windows_are_stored_once() -> None:
    windows = made(sliding(secs=10, every_secs=1, key="user", event_time=AT))
    fed(windows, ("a", 3_000), ("a", 3_500))
    ((_, _, rows, _),) = CODEC.decode_rows(windows.stored(CODEC, Row, 0))
    assert rows == [[3, "default", ["a", 3_000]], [3, "default", ["a", 3_500]]]


def test_windows_that_were_not_divided_go_on_as_a_whole() -> None:
    first, second = made(), made(grouped=True)
    fed(first, (1, 3_000))
    assert second.groups is not None
    second.restore(first.stored(CODEC, Row, 0), CODEC, row_of, 0)
    assert second.groups is None
    assert [tup.values for tup in second.operator.held()] == [[1, 3_000]]


def test_groups_go_on_from_the_furthest_watermark() -> None:
    slow, fast, last = made(grouped=True), made(grouped=True), made(grouped=True)
    fed(slow, (1, 3_000))
    fed(fast, (2, 25_000))
    assert fast.watermarks.advance(0) == 25_000
    stored = [*groups_of(slow), *groups_of(fast)]
    last.resume_groups(stored, [one.progress(CODEC, 0) for one in (slow, fast)], CODEC, 0)
    assert last.is_behind
    assert (last.held.count, last.held.ids) == (2, {1, 2})
    assert last.watermarks.current_ms == 25_000
    assert advanced(last, 0) == [(1, 10_000)]


def test_no_group_is_behind_before_there_is_a_watermark() -> None:
    first, second = made(grouped=True), made(grouped=True)
    fed(first, (1, 3_000))
    second.resume_groups(groups_of(first), [first.progress(CODEC, 0)], CODEC, 0)
    assert not second.is_behind
    assert second.held.count == 1


def test_only_groups_that_have_changed_are_stored_again() -> None:
    windows = made(grouped=True)
    fed(windows, (1, 3_000), (2, 3_000))
    assert [(group, owner) for group, owner, *_ in groups_of(windows)] == [(1, 1), (2, 2)]
    fed(windows, (2, 4_000))
    assert [group for group, *_ in groups_of(windows)] == [2]
    assert groups_of(windows) == []


def test_groups_are_refused_by_windows_that_are_not_divided() -> None:
    first = made(grouped=True)
    fed(first, (1, 3_000))
    with pytest.raises(SquallError, match="grouped by fields of the windows' key no longer"):
        made().resume_groups(groups_of(first), [first.progress(CODEC, 0)], CODEC, 0)


def test_other_windows_are_refused() -> None:
    data = made().stored(CODEC, Row, 0)
    with pytest.raises(SquallError, match="the windows of 'clicks' have changed: they were Window"):
        made(tumbling(secs=11, key="user", event_time=AT)).restore(data, CODEC, row_of, 0)


def test_another_format_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(task_windows, "FORMAT", 7)
        data, progress = made().stored(CODEC, Row, 0), made().progress(CODEC, 0)
    with pytest.raises(SquallError, match=r"\(format 7; this one reads 1\)"):
        made().restore(data, CODEC, row_of, 0)
    with pytest.raises(SquallError, match="format 7"):
        made(grouped=True).resume_groups([], [progress], CODEC, 0)


def test_a_value_that_cannot_be_stored_is_named() -> None:
    class Strange:
        pass

    windows = made()
    fed(windows, (Strange(), 3_000))
    with pytest.raises(SquallError, match=r"the windows of 'clicks' hold a value .*Strange"):
        windows.stored(CODEC, Row, 0)
