"""Tuples that come in one batch make the windows that they make one after the other."""

from __future__ import annotations

import random
from collections.abc import Hashable, Iterator, Sequence
from typing import Any

import pytest

from squall.windows.operators import Late, Operator, Ready, Refused, make_operator
from squall.windows.spec import WindowPlan
from squall_common.config.options.typed import TopologyOptions

Item = tuple[str, int]  # key, number
REFUSED = 13  # numbers that are multiples of it, where contents look at each tuple


class OneByOne:
    """Totals that look at each tuple: its numbers, in the order in which they were added."""

    def of(self, item: Item) -> tuple[int, ...]:
        return self.add((), item)

    def add(self, contents: tuple[int, ...], item: Item) -> tuple[int, ...]:
        if item[1] % REFUSED == 0:
            raise ValueError(f"{item} cannot be added")
        return (*contents, item[1])

    def merge(self, first: tuple[int, ...], second: tuple[int, ...]) -> tuple[int, ...]:
        return first + second


class Bulk:
    """Totals that are made of many tuples at once."""

    def of(self, item: Item) -> tuple[int, ...]:
        return (item[1],)

    def of_all(self, items: Sequence[Item]) -> tuple[int, ...]:
        return tuple(number for _, number in items)

    def add(self, contents: tuple[int, ...], item: Item) -> tuple[int, ...]:
        return (*contents, item[1])

    def extend(self, contents: tuple[int, ...], items: Sequence[Item]) -> tuple[int, ...]:
        return contents + self.of_all(items)

    def merge(self, first: tuple[int, ...], second: tuple[int, ...]) -> tuple[int, ...]:
        return first + second


def key_of(item: Item) -> str:
    return item[0]


class Run:
    """An operator, and what came of it: of each key in order."""

    def __init__(self, plan: WindowPlan, contents: Any, *, hold: bool) -> None:
        self.operator: Operator = make_operator(
            plan, key_of, contents, event_time=True, hold=hold, start_ms=0
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


def plan_of(chance: random.Random) -> WindowPlan:
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
    late = refused = fired = 0
    for seed in range(300):
        chance = random.Random(seed)
        plan = plan_of(chance)
        if contents is None and plan.gap_ms is None:
            continue  # the queue of these windows takes batches as they are
        batch, single = (Run(plan, contents, hold=hold) for _ in range(2))
        base, watermark, number = 30, 0, 0
        for _ in range(chance.randrange(2, 12)):
            events = []
            for _ in range(chance.randrange(1, 12)):
                number += 1
                at = base + chance.randrange(-10, 10)
                if plan.gap_ms is None:  # (sessions decide by themselves what is late)
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
