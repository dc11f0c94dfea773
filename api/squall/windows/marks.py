"""Marks: how far event time has come in the tasks before this one.

The latest timestamp that a task has seen says little where its input comes from several places: the
tasks, files or partitions of a source may be an hour apart, and one task of a step may be behind
another. So a *mark* is made where timestamps become known, for each place that they come from, and
travels with the values: "of this stream I emit nothing more before this time". A task's watermark
is the least mark of the tasks before it.

    Progress     parts of a whole: the least of how far they are, of those that count
    InputMarks   the inputs of a task: each has a `Progress`, whose parts are the tasks before it

A part does not count any more

- once its source has ended. When all have, the furthest counts: nothing more will come;
- once nothing came from it while others went on for the idle timeout. Time in which nothing comes
  from anybody is not silence: it is backpressure, or an outage. One part is never alone silent;
- if nothing ever came from it, after a shorter wait: it may be empty.

Pure: the caller gives them the time, and nothing but calls changes them.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from squall_common.names import MARK_ENDED

IDLE_MS = 30_000
"""How long others go on without a silent part, unless the program says how long."""
UNHEARD_MS = 10_000
"""How long they wait for one from which nothing has come yet, likewise."""

Part = tuple[int, Hashable]
"""A task before this one, and which part of what it emits."""
Input = tuple[str, str]
"""A component and its stream."""


class State(StrEnum):
    """What can be expected of a part."""

    ACTIVE = "active"  # it had something lately
    SILENT = "silent"
    ENDED = MARK_ENDED


class Mark(NamedTuple):
    """What a task says of a stream that it emits; `MARK_FIELDS`."""

    stream: str  # "": of all
    at_ms: int | None  # no value before it will come; None: not known yet
    lag_ms: int  # that was subtracted from timestamps
    state: str


@dataclass(slots=True)
class _Part:
    at_ms: int | None  # None: nothing has come
    seen_ms: int  # by the clock that stands still while nothing comes


class Progress:
    """How far the parts of one whole are. All times are milliseconds."""

    def __init__(
        self, tasks: Collection[int], *, idle_ms: int | None, interval_ms: int, now_ms: int
    ) -> None:
        """`tasks` are those of which it is known that they exist. `idle_ms` None: the defaults.
        `pass_time` is called every `interval_ms`."""
        self._interval_ms = interval_ms
        self._idle_ms = IDLE_MS if idle_ms is None else idle_ms
        self._unheard_ms = UNHEARD_MS if idle_ms is None else idle_ms
        self._parts: dict[Part, _Part] = {}
        self._left: set[int] = set(tasks)  # that have not ended
        self._furthest_ms: int | None = None
        self._heard: set[Part] = set()  # since the last `pass_time`
        self._was_heard = False  # anything, in the time before that
        self._clock_ms = 0
        self._now_ms = now_ms
        for task in tasks:
            self._parts[task, None] = _Part(None, 0)

    def heard(self, part: Part, at_ms: int | None) -> None:
        """Something came from a part, which is that far, at least."""
        task, of = part
        found = self._parts.get(part)
        if found is None:
            found = self._parts[part] = _Part(None, self._clock_ms)
            if of is not None:
                waiting = self._parts.get((task, None))
                if waiting is not None and waiting.at_ms is None:
                    del self._parts[task, None]  # it stood for what this task would have
        self._left.add(task)
        self._heard.add(part)
        self._raise(found, at_ms)

    def told(self, part: Part, at_ms: int | None) -> None:
        """A part that had nothing lately is that far."""
        found = self._parts.get(part)
        if found is not None:
            self._raise(found, at_ms)

    def _raise(self, part: _Part, at_ms: int | None) -> None:
        if at_ms is None:
            return
        if part.at_ms is None or at_ms > part.at_ms:
            part.at_ms = at_ms
        if self._furthest_ms is None or at_ms > self._furthest_ms:
            self._furthest_ms = at_ms

    def end(self, task: int) -> None:
        """Nothing more will come from a task, unless it does."""
        self._left.discard(task)
        for part in [one for one in self._parts if one[0] == task]:
            del self._parts[part]
            self._heard.discard(part)

    def pass_time(self, now_ms: int) -> None:
        """See which parts are silent."""
        passed_ms, self._now_ms = now_ms - self._now_ms, now_ms
        self._was_heard = bool(self._heard)
        if not self._heard:
            return
        # (This process may have stood still while the others went on.)
        self._clock_ms += min(max(0, passed_ms), 2 * self._interval_ms)
        for part in self._heard:
            self._parts[part].seen_ms = self._clock_ms
        self._heard.clear()
        for part, one in list(self._parts.items()):
            limit_ms = self._unheard_ms if one.at_ms is None else self._idle_ms
            if self._clock_ms - one.seen_ms >= limit_ms:
                del self._parts[part]

    @property
    def at_ms(self) -> int | None:
        """How far all are that count; None: one of them has not said yet."""
        if not self._parts:
            return self._furthest_ms
        least_ms: int | None = None
        for part in self._parts.values():
            if part.at_ms is None:
                return None
            if least_ms is None or part.at_ms < least_ms:
                least_ms = part.at_ms
        return least_ms

    @property
    def state(self) -> State:
        if self._heard or self._was_heard:
            return State.ACTIVE
        return State.SILENT if self._left else State.ENDED


class InputMarks:
    """How far the inputs of a task are."""

    def __init__(
        self,
        inputs: Mapping[Input, Collection[int]],
        *,
        idle_ms: int | None,
        interval_ms: int,
        now_ms: int,
        lag_ms: int = 0,
        apart: bool = False,
    ) -> None:
        """`inputs` have the tasks that emit them. `lag_ms` is the lag that this task wants: what
        marks have less of it is subtracted. With `apart`, an input as a whole holds the others up
        while it is silent, unless `idle_ms` says how long, as both sides of a join matter."""
        self._lag_ms = lag_ms
        self._idle_ms = idle_ms if apart else None
        self.lag_ms: int | None = None
        """The least lag of the marks that have come; None: none has."""
        self._whole_of: dict[Input, Progress] = {}
        self._heard_ms: dict[Progress, int] = {}
        groups: Iterable[Iterable[Input]] = [[one] for one in inputs] if apart else [inputs]
        self._streams: dict[str, list[str]] = {}
        for component, stream in inputs:
            self._streams.setdefault(component, []).append(stream)
        for group in groups:
            tasks = sorted({task for one in group for task in inputs[one]})
            whole = Progress(tasks, idle_ms=idle_ms, interval_ms=interval_ms, now_ms=now_ms)
            self._heard_ms[whole] = now_ms
            self._whole_of |= dict.fromkeys(group, whole)

    def told(self, component: str, task: int, mark: Mark, now_ms: int) -> None:
        """A mark has come."""
        streams = [mark.stream] if mark.stream else self._streams.get(component, ())
        for stream in streams:
            whole = self._whole_of.get((component, stream))
            if whole is None:
                continue  # of a stream that only others get
            if self.lag_ms is None or mark.lag_ms < self.lag_ms:
                self.lag_ms = mark.lag_ms
            at_ms = mark.at_ms
            if at_ms is not None:
                at_ms -= max(0, self._lag_ms - mark.lag_ms)
            part = (task, stream)
            if mark.state == State.ACTIVE:
                whole.heard(part, at_ms)
                self._heard_ms[whole] = now_ms
            elif mark.state == State.SILENT:
                whole.told(part, at_ms)
            else:
                whole.heard(part, at_ms)
                whole.end(task)

    def pass_time(self, now_ms: int) -> None:
        """As `Progress.pass_time`."""
        for whole in self._heard_ms:
            whole.pass_time(now_ms)

    def at_ms(self, now_ms: int) -> int | None:
        """How far all are that count; None: not known, or all are silent."""
        counting: list[Progress] = []
        are_ended = True
        for whole, heard_ms in self._heard_ms.items():
            if whole.state is State.ENDED:
                continue
            are_ended = False
            if self._idle_ms is None or heard_ms > now_ms - self._idle_ms:
                counting.append(whole)
        if are_ended:
            found = [whole.at_ms for whole in self._heard_ms]
            return max((one for one in found if one is not None), default=None)
        times = [whole.at_ms for whole in counting]
        if not times or None in times:
            return None
        return min(one for one in times if one is not None)

    @property
    def state(self) -> State:
        states = {whole.state for whole in self._heard_ms}
        for state in (State.ACTIVE, State.SILENT):
            if state in states:
                return state
        return State.ENDED
