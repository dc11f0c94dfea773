"""How CI finds processes that the tests left behind."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.leftovers import left_behind, processes_of

SLEEPS = "import signal; print('up', flush=True); signal.pause()"


@pytest.mark.parametrize("place", ["command line", "environment", "working directory"])
def test_a_process_is_found_by_its(place: str, tmp_path: Path) -> None:
    arguments = [str(tmp_path)] if place == "command line" else []
    environment = dict(os.environ) | ({"X": str(tmp_path)} if place == "environment" else {})
    cwd = tmp_path if place == "working directory" else None
    with subprocess.Popen(
        [sys.executable, "-c", SLEEPS, *arguments],
        env=environment,
        cwd=cwd,
        stdout=subprocess.PIPE,
    ) as process:
        try:
            assert process.stdout is not None
            process.stdout.readline()
            assert set(processes_of(tmp_path)) == {process.pid}
        finally:
            process.kill()
    assert processes_of(tmp_path) == {}


def test_the_program_ends_what_it_finds_and_fails(tmp_path: Path) -> None:
    folder = tmp_path / "scratch"
    folder.mkdir()
    with subprocess.Popen(
        [sys.executable, "-c", SLEEPS], cwd=folder, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        program = Path(__file__).parents[2] / "leftovers.py"
        found = subprocess.run(
            [sys.executable, str(program), str(folder), "0.1"], capture_output=True, text=True
        )
        assert found.returncode == 1
        assert found.stdout.startswith(f"{process.pid} ")
        assert process.wait() == -9
        again = subprocess.run([sys.executable, str(program), str(folder)], capture_output=True)
        assert again.returncode == 0


def test_a_process_that_is_about_to_end_is_waited_for(tmp_path: Path) -> None:
    ends = "import sys; print('up', flush=True); sys.stdin.read()"
    with subprocess.Popen(
        [sys.executable, "-c", ends], cwd=tmp_path, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        process.stdout.readline()
        assert set(left_behind(tmp_path, 0.1)) == {process.pid}
        process.stdin.close()
        assert left_behind(tmp_path, 60) == {}
