"""Windows and streams with checkpoints: each value is in its windows once, also after the topology
was ended in the middle, and what fails leaves them as a dead letter."""

from __future__ import annotations

import asyncio
import errno
import itertools
import os
from collections import Counter, defaultdict
from collections.abc import Sequence
from functools import partial
from operator import itemgetter
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from squall import (
    AggregateBolt,
    LocalCluster,
    RowBatch,
    SquallError,
    StreamBuilder,
    TopologyBuilder,
    TransactionalSink,
    WindowedBolt,
)
from squall.testing import ReplayableSpout
from squall.windows import EventTime, Windows, session, sliding, tumbling
from squall_engine.atomic.keys import InputKeys

KEYS = ("ann", "bob", "cleo")
PANE_MS = 1_000
STEP_MS = 10
COUNT = 1_200
END = 10_000_005  # a value at this time fires all windows before it
# (No value is at the very edge of a window.)
ROWS: list[list[Any]] = [[KEYS[i % len(KEYS)], i, i * STEP_MS + 5] for i in range(COUNT)]

written: dict[str, list[tuple[Any, ...]]] = {}
applied: dict[str, int] = {}
poison: set[Any] = set()  # start of windows, or values


@pytest.fixture(autouse=True)
def _clean() -> None:
    written.clear()
    applied.clear()
    poison.clear()


class Event(NamedTuple):
    key: str
    number: int
    at: int

    def is_event(self) -> bool:
        return self.number >= 0


class Events(ReplayableSpout):
    outputs = ["key", "number", "at"]


class Write(TransactionalSink):
    def __init__(self, name: str) -> None:
        self.name = name

    def commit(self, batches: Sequence[RowBatch]) -> None:
        for batch in batches:
            if applied.get(batch.writer, 0) < batch.epoch:
                written.setdefault(self.name, []).extend(map(_plain, batch.rows))
                applied[batch.writer] = batch.epoch


def _plain(row: Sequence[Any]) -> tuple[Any, ...]:
    return tuple(tuple(one) if isinstance(one, list) else one for one in row)


def conf(folder: Path) -> dict[str, Any]:
    return {"topology.checkpoint.interval.secs": 0.05, "topology.state.url": str(folder)}


def rows(count: int) -> list[list[Any]]:
    """The first values; with all of them, what fires the last windows."""
    return ROWS[:count] + ([["end", -1, END]] if count == COUNT else [])


