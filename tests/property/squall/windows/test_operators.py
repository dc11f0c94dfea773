"""Random windows against a slow and obvious reference: 10,000 cases for each commit.

A case is a kind of windows with random lengths, and random tuples between random watermarks or
times of the clock: out of order, late, with equal timestamps and with gaps. The reference keeps
everything that ever came, and computes each window from its definition.
"""

from __future__ import annotations

import hashlib
import json
import random
import subprocess
from collections.abc import Callable, Hashable, Iterator, Sequence
from operator import itemgetter
from pathlib import Path
from typing import Any

import pytest
from tests.support.effort import SOAK, examples
from tests.support.thirdparty import beam_python

from squall.windows.operators import Late, Operator, Ready, Refused, Release, make_operator
from squall.windows.spec import WindowPlan
from squall_common.config.options.typed import TopologyOptions

Item = tuple[str, int]  # key, number
Window = tuple[Hashable, tuple[int, ...], int | None]  # key, numbers, end

_BLOCK = 250  # cases in a test


class Bags:
    """Totals from which one can see what was added: sorted numbers."""

    def of(self, item: Item) -> tuple[int, ...]:
        return (item[1],)

    def add(self, contents: tuple[int, ...], item: Item) -> tuple[int, ...]:
        return (*contents, item[1])

    def merge(self, first: tuple[int, ...], second: tuple[int, ...]) -> tuple[int, ...]:
        return first + second


def plan(**conf: int) -> WindowPlan:
    keys = {
        "length_count": "window.length.count",
        "length_ms": "window.length.duration.ms",
        "slide_count": "window.sliding.interval.count",
        "slide_ms": "window.sliding.interval.duration.ms",
        "gap_ms": "window.session.gap.ms",
        "lateness_ms": "window.allowed.lateness.ms",
        "lag_ms": "tuple.timestamp.max.lag.ms",
    }
    options: dict[str, Any] = {f"topology.bolts.{keys[name]}": v for name, v in conf.items()}
    options["topology.bolts.window.key.fields"] = ["key"]
    return WindowPlan.read(TopologyOptions.read(options))


class Run:
    """An operator, and what came of it."""

    def __init__(self, windows: WindowPlan, *, aggregate: bool, event_time: bool) -> None:
        self.aggregate = aggregate
        self.operator: Operator = make_operator(
            windows,
            lambda item: item[0],
            Bags() if aggregate else None,
            event_time=event_time,
            hold=True,
            start_ms=0,
        )
        self.came: list[Item] = []
        self.gone: list[Item] = []
        self.late: list[int] = []

    def take(self, outputs: Iterator[Any]) -> list[Window]:
        windows = []
        for output in outputs:
            if isinstance(output, Ready):
                held = tuple(sorted(number for _, number in output.tuples))
                total = tuple(sorted(output.total)) if self.aggregate else held
                assert held == total  # what a window is anchored to is what it holds
                windows.append((output.key, total, output.end_ms))
            else:
                assert isinstance(output, Release | Late)
                self.gone += output.tuples
                if isinstance(output, Late):
                    self.late += [number for _, number in output.tuples]
        return sorted(windows, key=repr)

    def validate(self) -> None:
        """Each tuple is held, released or late, and only once."""
        held = sorted(self.operator.held())
        assert sorted([*held, *self.gone]) == sorted(self.came)


# -- time --


def events_of(known: list[tuple[int, Item]], key: str, start: int, end: int) -> tuple[int, ...]:
    return tuple(
        sorted(number for at, (mine, number) in known if mine == key and start < at <= end)
    )


