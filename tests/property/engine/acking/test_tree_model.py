"""The acking of both cores against a model that keeps the whole tree (tests/support/tree_model)."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support import tree_model as model
from tests.support.cores import both

SEEDS = st.integers(0, 2**32)
WORKERS = st.integers(1, 4)
ACKERS = st.integers(1, 3)
STEPS = st.integers(1, 300)


@both
@settings(deadline=None)
@given(SEEDS, WORKERS, ACKERS, STEPS)
def test_every_tree_completes_once_and_leaves_nothing_behind(core, seed, workers, ackers, steps):
    model.check_sound(core, seed, workers, ackers, steps)


@both
@settings(deadline=None)
@given(SEEDS, WORKERS, ACKERS, STEPS)
def test_a_failed_tree_fails_and_the_others_complete(core, seed, workers, ackers, steps):
    model.check_fails(core, seed, workers, ackers, steps)


@both
@settings(deadline=None)
@given(SEEDS, WORKERS, ACKERS, STEPS, st.floats(0, 0.5), st.floats(0, 0.5))
def test_no_tree_completes_too_early_whatever_the_network_does(
    core, seed, workers, ackers, steps, lose, repeat
):
    model.check_network(core, seed, workers, ackers, steps, lose, repeat)
