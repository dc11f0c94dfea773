"""Windows that are divided by key group: those of one operator for all keys, also when groups move
between tasks."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass
from functools import partial
from typing import Any

import pytest

from squall.windows import EventTime, Windows, session, sliding, tumbling
from squall.windows.evictors import Event
from squall.windows.groups import GroupedWindows, movable
from squall.windows.operators import Late, Operator, Output, Ready, Release, make_operator
from squall.windows.snapshot import dump, load
from squall.windows.spec import WindowPlan
from squall_common.config.options.typed import TopologyOptions
from squall_common.state.key_groups import key_group, task_of_group
from squall_common.topology.serialization import Registry
from squall_engine.embed import ValueCodec

GROUPS = 16
CODEC = ValueCodec(Registry(), allow_pickle=False)
# (The lag is as long as tuples are out of order: behind it, a queue for all keys may end early.)
AT = EventTime("at", lag_secs=0.1)
LATE = EventTime("at", lag_secs=0.1, allowed_lateness_secs=0.03)
KINDS: dict[str, tuple[Windows, bool]] = {  # and whether they aggregate
    "tumbling": (tumbling(secs=0.05, key="key", event_time=AT), False),
    "sliding": (sliding(secs=0.05, every_secs=0.02, key="key", event_time=AT), False),
    "with gaps": (sliding(secs=0.02, every_secs=0.05, key="key", event_time=AT), False),
    "late": (sliding(secs=0.05, every_secs=0.02, key="key", event_time=LATE), False),
    "count": (tumbling(count=4, key="key"), False),
    "count in time": (sliding(count=5, every_count=2, key="key", event_time=AT), False),
    "session": (session(gap_secs=0.02, key="key", event_time=LATE), False),
    "totals": (sliding(secs=0.05, every_secs=0.02, key="key", event_time=AT), True),
    "late totals": (sliding(secs=0.05, every_secs=0.02, key="key", event_time=LATE), True),
    "counted totals": (sliding(count=6, every_count=2, key="key"), True),
    "session totals": (session(gap_secs=0.02, key="key", event_time=AT), True),
}


@dataclass(frozen=True, eq=False)
class Item:
    key: str
    number: int


class Sum:
    def of(self, item: Item) -> int:
        return item.number

    def add(self, total: int, item: Item) -> int:
        return total + item.number

    def merge(self, first: int, second: int) -> int:
        return first + second


class ByKey:
    fields = frozenset(["key"])

    def key_of(self, tup: Item) -> str:
        return tup.key

    def group_of(self, key: Any) -> int:
        return key_group(key, GROUPS)


def key_of(item: Item) -> str:
    return item.key


SUM = Sum()
FIXED = {"key_of": key_of, "contents": SUM}


def plan_of(windows: Windows) -> WindowPlan:
    return WindowPlan.read(TopologyOptions.read(windows.conf()))


def maker(plan: WindowPlan, *, totals: bool) -> Any:
    contents = SUM if totals else None
    in_time = plan.timestamp_field is not None
    return partial(make_operator, plan, key_of, contents, event_time=in_time, hold=True, start_ms=0)


class Found:
    """What comes of windows, for each key in order; and what is late, or is let go of."""

    def __init__(self) -> None:
        self.by_key: dict[str, list[Any]] = {}
        self.gone: Counter[tuple[str, int]] = Counter()

    def take(self, operator: Operator, outputs: Any) -> None:
        output: Output
        for output in outputs:
            if isinstance(output, Ready):
                assert output.error is None
                numbers = [item.number for item in output.tuples]
                shown = (output.start_ms, output.end_ms, numbers, output.total, output.late)
                self.by_key.setdefault(output.key, []).append(shown)
            else:
                assert isinstance(output, Late | Release)
                kind = type(output).__name__
                self.gone.update((kind, item.number) for item in output.tuples)


class Tasks:
    """The tasks of a bolt, whose number changes: what they go on with are the stored groups."""

    def __init__(self, make: Any, count: int, *, in_time: bool) -> None:
        self.make, self.in_time = make, in_time
        self.stored: dict[int, tuple[str, bytes, list[Item]]] = {}
        self.watermark_ms = 0
        self._begin(count)

    def _begin(self, count: int) -> None:
        self.tasks = [
            GroupedWindows(self.make, ByKey(), event_time=self.in_time) for _ in range(count)
        ]

    def task_of(self, key: str) -> GroupedWindows:
        group = key_group(key, GROUPS)
        return self.tasks[task_of_group(group, len(self.tasks), GROUPS)]

    def rescale(self, count: int, now_ms: int, found: Found) -> None:
        for task in self.tasks:
            for group, (owner, operator) in task.changed().items():
                items: list[Item] = []
                data = dump({"operator": operator}, FIXED, CODEC, Item, items)
                self.stored[group] = (str(owner), data, items)
        self._begin(count)
        for group, (owner, data, items) in self.stored.items():
            read = load(data, FIXED, CODEC, items)["operator"]
            self.task_of(owner).resume({group: (owner, read)})
        if self.in_time and self.watermark_ms:
            for task in self.tasks:
                task.resume_at(self.watermark_ms, now_ms)
                found.take(task, task.advance(self.watermark_ms, now_ms))


@pytest.mark.parametrize("kind", list(KINDS))
def test_they_are_those_of_one_operator_also_when_groups_move(kind: str) -> None:
    windows, totals = KINDS[kind]
    plan = plan_of(windows)
    make = maker(plan, totals=totals)
    in_time = plan.timestamp_field is not None
    for seed in range(15):
        chance = random.Random(seed)
        whole, one = make(), Found()
        divided, many = Tasks(make, 2, in_time=in_time), Found()
        number, at_ms = 0, 0
        for _ in range(40):
            if chance.random() < 0.5:
                at_ms += chance.randrange(5, 40)
            events: list[Event] = []
            late: list[Event] = []
            for _ in range(chance.randrange(6)):
                item = Item(chance.choice("abcdefg"), number)
                number += 1
                # (At the very watermark it is left to chance which window a tuple is in.)
                time_ms = max(0, at_ms + chance.randrange(-40, 15))
                if time_ms == divided.watermark_ms:
                    time_ms += 1
                is_late = in_time and time_ms < divided.watermark_ms
                (late if is_late else events).append((time_ms, item))
            one.take(whole, whole.add(events, at_ms))
            for task in divided.tasks:
                mine = [event for event in events if divided.task_of(event[1].key) is task]
                many.take(task, task.add(mine, at_ms))
            for event in late:
                one.take(whole, whole.add_late(event, at_ms))
                task = divided.task_of(event[1].key)
                many.take(task, task.add_late(event, at_ms))
            if in_time and at_ms > divided.watermark_ms and chance.random() < 0.5:
                divided.watermark_ms = at_ms
                one.take(whole, whole.advance(at_ms, at_ms))
                for task in divided.tasks:
                    many.take(task, task.advance(at_ms, at_ms))
            if chance.random() < 0.3:
                divided.rescale(chance.choice((1, 2, 5)), at_ms, many)
        divided.rescale(3, at_ms, many)
        if in_time:
            one.take(whole, whole.advance(at_ms + 1_000, at_ms))
            for task in divided.tasks:
                many.take(task, task.advance(at_ms + 1_000, at_ms))
        assert many.by_key == one.by_key, seed
        assert many.gone == one.gone, seed
        held = sorted(item.number for item in whole.held())
        assert held == sorted(item.number for task in divided.tasks for item in task.held())


def test_a_group_that_was_behind_fires_what_its_new_task_has_fired() -> None:
    plan = plan_of(KINDS["tumbling"][0])
    make = maker(plan, totals=False)
    behind, ahead = (GroupedWindows(make, ByKey(), event_time=True) for _ in range(2))
    found = Found()
    found.take(behind, behind.add([(10, Item("a", 1)), (60, Item("a", 2))], 0))
    found.take(behind, behind.advance(55, 0))
    ahead.resume(behind.changed())
    ahead.resume_at(170, 0)
    found.take(ahead, ahead.advance(170, 0))
    found.take(ahead, ahead.advance(170, 0))
    assert found.by_key["a"] == [(0, 50, [1], None, False), (50, 100, [2], None, False)]


@pytest.mark.parametrize("kind", ["tumbling", "totals", "session"])
def test_windows_of_all_groups_fire_by_their_end(kind: str) -> None:
    windows, totals = KINDS[kind]
    task = GroupedWindows(maker(plan_of(windows), totals=totals), ByKey(), event_time=True)
    events = [(at, Item(key, at)) for at in range(10, 500, 40) for key in "abcdefg"]
    for _ in task.add(events, 0):
        pass
    assert task.count > 3
    ends = [one.end_ms for one in task.advance(1_000, 0) if isinstance(one, Ready)]
    assert len(ends) >= 7 * 10
    assert ends == sorted(ends)


def test_what_comes_for_a_window_that_fired_before_its_group_had_tuples_is_late() -> None:
    for totals in (False, True):
        windows = KINDS["tumbling"][0]
        task = GroupedWindows(maker(plan_of(windows), totals=totals), ByKey(), event_time=True)
        found = Found()
        found.take(task, task.advance(100, 0))
        found.take(task, task.add([(100, Item("a", 1))], 0))
        found.take(task, task.advance(1_000, 0))
        assert found.gone["Late", 1] == 1
        assert not found.by_key


def test_only_groups_that_have_changed_are_stored_again() -> None:
    task = GroupedWindows(
        maker(plan_of(KINDS["tumbling"][0]), totals=False), ByKey(), event_time=True
    )
    for _ in task.add([(10, Item("a", 1)), (110, Item("b", 2))], 0):
        pass
    assert sorted(owner for owner, _ in task.changed().values()) == ["a", "b"]
    assert task.changed() == {}
    for _ in task.advance(60, 0):
        pass
    assert [owner for owner, _ in task.changed().values()] == ["a"]


def test_windows_move_if_their_key_has_all_that_the_input_is_grouped_by() -> None:
    grouping = ByKey()
    assert movable(plan_of(tumbling(count=2, key="key")), grouping)
    assert movable(plan_of(tumbling(count=2, key=["key", "number"])), grouping)
    assert not movable(plan_of(tumbling(count=2, key="number")), grouping)
    assert not movable(plan_of(tumbling(count=2)), grouping)
    assert not movable(plan_of(tumbling(count=2, key="key")), None)
