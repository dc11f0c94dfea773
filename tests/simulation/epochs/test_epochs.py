"""Epochs keep everything once, and each of their rules is needed."""

from __future__ import annotations

from collections import Counter

import pytest
from tests.simulation.epochs.rules import Rule
from tests.simulation.epochs.world import Violation, World
from tests.support.effort import SOAK

SEEDS = range(20_000) if SOAK else range(150)
# Seeds that have noticed a broken rule are tried first, then so many others.
NOTICED_BY = {Rule.RAISE_THEN_READ: 160, Rule.PINNED: 63, Rule.HALT: 60}
SEEDS_MAX = 1_000


def test_nothing_is_lost_doubled_or_invented() -> None:
    events: Counter[str] = Counter()
    for seed in SEEDS:
        try:
            events += World(seed).run()
        except Violation as violation:
            pytest.fail(f"seed {seed}: {violation}")
    # A model in which nothing happens proves nothing.
    for event in ("epochs", "crashes", "zombies", "given up", "rescaled"):
        assert events[event] > len(SEEDS) / 2, events
    for event in ("withdrawn", "savepoints", "moved", "rebalanced"):
        assert events[event] > len(SEEDS) / 20, events


@pytest.mark.parametrize("rule", Rule, ids=lambda rule: rule.name.lower())
def test_a_broken_rule_is_noticed(rule: Rule) -> None:
    for seed in (NOTICED_BY.get(rule, 0), *range(SEEDS_MAX)):
        try:
            World(seed, [rule]).run()
        except Violation:
            return
    pytest.fail(f"without it nothing goes wrong: {rule.value}")


def test_a_seed_gives_the_same_run_again() -> None:
    first, again = World(7), World(7)
    assert first.run() == again.run()
    assert first.database.rows == again.database.rows
