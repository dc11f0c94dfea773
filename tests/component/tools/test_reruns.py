"""What the tests note of those that passed only when run again."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]

TESTS = """
tries = []

def test_passes():
    pass

def test_passes_the_second_time():
    tries.append(1)
    assert len(tries) == 2

def test_fails_twice():
    assert False
"""


@pytest.mark.parametrize("processes", [(), ("-n", "2")], ids=["one process", "xdist"])
def test_only_what_passed_the_second_time_is_noted(
    processes: tuple[str, ...], tmp_path: Path
) -> None:
    (tmp_path / "test_it.py").write_text(TESTS)
    noted = tmp_path / "noted"
    # It is no worker of the run that it is part of.
    environment = {k: v for k, v in os.environ.items() if not k.startswith("PYTEST_")}
    run = subprocess.run(
        [
            *(sys.executable, "-m", "pytest", "-c", os.devnull, "--rootdir", str(tmp_path)),
            *("--reruns", "1", "-p", "tests.support.reruns", *processes, str(tmp_path)),
        ],
        cwd=ROOT,
        env={**environment, "SQUALL_TEST_RERUNS": str(noted)},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert "1 failed, 2 passed, 2 rerun" in run.stdout
    (line,) = noted.read_text().splitlines()
    assert "test_passes_the_second_time: assert 1 == 2" in line
