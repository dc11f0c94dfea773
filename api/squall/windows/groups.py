"""Windows by key, divided by key group, so that they move with the keys of their task.

With checkpoints, the tuples of a key group come to one task, and with another number of tasks the
whole group comes to another one. So the windows of each group are an `Operator` of their own, and
are stored as an entry of state that belongs to the group: a snapshot has the groups in which
something has changed. The windows of one key are what they would be in one operator for all keys.
When time advances over several windows, those of all groups fire by their end, as in one operator:
a bolt that takes the time of its own windows from the results would have late ones otherwise.

The watermark is the task's. A group that comes from a task whose watermark was behind fires the
windows in between with the next call (`advance`).
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Generator, Hashable, Iterable, Iterator, Mapping
from itertools import chain
from typing import Any, Protocol

from squall.windows.evictors import Event
from squall.windows.operators import Operator, Output, Ready, Release
from squall.windows.spec import WindowPlan


class Grouping(Protocol):
    """How the input of a bolt is grouped. (`squall_engine.atomic.windows.WindowGrouping`)"""

    @property
    def fields(self) -> frozenset[str]:
        """The fields of all its groupings."""
        ...

    def key_of(self, tup: Any) -> Hashable:
        """The values of these fields."""
        ...

    def group_of(self, key: Hashable) -> int:
        """The key group of these values."""
        ...


def movable(plan: WindowPlan, grouping: Grouping | None) -> bool:
    """Whether each window has tuples of one key group only, so that it can move with the group:
    what the input is grouped by is part of the key of the windows."""
    return grouping is not None and bool(plan.key) and grouping.fields <= set(plan.key)


class GroupedWindows:
    """An `Operator`: one for each key group that has had a tuple."""

    def __init__(
        self, make: Callable[[], Operator], grouping: Grouping, *, event_time: bool
    ) -> None:
        self.make = make
        """Makes the windows of one group, or of all."""
        self._grouping = grouping
        self._event_time = event_time
        self._groups: dict[int, Operator] = {}
        self._owners: dict[int, Hashable] = {}  # a key of each group
        self._dirty: set[int] = set()
        self._advanced: tuple[int, int] | None = None  # the last call of `advance`
        self._firing: Operator | None = None

    @property
    def count(self) -> int:
        """How many key groups have windows."""
        return len(self._groups)

    # -- as `Operator` --

    def add(self, events: list[Event], now_ms: int) -> Iterator[Output]:
        for group, mine in self._divided(events, now_ms).items():
            yield from self._changes(group, self._groups[group].add(mine, now_ms))

    def add_late(self, event: Event, now_ms: int) -> Iterator[Output]:
        for group in self._divided([event], now_ms):
            yield from self._changes(group, self._groups[group].add_late(event, now_ms))

    def advance(self, time_ms: int, now_ms: int) -> Iterator[Output]:
        self._advanced = (time_ms, now_ms)
        # The next window of each group, by its end: a heap. (No two groups have the same place.)
        due: list[tuple[int, int, Ready, int, Iterator[Output]]] = []
        for at, (group, one) in enumerate(self._groups.items()):
            if not self._event_time and any(True for _ in one.held()):
                self._dirty.add(group)  # how late the clock was is part of what is stored
            outputs = one.advance(time_ms, now_ms)
            ready = yield from self._to_next_window(group, outputs)
            if ready is not None:
                heapq.heappush(due, (ready.end_ms, at, ready, group, outputs))
                yield Release([])  # all begin before a window fires; one may stop in between
        while due:
            end_ms, at, ready, group, outputs = due[0]
            self._firing = self._groups[group]
            yield ready
            for output in outputs:  # (of a group that is dirty by now)
                if isinstance(output, Ready) and output.end_ms > end_ms:
                    heapq.heapreplace(due, (output.end_ms, at, output, group, outputs))
                    break
                yield output
            else:
                heapq.heappop(due)

    def _to_next_window(
        self, group: int, outputs: Iterator[Output]
    ) -> Generator[Output, None, Ready | None]:
        """The outputs of a group before its next window, which is returned; None: it has none."""
        for output in outputs:
            self._dirty.add(group)
            if isinstance(output, Ready):
                return output
            yield output
        return None

    def discard(self, ready: Ready) -> None:
        assert self._firing is not None
        self._firing.discard(ready)

    def held(self) -> Iterable[Any]:
        return chain.from_iterable(one.held() for one in self._groups.values())

    @property
    def keys(self) -> int | None:
        found = 0
        for one in list(self._groups.values()):  # a copy: a thread may be adding a group
            if (keys := one.keys) is None:
                return None
            found += keys
        return found

    @property
    def next_ms(self) -> int | None:
        times = [one.next_ms for one in self._groups.values()]
        return min((at_ms for at_ms in times if at_ms is not None), default=None)

    def skip_to(self, watermark_ms: int) -> None:
        for one in self._groups.values():
            one.skip_to(watermark_ms)

    def _divided(self, events: list[Event], now_ms: int) -> dict[int, list[Event]]:
        grouping = self._grouping
        found: dict[int, list[Event]] = {}
        groups: dict[Hashable, int] = {}  # batches have few keys, and a hash takes long
        for event in events:
            key = grouping.key_of(event[1])
            group = groups.get(key)
            if group is None:
                group = groups[key] = grouping.group_of(key)
                self._owners.setdefault(group, key)
                if group not in self._groups:
                    self._groups[group] = self._begun(now_ms)
            found.setdefault(group, []).append(event)
        return found

    def _begun(self, now_ms: int) -> Operator:
        """The windows of a group that has had no tuple: as far as those of the others."""
        made = self.make()
        if self._advanced is not None:
            for _ in made.advance(*self._advanced):
                raise AssertionError("empty windows have fired")
            if self._event_time:
                made.skip_to(self._advanced[0])
        return made

    def _changes(self, group: int, outputs: Iterator[Output]) -> Iterator[Output]:
        self._dirty.add(group)
        return self._running(self._groups[group], outputs)

    def _running(self, one: Operator, outputs: Iterator[Output]) -> Iterator[Output]:
        for output in outputs:
            self._firing = one
            yield output

    # -- for snapshots --

    def changed(self) -> dict[int, tuple[Hashable, Operator]]:
        """The groups that have changed since the last call, with a key of each."""
        dirty, self._dirty = self._dirty, set()
        return {group: (self._owners[group], self._groups[group]) for group in sorted(dirty)}

    def resume(self, groups: Mapping[int, tuple[Hashable, Operator]]) -> None:
        """Go on with the windows of these groups, as other tasks have stored them."""
        for group, (owner, one) in groups.items():
            self._owners[group] = owner
            self._groups[group] = one

    def resume_at(self, watermark_ms: int, now_ms: int) -> None:
        """Go on from this watermark: groups without windows are that far."""
        self._advanced = (watermark_ms, now_ms)
