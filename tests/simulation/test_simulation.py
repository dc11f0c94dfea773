"""The simulation itself: that it repeats, and that it finds what is wrong.

The seeds, with those that once failed, are run by `python -m tests.simulation` in the same stage.
"""

from __future__ import annotations

import functools
import os
import subprocess
import sys
from pathlib import Path
from unittest import mock

import pytest
from tests.simulation.run import simulate
from tests.simulation.sabotage import BUGS
from tests.support.validated_engine import replaces_methods

from squall_engine import core
from squall_worker.transport.link import Link

ROOT = Path(__file__).resolve().parents[2]

pytestmark = pytest.mark.timeout(600)


_PRINT_TRACE = """\
from tests.simulation.run import simulate
print(*(simulate(seed, virtual_secs=120).trace for seed in (1, 7)))
"""


def _traces(hash_seed: str, core_name: str = core.NAME) -> list[str]:
    env = {**os.environ, "PYTHONHASHSEED": hash_seed, "SQUALL_CORE": core_name}
    env["SQUALL_MODULES"] = ""  # compiled with the compiled core, and in Python with the other
    command = [sys.executable, "-c", _PRINT_TRACE]
    done = subprocess.run(
        command, cwd=ROOT, env=env, capture_output=True, text=True, timeout=300, check=True
    )
    return done.stdout.split()


def test_a_seed_gives_its_own_trace_and_the_same_in_every_process() -> None:
    first, second = _traces("1"), _traces("2")
    assert first == second
    assert len(set(first)) == 2


@pytest.mark.skipif(not core.COMPILED, reason="the compiled core is not built, or not chosen")
def test_a_seed_gives_the_same_trace_with_either_core() -> None:
    assert _traces("1", "pure") == _traces("1", "compiled")


@functools.cache
def _violations_of_the_sound_product() -> list[str]:
    return simulate(1, virtual_secs=200.0).violations


@replaces_methods
@pytest.mark.parametrize("bug", ["dropped acks", "early ack", "forgetful link"])
def test_a_seed_that_was_not_made_for_it_finds_a_bug(bug: str) -> None:
    """Those that rare states hide need far more seeds; stories find them (test_scenarios)."""
    assert _violations_of_the_sound_product() == []
    with BUGS[bug]():
        assert simulate(1, virtual_secs=200.0).violations


@replaces_methods
def test_a_contradiction_in_a_link_is_a_violation() -> None:
    """Whatever the worker makes of the error."""

    def forgets_the_backlog(link: Link, sequence: int) -> None:
        real(link, sequence)
        link.backlog_bytes += 1

    real = Link._acknowledge
    with mock.patch.object(Link, "_acknowledge", forgets_the_backlog):
        violations = simulate(1, virtual_secs=60).violations
    assert any("bytes are unacknowledged" in found for found in violations)