def run(folder: Path, build: Any, done: Any) -> None:
    """Run a topology with the first third of its values, with two, and with all: the sinks' rows
    are those of one run."""
    for count in (COUNT // 3 + 7, 2 * COUNT // 3, COUNT):
        with LocalCluster() as cluster:
            cluster.submit_topology("events", conf(folder), build(rows(count)))
            if count == COUNT:
                cluster.wait_until(done, 60.0)
            else:
                cluster.wait_until(partial(_has_emitted, cluster, count), 60.0)


def _has_emitted(cluster: LocalCluster, count: int) -> bool:
    emitted = cluster.totals("events")["events"]["emitted"]
    at = {COUNT // 3 + 7: count, 2 * COUNT // 3: count - COUNT // 3 - 7}[count]
    return emitted >= at


def add(total: int, event: Event) -> int:
    if event.number in poison:
        raise ValueError(f"poison {event.number}")
    return total + event.number


def plus(first: int, second: int) -> int:
    return first + second


def zero() -> int:
    return 0


def length(events: list[Event]) -> int:
    if events[0].at in poison:
        raise ValueError(f"poison window {events[0].at}")
    return len(events)


async def later(event: Event) -> Event:
    await asyncio.sleep(0)
    return event


def numbers(windowed: Any) -> list[Any]:
    return [windowed.key, windowed.start_ms, sorted(one.number for one in windowed.value)]


def shown(windowed: Any) -> list[Any]:
    return [windowed.key, windowed.start_ms, windowed.value]


def pair(windowed: Any) -> list[Any]:
    return [windowed.key, windowed.value[0].number, windowed.value[1].number]


def stream_topology(given: list[list[Any]]) -> Any:
    """Steps (columns), an async step, keyed state, and windows of each kind."""
    builder = StreamBuilder()
    events = builder.source("events", Events(given), of=Event)
    real = events.event_time(itemgetter(2))
    keyed = real.filter(Event.is_event).key_by(itemgetter(0))
    keyed.aggregate(zero, add).named("fold").to("folds", Write("folds"))
    # (Coroutines may pass each other, so that only the number is known.)
    events.map_async(later).key_by(itemgetter(0)).count().to("async", Write("async"))
    every = tumbling(secs=PANE_MS / 1000)
    windows = real.key_by(itemgetter(0)).window(every)
    windows.count().map(shown).to("counts", Write("counts"), fields=["key", "start", "n"])
    windows.group().map(numbers).to("groups", Write("groups"), fields=["key", "start", "all"])
    windows.aggregate(zero, add, merge=plus).map(shown).to(
        "sums", Write("sums"), fields=["key", "start", "sum"]
    )
    windows.apply(length).named("applied").map(shown).to(
        "lengths", Write("lengths"), fields=["key", "start", "n"]
    )
    same = real.key_by(itemgetter(0))
    same.join(real.filter(is_tenth).key_by(itemgetter(0)), every).map(pair).to(
        "pairs", Write("pairs"), fields=["key", "left", "right"]
    )
    return builder.build()


def is_tenth(event: Event) -> bool:
    return event.number % 10 == 0 or event.number < 0


def by_window() -> dict[tuple[str, int], list[int]]:
    found: dict[tuple[str, int], list[int]] = defaultdict(list)
    for key, number, at in ROWS:
        found[key, at // PANE_MS * PANE_MS].append(number)
    return found


def test_streams_of_all_kinds_are_exactly_once(tmp_path: Path) -> None:
    windows = by_window()
    pairs = [
        (key, left, right)
        for (key, _), values in windows.items()
        for left in values
        for right in values
        if right % 10 == 0
    ]

    def done() -> bool:
        return (
            all(
                len(written.get(name, ())) >= len(windows)
                for name in ("counts", "groups", "sums", "lengths")
            )
            and len(written.get("pairs", ())) >= len(pairs)
            and len(written.get("folds", ())) >= COUNT
            and len(written.get("async", ())) > COUNT
        )

    run(tmp_path, stream_topology, done)
    expected = {
        "counts": [(*window, len(values)) for window, values in windows.items()],
        "groups": [(*window, tuple(values)) for window, values in windows.items()],
        "sums": [(*window, sum(values)) for window, values in windows.items()],
        "lengths": [(*window, len(values)) for window, values in windows.items()],
        "pairs": pairs,
    }
    for name, found in expected.items():
        assert Counter(written[name]) == Counter(found), name
    each = Counter(key for key, _, _ in rows(COUNT))
    assert Counter(written["async"]) == Counter(
        (key, at) for key, total in each.items() for at in range(1, total + 1)
    )
    totals: Counter[str] = Counter()
    folds = []
    for key, number, _ in ROWS:
        totals[key] += number
        folds.append((key, totals[key]))
    assert Counter((key, total) for key, total, *_ in written["folds"]) == Counter(folds)


def test_a_value_that_fails_is_a_dead_letter_and_in_no_window(tmp_path: Path) -> None:
    poison.update({100, 501})

    def build(given: list[list[Any]]) -> Any:
        builder = StreamBuilder()
        events = builder.source("events", Events(given), of=Event)
        windows = events.event_time(itemgetter(2)).key_by(itemgetter(0))
        sums = windows.window(tumbling(secs=PANE_MS / 1000)).aggregate(zero, add, merge=plus)
        sums.named("sums").map(shown).to("write", Write("sums"), fields=["key", "start", "sum"])
        topology = builder.to_topology_builder()
        topology.bolt("letters", Write("letters")).shuffle("sums", stream="__dead_letter")
        return topology.build()

    windows = by_window()
    run(
        tmp_path,
        build,
        lambda: (
            len(written.get("sums", ())) >= len(windows) and len(written.get("letters", ())) >= 2
        ),
    )
    assert Counter(written["sums"]) == Counter(
        (*window, sum(set(values) - poison)) for window, values in windows.items()
    )
    letters = [row[1] for row in written["letters"]]
    assert {values[1][1] for values in letters} == {100, 501}


class Numbers(WindowedBolt):
    """All tuples of each window."""

    outputs = ["key", "end", "numbers"]

    def __init__(self, windows: Windows, *, blocking: bool = False) -> None:
        self.windows = windows
        self.blocking = blocking

    def execute_window(self, window: Any) -> None:
        found = [tup["number"] for tup in window]
        self.emit([window.key, window.end_ms, found])
        if poison & set(found):
            raise ValueError(f"poison among {found}")


AT = EventTime("at")


class Totals(AggregateBolt):
    outputs = ["key", "end", "total"]
    windows = sliding(secs=2, every_secs=1, key="key", event_time=AT)

    def init(self) -> int:
        return 0

    def add(self, total: int, tup: Any) -> int:
        added: int = total + tup["number"]
        return added

    def merge(self, first: int, second: int) -> int:
        return first + second

    def result(self, total: int, window: Any) -> None:
        self.emit([window.key, window.end_ms, total])


WINDOWS = {
    "tumbling": tumbling(secs=1, key="key", event_time=AT),
    "sliding": sliding(secs=2, every_secs=1, key="key", event_time=AT),
    "of a number": tumbling(count=10, key="key", event_time=AT),
    "session": session(gap_secs=0.5, key="key", event_time=AT),
}
# How many of each all rows fire: 12 s of them, 400 of each key. (What fires them is in none.)
TOTALS = {"tumbling": 36, "sliding": 39, "of a number": 120, "session": 3, "totals": 39}


@pytest.mark.parametrize(
    ("blocking", "in_memory"),
    [(False, None), (True, None), (False, 2)],
    ids=["on the loop", "on a thread", "on disk"],
)
@pytest.mark.parametrize("kind", list(WINDOWS))
def test_windows_go_on_where_they_were(
    tmp_path: Path, kind: str, blocking: bool, in_memory: int | None
) -> None:
    """The same windows as in one run without an end in the middle."""
    bound: dict[str, Any] = {}
    if in_memory is not None:
        bound = {
            "topology.bolts.window.tuples.in.memory.max": in_memory,
            "topology.state.backend": "disk",
        }

    def build(given: list[list[Any]]) -> Any:
        builder = TopologyBuilder()
        builder.spout("events", Events(given))
        bolt = Numbers(WINDOWS[kind], blocking=blocking)
        builder.bolt("windows", bolt, conf=bound).fields("events", "key")
        builder.bolt("write", Write("windows")).shuffle("windows")
        return builder.build()

    def enough(count: int) -> bool:
        return len(written.get("windows", ())) >= count

    whole = tmp_path / "whole"
    with LocalCluster() as cluster:
        cluster.submit_topology("events", conf(whole), build(rows(COUNT)))
        cluster.wait_until(partial(enough, TOTALS[kind]), 60.0)
    found = Counter(written.pop("windows"))
    assert found.total() == TOTALS[kind]
    applied.clear()
    run(tmp_path / "parts", build, partial(enough, found.total()))
    assert Counter(written["windows"]) == found


@pytest.mark.parametrize(
    ("call", "number"),
    [("pwrite", errno.ENOSPC), ("pread", errno.EIO)],
    ids=["is full", "cannot be read"],
)
def test_a_disk_that_fails_takes_windows_back_to_the_last_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str, number: int
) -> None:
    """No tuple is at fault: none is a dead letter, none is lost."""
    bound = {"topology.bolts.window.tuples.in.memory.max": 2}
    works, calls = getattr(os, call), itertools.count()

    def fails_after_some(*given: Any) -> Any:
        if next(calls) > 2:
            raise OSError(number, os.strerror(number))
        return works(*given)

    def build() -> Any:
        builder = TopologyBuilder()
        builder.spout("events", Events(rows(COUNT)))
        builder.bolt("windows", Numbers(WINDOWS["tumbling"]), conf=bound).fields("events", "key")
        builder.bolt("write", Write("windows")).shuffle("windows")
        builder.bolt("letters", Write("letters")).shuffle("windows", stream="__dead_letter")
        return builder.build()

    with LocalCluster() as cluster, monkeypatch.context() as patch:
        patch.setattr(os, call, fails_after_some)
        cluster.submit_topology("events", conf(tmp_path), build())
        with pytest.raises(SquallError, match=rf"on disk in /.*\[Errno {number}\]"):
            cluster.wait(60.0)
    windows = by_window()
    with LocalCluster() as cluster:
        cluster.submit_topology("events", conf(tmp_path), build())
        cluster.wait_until(lambda: len(written.get("windows", ())) >= len(windows), 60.0)
    assert Counter(written["windows"]) == Counter(
        (key, start + PANE_MS, tuple(values)) for (key, start), values in windows.items()
    )
    assert not written.get("letters")


@pytest.mark.parametrize("kind", [*WINDOWS, "totals"])
def test_windows_move_with_their_keys_to_other_tasks(tmp_path: Path, kind: str) -> None:
    """2, 5 and 2 tasks: the same windows as of one task in one run."""
    parallel = {COUNT // 3 + 7: 2, 2 * COUNT // 3: 5, COUNT: 2}
    ends = [[f"end{i}", -1, END] for i in range(32)]  # each task gets one
    on_disk = {"topology.bolts.window.tuples.in.memory.max": 2}
    own = on_disk if kind in ("sliding", "session") else {}

    def build(given: list[list[Any]], tasks: int) -> Any:
        builder = TopologyBuilder()
        builder.spout("events", Events(given + ends if len(given) > COUNT else given))
        bolt = Totals() if kind == "totals" else Numbers(WINDOWS[kind])
        builder.bolt("windows", bolt, parallelism=tasks, conf=own).fields("events", "key")
        builder.bolt("write", Write("windows")).shuffle("windows")
        return builder.build()

    def enough(count: int) -> bool:
        return len(written.get("windows", ())) >= count

    with LocalCluster() as cluster:
        cluster.submit_topology("events", conf(tmp_path / "whole"), build(rows(COUNT), 1))
        cluster.wait_until(partial(enough, TOTALS[kind]), 60.0)
    found = Counter(written.pop("windows"))
    assert found.total() == TOTALS[kind]
    applied.clear()

    def rescaled(given: list[list[Any]]) -> Any:
        return build(given, parallel[min(len(given), COUNT)])

    run(tmp_path / "parts", rescaled, partial(enough, found.total()))
    assert Counter(written["windows"]) == found


def test_windows_that_were_stored_whole_go_on_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Checkpoints of before windows by key moved."""

    def build(given: list[list[Any]]) -> Any:
        if len(given) > COUNT // 3 + 7:
            monkeypatch.undo()
        builder = TopologyBuilder()
        builder.spout("events", Events(given))
        builder.bolt("windows", Numbers(WINDOWS["tumbling"])).fields("events", "key")
        builder.bolt("write", Write("windows")).shuffle("windows")
        return builder.build()

    monkeypatch.setattr(InputKeys, "window_grouping", lambda *_: None)
    windows = by_window()
    run(tmp_path, build, lambda: len(written.get("windows", ())) >= len(windows))
    assert Counter(tuple(row[2]) for row in written["windows"]) == Counter(
        tuple(values) for values in windows.values()
    )


def test_windows_without_a_key_keep_their_number_of_tasks(tmp_path: Path) -> None:
    def build(tasks: int, key: Any) -> Any:
        builder = TopologyBuilder()
        builder.spout("events", Events(rows(100)))
        windows = tumbling(secs=1, key=key, event_time=AT)
        bolt = builder.bolt("windows", Numbers(windows), parallelism=tasks)
        bolt.fields("events", "key", "number")
        return builder.build()

    for number, key in enumerate([(), "key"]):  # or by a part of what the input is grouped by
        settings = conf(tmp_path / str(number))
        with LocalCluster() as cluster:
            cluster.submit_topology("events", settings, build(2, key))
            cluster.wait_until(lambda: cluster.totals("events")["events"]["emitted"] >= 100, 60.0)
            cluster.kill_topology("events")
        with LocalCluster() as cluster, pytest.raises(SquallError, match="'windows' has state"):
            cluster.submit_topology("events", settings, build(3, key))


def test_windows_of_inputs_that_are_grouped_in_two_ways_keep_their_number_of_tasks(
    tmp_path: Path,
) -> None:
    """The key group of (a, b) is not that of (b, a): tuples of one window would be in two."""

    def build(tasks: int) -> Any:
        builder = TopologyBuilder()
        for name in ("events", "others"):
            builder.spout(name, Events(rows(100)))
        windows = tumbling(secs=1, key=("key", "number"), event_time=AT)
        bolt = builder.bolt("windows", Numbers(windows), parallelism=tasks)
        bolt.fields("events", "key", "number").fields("others", "number", "key")
        return builder.build()

    with LocalCluster() as cluster:
        cluster.submit_topology("events", conf(tmp_path), build(2))
        cluster.wait_until(lambda: cluster.totals("events")["events"]["emitted"] >= 100, 60.0)
        cluster.kill_topology("events")
    with LocalCluster() as cluster, pytest.raises(SquallError, match="'windows' has state"):
        cluster.submit_topology("events", conf(tmp_path), build(3))


def test_a_window_that_fails_leaves_its_tuples_as_dead_letters(tmp_path: Path) -> None:
    poison.add(303)

    def build(*, letters: bool) -> Any:
        builder = TopologyBuilder()
        builder.spout("events", Events(rows(COUNT)))
        builder.bolt("windows", Numbers(WINDOWS["tumbling"])).fields("events", "key")
        builder.bolt("write", Write("windows")).shuffle("windows")
        if letters:
            builder.bolt("letters", Write("letters")).shuffle("windows", stream="__dead_letter")
        return builder.build()

    with LocalCluster() as cluster:
        cluster.submit_topology("events", conf(tmp_path), build(letters=False))
        with pytest.raises(SquallError, match=r"cannot process a tuple of 'events'.*poison among"):
            cluster.wait(60.0)
    windows = by_window()
    with LocalCluster() as cluster:
        cluster.submit_topology("events", conf(tmp_path), build(letters=True))
        cluster.wait_until(lambda: len(written.get("windows", ())) >= len(windows) - 1, 60.0)
        cluster.wait_until(lambda: len(written.get("letters", ())) > 0, 60.0)
    (bad,) = [values for values in windows.values() if 303 in values]
    assert sorted(row[1][1] for row in written["letters"]) == bad
    good = Counter(tuple(values) for values in windows.values() if values != bad)
    assert Counter(row[2] for row in written["windows"]) == good


def test_windows_that_have_changed_are_refused(tmp_path: Path) -> None:
    def build(windows: Windows) -> Any:
        builder = TopologyBuilder()
        builder.spout("events", Events(rows(100)))
        builder.bolt("windows", Numbers(windows)).fields("events", "key")
        return builder.build()

    with LocalCluster() as cluster:
        cluster.submit_topology("events", conf(tmp_path), build(tumbling(secs=1, event_time=AT)))
        cluster.wait_until(lambda: cluster.totals("events")["events"]["emitted"] >= 100, 60.0)
        cluster.kill_topology("events")
    with LocalCluster() as cluster, pytest.raises(SquallError, match="have changed: they were"):
        cluster.submit_topology("events", conf(tmp_path), build(tumbling(secs=2, event_time=AT)))


def test_windows_keep_their_tuples_when_other_tasks_are_numbered_anew(tmp_path: Path) -> None:
    """A rescaling, or a new component, gives the sources of the tuples in windows other numbers."""
    parallel = {COUNT // 3 + 7: 3, 2 * COUNT // 3: 1, COUNT: 2}

    def build(given: list[list[Any]]) -> Any:
        tasks = parallel[min(len(given), COUNT)]
        builder = TopologyBuilder()
        builder.spout("events", Events(given), parallelism=tasks)
        # Its tasks come before those of 'events'.
        builder.bolt("copies", Write("copies"), parallelism=tasks).shuffle("events")
        builder.bolt("windows", Numbers(WINDOWS["tumbling"])).fields("events", "key")
        builder.bolt("write", Write("windows")).shuffle("windows")
        return builder.build()

    windows = by_window()
    run(tmp_path, build, lambda: len(written.get("windows", ())) >= len(windows))
    assert Counter(tuple(row[2]) for row in written["windows"]) == Counter(
        tuple(values) for values in windows.values()
    )


def test_windows_with_tuples_of_a_component_that_is_gone_are_refused(tmp_path: Path) -> None:
    def build(source: str) -> Any:
        builder = TopologyBuilder()
        builder.spout(source, Events(rows(100)))
        builder.bolt("windows", Numbers(WINDOWS["tumbling"])).fields(source, "key")
        return builder.build()

    settings = {
        **conf(tmp_path),
        "topology.checkpoint.allow.non.restored.state": True,
    }
    with LocalCluster() as cluster:
        cluster.submit_topology("events", settings, build("events"))
        cluster.wait_until(lambda: cluster.totals("events")["events"]["emitted"] >= 100, 60.0)
        cluster.kill_topology("events")
    with LocalCluster() as cluster, pytest.raises(SquallError, match="hold tuples of 'events'"):
        cluster.submit_topology("events", settings, build("others"))
