"""One seed gives one trace with either core: every byte between workers, every id, every ack."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from squall_engine import core

ROOT = Path(__file__).resolve().parents[4]
SEEDS = [str(seed) for seed in range(1, 13)]
_PROGRAM = "from tests.support.core_trace import main; main()"


def traced(choice: str) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM, *SEEDS],
        cwd=ROOT,
        env={**os.environ, "SQUALL_CORE": choice},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    name, *traces = done.stdout.splitlines()
    assert name == choice
    return traces


@pytest.mark.skipif(not core.COMPILED, reason="the compiled core is not built, or not chosen")
def test_both_cores_give_the_same_trace() -> None:
    reference, compiled = traced("pure"), traced("compiled")
    assert compiled == reference
    assert len({line.split()[1] for line in reference}) == len(SEEDS)
    # The topology does what it is made for: with these, the traces say something.
    for kind in ("acked", "batch", "columns", "executed", "failed", "section"):
        assert sum(f" {kind}=" in line for line in reference) >= len(SEEDS) // 2, kind