def event_time_case(chance: random.Random) -> None:
    slide = chance.randrange(1, 12)
    length = slide * chance.randrange(1, 5) if chance.random() < 0.6 else chance.randrange(1, 40)
    lateness = chance.choice([0, 0, chance.randrange(1, 40)])
    if lateness and length < slide:
        length = slide
    conf = {"length_ms": length, "slide_ms": slide, "lateness_ms": lateness, "lag_ms": 10**6}
    runs = [Run(plan(**conf), aggregate=a, event_time=True) for a in (False, True)]
    known: list[tuple[int, Item]] = []
    watermark = fired = 0
    base = chance.randrange(1, 50)
    for number in range(chance.randrange(1, 40)):
        if chance.random() < 0.7:
            at = max(1, base + int(chance.expovariate(0.1)) - chance.randrange(30))
            key = chance.choice("ab")
            if at == watermark and not lateness:
                continue  # an edge of Storm's, which is in the table of test_manager
            late = at < watermark or (lateness > 0 and 0 < at <= watermark)
            too_late = late and at < watermark - lateness
            item = (key, number)
            expected: list[Window] = []
            if not too_late and (not late or lateness):
                known.append((at, item))
            if late and not too_late and lateness:
                first = -(-at // slide) * slide
                ends = [e for e in range(first, watermark + 1, slide) if e - length < at]
                expected = [(key, events_of(known, key, e - length, e), e) for e in ends]
            for run in runs:
                run.came.append(item)
                operator = run.operator
                added = operator.add_late((at, item), 0) if late else operator.add([(at, item)], 0)
                assert run.take(added) == sorted(expected, key=repr)
                assert (number in run.late) == (late and (too_late or not lateness))
        else:
            base += chance.choice([0, 3, 17, 200])
            if base <= watermark:
                continue
            watermark = base
            expected = [
                (key, found, end)
                for end in range(fired + slide, watermark + 1, slide)
                for key in "ab"
                if (found := events_of(known, key, end - length, end))
            ]
            fired = watermark // slide * slide
            for run in runs:
                found_windows = run.take(run.operator.advance(watermark, 0))
                assert found_windows == sorted(expected, key=repr)
        for run in runs:
            run.validate()


def clock_case(chance: random.Random) -> None:
    """By an exact clock. (What a late clock does is in the table of test_manager.)"""
    slide = chance.randrange(1, 10)
    length = slide * chance.randrange(1, 5)
    conf = {"length_ms": length, "slide_ms": slide}
    runs = [Run(plan(**conf), aggregate=a, event_time=False) for a in (False, True)]
    known: list[tuple[int, Item]] = []
    number = 0
    for now in range(1, chance.randrange(2, 80)):
        # The timer may ring before or after tuples of its millisecond.
        for _ in range(chance.choice([0, 0, 1, 2])):
            number += 1
            item = (chance.choice("ab"), number)
            known.append((now, item))
            for run in runs:
                run.came.append(item)
                assert run.take(run.operator.add([(now, item)], now)) == []
        if now % slide:
            continue
        end = now - 1
        start = end - length
        expected = sorted(
            ((key, found, end) for key in "ab" if (found := events_of(known, key, start, end))),
            key=repr,
        )
        for run in runs:
            assert run.take(run.operator.advance(now, now)) == expected
            run.validate()


# -- count --


def count_case(chance: random.Random) -> None:
    length, slide = chance.randrange(1, 12), chance.randrange(1, 8)
    conf = {"length_count": length, "slide_count": slide}
    runs = [Run(plan(**conf), aggregate=a, event_time=False) for a in (False, True)]
    known: dict[str, list[int]] = {"a": [], "b": []}
    for number in range(chance.randrange(1, 80)):
        key = chance.choice("ab")
        known[key].append(number)
        expected: list[Window] = []
        if len(known[key]) % slide == 0:
            expected = [(key, tuple(known[key][-length:]), 0)]
        for run in runs:
            run.came.append((key, number))
            assert run.take(run.operator.add([(0, (key, number))], 0)) == expected
            run.validate()


def counts_in_event_time_case(chance: random.Random) -> None:
    """The last tuples up to each end of a window."""
    length, slide = chance.randrange(1, 8), chance.randrange(1, 10)
    run = Run(plan(length_count=length, slide_ms=slide), aggregate=False, event_time=True)
    known: list[tuple[int, int]] = []
    watermark, fired = 0, 0
    for number in range(chance.randrange(1, 40)):
        if chance.random() < 0.6:
            at = watermark + chance.randrange(1, 30)
            known.append((at, number))
            run.came.append(("a", number))
            assert run.take(run.operator.add([(at, ("a", number))], 0)) == []
        else:
            watermark += chance.randrange(1, 25)
            expected = []
            for end in range(fired + slide, watermark + 1, slide):
                found = [one for at, one in known if at <= end][-length:]
                if found:
                    expected.append(("a", tuple(sorted(found)), end))
                    fired = end
            found_windows = run.take(run.operator.advance(watermark, 0))
            assert found_windows == sorted(expected, key=repr)
            run.validate()


# -- sessions --


class SlowSessions:
    """Everything that came, put into sessions anew each time."""

    def __init__(self, gap: int, lateness: int) -> None:
        self.gap, self.lateness = gap, lateness
        self.events: list[tuple[int, int]] = []  # that are in a session still
        self.fired: set[tuple[int, tuple[int, ...]]] = set()

    def sessions(self, events: list[tuple[int, int]]) -> list[list[tuple[int, int]]]:
        found: list[list[tuple[int, int]]] = []
        for event in sorted(events):
            if found and event[0] < found[-1][-1][0] + self.gap:
                found[-1].append(event)
            else:
                found.append([event])
        return found

    def end(self, session: list[tuple[int, int]]) -> int:
        return session[-1][0] + self.gap

    def window(self, session: list[tuple[int, int]]) -> tuple[int, tuple[int, ...]]:
        return self.end(session), tuple(sorted(number for _, number in session))

    def add(self, event: tuple[int, int], now: int) -> tuple[bool, list[Any]]:
        """Whether it is late, and what fires."""
        mine = next(one for one in self.sessions([*self.events, event]) if event in one)
        if self.end(mine) + self.lateness <= now:
            return True, []
        self.events.append(event)
        if self.end(mine) > now:
            return False, []
        self.fired.add(self.window(mine))
        return False, [self.window(mine)]

    def advance(self, now: int) -> list[Any]:
        fires = []
        for session in self.sessions(self.events):
            window = self.window(session)
            if window[0] <= now and window not in self.fired:
                self.fired.add(window)
                fires.append(window)
            if window[0] + self.lateness <= now:
                self.events = [event for event in self.events if event not in session]
        return fires


def session_case(chance: random.Random) -> None:
    gap, lateness = chance.randrange(1, 15), chance.choice([0, 0, chance.randrange(1, 30)])
    conf = {"gap_ms": gap, "lateness_ms": lateness}
    runs = [Run(plan(**conf), aggregate=a, event_time=True) for a in (False, True)]
    slow = {key: SlowSessions(gap, lateness) for key in "ab"}
    now, base = 0, 1
    for number in range(chance.randrange(1, 50)):
        expected: list[Window] = []
        if chance.random() < 0.75:
            base += chance.choice([0, 1, 2, 10])
            at, key = max(0, base + chance.randrange(-25, 10)), chance.choice("ab")
            late, fires = slow[key].add((at, number), now)
            expected = [(key, numbers, end) for end, numbers in fires]
            for run in runs:
                run.came.append((key, number))
                found = run.take(run.operator.add([(at, (key, number))], 0))
                assert found == expected
                assert (number in run.late) == late
        else:
            now = max(now, base - chance.randrange(10))
            for key, one in slow.items():
                expected += [(key, numbers, end) for end, numbers in one.advance(now)]
            for run in runs:
                assert run.take(run.operator.advance(now, 0)) == sorted(expected, key=repr)
        for run in runs:
            run.validate()


CASES: list[tuple[Callable[[random.Random], None], int]] = [
    (event_time_case, 4000),
    (session_case, 2500),
    (clock_case, 1000),
    (count_case, 1500),
    (counts_in_event_time_case, 1000),
]
BLOCKS = [
    pytest.param(case, block, id=f"{case.__name__}-{block}")
    for case, count in CASES
    for block in range(examples(count) // _BLOCK)
]


@pytest.mark.parametrize(("case", "block"), BLOCKS)
def test_random_windows_are_those_of_the_reference(
    case: Callable[[random.Random], None], block: int
) -> None:
    for seed in range(block * _BLOCK, (block + 1) * _BLOCK):
        try:
            case(random.Random(seed))
        except AssertionError as error:
            raise AssertionError(f"{case.__name__}, seed {seed}: {error}") from error


# -- Apache Beam --


def beam_case(chance: random.Random) -> dict[str, Any]:
    """Windows that Beam has as well: [start, end) there, (start, end] here, one millisecond on."""
    slide = chance.randrange(1, 12)
    kind = chance.choice(["fixed", "sliding", "sessions"])
    lengths = {"fixed": [slide], "sliding": [slide * chance.randrange(1, 5), slide]}
    steps: list[list[Any]] = []
    now, base = 0, 10
    for number in range(chance.randrange(1, 40)):
        if chance.random() < 0.75:
            base += chance.choice([0, 1, 3, 20])
            steps.append(["add", max(1, base + chance.randrange(-40, 10)), number])
        elif (following := base - chance.randrange(10)) > now:
            now = following
            steps.append(["watermark", now])
    return {"windows": [kind, *lengths.get(kind, [slide])], "steps": steps}


def panes_here(case: dict[str, Any], *, aggregate: bool) -> list[list[Any]]:
    kind, *lengths = case["windows"]
    if kind == "sessions":
        run = Run(plan(gap_ms=lengths[0], lateness_ms=10**9), aggregate=aggregate, event_time=True)
        shift = 0
    else:
        conf = {"length_ms": lengths[0], "slide_ms": lengths[-1], "lateness_ms": 10**9}
        run = Run(plan(**conf, lag_ms=10**6), aggregate=aggregate, event_time=True)
        shift = 1
    found, watermark = [], 0
    for what, at, *number in case["steps"]:
        if what == "watermark":
            watermark = at
            windows = run.take(run.operator.advance(at, 0))
        else:
            event = (at + shift, ("k", number[0]))
            run.came.append(event[1])
            if shift and 0 < event[0] <= watermark:
                windows = run.take(run.operator.add_late(event, 0))
            else:
                windows = run.take(run.operator.add([event], 0))
        found.append(sorted([[end, sorted(numbers)] for _, numbers, end in windows], key=repr))
    run.validate()
    return found


_BEAM_CASES = 10_000
_BEAM_BLOCK = 20  # cases with one digest
# Of Beam's answers, one line for each block of cases, in the order of the seeds. With answers of
# another version of Beam, the test of its driver shows which cases differ.
_BEAM_DIGESTS = Path(__file__).parent / "fixtures" / "beam_2.77.0.txt"


def digests(answers: Sequence[Any]) -> list[str]:
    """Of the panes of each step of each case, block by block."""
    blocks = [answers[first : first + _BEAM_BLOCK] for first in range(0, len(answers), _BEAM_BLOCK)]
    return [hashlib.sha256(json.dumps(block).encode()).hexdigest()[:16] for block in blocks]


def test_random_windows_are_what_apache_beam_answered() -> None:
    """Its driver answered once, and `make soak` asks it again."""
    recorded = _BEAM_DIGESTS.read_text().split()
    assert len(recorded) == _BEAM_CASES // _BEAM_BLOCK
    cases = [beam_case(random.Random(seed)) for seed in range(_BEAM_CASES)]
    for aggregate in (False, True):
        found = digests([panes_here(case, aggregate=aggregate) for case in cases])
        differ = [
            f"{block * _BEAM_BLOCK} to {(block + 1) * _BEAM_BLOCK - 1}"
            for block, (mine, theirs) in enumerate(zip(found, recorded, strict=True))
            if mine != theirs
        ]
        assert not differ, f"aggregate={aggregate}: others than Beam's for a seed of {differ}"


@pytest.mark.skipif(not SOAK, reason="make soak: installing Apache Beam takes minutes")
def test_random_windows_are_those_of_beams_own_trigger_driver() -> None:
    cases = [beam_case(random.Random(seed)) for seed in range(_BEAM_CASES)]
    program = Path(__file__).parent / "beam_panes.py"
    done = subprocess.run(
        [beam_python(), program],
        input=json.dumps(cases),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    answers = json.loads(done.stdout)
    assert sum(len(panes) for steps in answers for panes in steps) > 50_000
    theirs = [
        [sorted([pane[1:] for pane in panes], key=repr) for panes in steps] for steps in answers
    ]
    for seed, (case, expected) in enumerate(zip(cases, theirs, strict=True)):
        for aggregate in (False, True):
            assert panes_here(case, aggregate=aggregate) == expected, (seed, aggregate, case)
    assert digests(theirs) == _BEAM_DIGESTS.read_text().split()


# -- batches --

REFUSED = 13  # numbers that are multiples of it, where contents look at each tuple


class OneByOne(Bags):
    """Totals that look at each tuple, and refuse some."""

    def of(self, item: Item) -> tuple[int, ...]:
        return self.add((), item)

    def add(self, contents: tuple[int, ...], item: Item) -> tuple[int, ...]:
        if item[1] % REFUSED == 0:
            raise ValueError(f"{item} cannot be added")
        return super().add(contents, item)


class Bulk(Bags):
    """Totals that are made of many tuples at once."""

    def of_all(self, items: Sequence[Item]) -> tuple[int, ...]:
        return tuple(number for _, number in items)

    def extend(self, contents: tuple[int, ...], items: Sequence[Item]) -> tuple[int, ...]:
        return contents + self.of_all(items)


class BatchRun:
    """An operator, and what came of it: of each key in order."""

    def __init__(self, windows: WindowPlan, contents: Any, *, hold: bool) -> None:
        self.operator: Operator = make_operator(
            windows, itemgetter(0), contents, event_time=True, hold=hold, start_ms=0
        )
        self.fired: dict[Hashable, list[Any]] = {}
        self.gone: dict[str, list[int]] = {"Late": [], "Refused": [], "Release": []}

    def take(self, outputs: Iterator[Any]) -> None:
        for output in outputs:
            name = type(output).__name__
            if isinstance(output, Ready):
                window = output.total, output.tuples, output.start_ms, output.end_ms, output.late
                self.fired.setdefault(output.key, []).append(window)
            elif isinstance(output, Refused):
                self.gone[name].append(output.tup[1])
            else:
                self.gone[name] += [number for _, number in output.tuples]

    def seen(self) -> Any:
        gone = {name: sorted(numbers) for name, numbers in self.gone.items()}
        return self.fired, gone, sorted(self.operator.held())


def batches_plan(chance: random.Random) -> WindowPlan:
    conf: dict[str, Any] = {"topology.bolts.window.key.fields": ["key"]}
    prefix = "topology.bolts.window."
    if chance.random() < 0.5:
        conf[f"{prefix}session.gap.ms"] = chance.randrange(1, 15)
    else:
        conf[f"{prefix}length.duration.ms"] = chance.randrange(1, 30)
        conf[f"{prefix}sliding.interval.duration.ms"] = chance.randrange(1, 30)
    conf[f"{prefix}allowed.lateness.ms"] = chance.choice([0, 0, chance.randrange(1, 30)])
    return WindowPlan.read(TopologyOptions.read(conf))


@pytest.mark.parametrize("contents", [OneByOne(), Bulk(), None], ids=["one", "bulk", "tuples"])
@pytest.mark.parametrize("hold", [True, False])
def test_a_batch_is_what_its_tuples_are_one_by_one(contents: Any, hold: bool) -> None:
    """What fires of each key, in order, and what is late, refused, released and held."""
    late = refused = fired = 0
    for seed in range(300):
        chance = random.Random(seed)
        windows = batches_plan(chance)
        if contents is None and windows.gap_ms is None:
            continue  # the queue of these windows takes batches as they are
        batch, single = (BatchRun(windows, contents, hold=hold) for _ in range(2))
        base, watermark, number = 30, 0, 0
        for _ in range(chance.randrange(2, 12)):
            events = []
            for _ in range(chance.randrange(1, 12)):
                number += 1
                at = base + chance.randrange(-10, 10)
                if windows.gap_ms is None:  # (sessions decide by themselves what is late)
                    at = max(at, watermark)
                events.append((at, (chance.choice("ab"), number)))
            batch.take(batch.operator.add(events, 0))
            for event in events:
                single.take(single.operator.add([event], 0))
            assert batch.seen() == single.seen(), seed
            base += chance.randrange(12)
            watermark = max(watermark, base - chance.randrange(10))
            for run in (batch, single):
                run.take(run.operator.advance(watermark, 0))
            assert batch.seen() == single.seen(), seed
        late += len(batch.gone[Late.__name__])
        refused += len(batch.gone[Refused.__name__])
        fired += len(batch.fired)
    assert fired
    assert late
    assert bool(refused) == isinstance(contents, OneByOne)
