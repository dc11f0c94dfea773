"""Stages of tests/run_all.py as processes: what is counted, run again, and ended by Ctrl-C."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from tests.run_all import ROOT, STAGES, Stage, _pytest, run_stage


def test_a_stage_fails_with_any_of_its_commands() -> None:
    fails, passes = ((sys.executable, "-c", f"raise SystemExit({n})") for n in (1, 0))
    assert run_stage(Stage("s", (fails, passes), 1)).failed
    assert run_stage(Stage("s", (passes, fails), 1)).failed
    assert not run_stage(Stage("s", (passes,), 1)).failed


def test_a_pytest_stage_counts_and_names_what_was_skipped(tmp_path: Path) -> None:
    file = tmp_path / "test_it.py"
    file.write_text(
        "import pytest\ndef test_a(): pass\ndef test_b(): pytest.skip('no such machine')\n"
        "def test_c(): assert False\n"
    )
    pytest_command = (sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(file))
    result = run_stage(Stage("s", (pytest_command,), 1))
    assert result.failed
    assert result.counts == {"tests": 3, "failures": 1, "errors": 0, "skipped": 1}
    (skipped,) = result.skipped
    assert skipped.endswith("test_b: no such machine")


@pytest.mark.parametrize("options", [(), ("-n", "1")], ids=["one process", "xdist"])
def test_a_test_that_passes_the_second_time_is_listed_with_what_failed_at_first(
    tmp_path: Path, options: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PYTEST_XDIST_WORKER", raising=False)  # of the run that this test is in
    file = tmp_path / "test_it.py"
    file.write_text(
        "from pathlib import Path\n"
        "def test_a():\n"
        "    mark = Path(__file__).with_name('ran')\n"
        "    ran = mark.exists()\n"
        "    mark.touch()\n"
        "    assert ran, 'the first time'\n"
        "def test_b(): pass\n"
    )
    command = _pytest("-q", "-p", "no:cacheprovider", *options, str(file))
    result = run_stage(Stage("s", (command,), 1))
    assert result.verdict == "ok, 1 unsteady"
    (line,) = result.unsteady
    assert "test_it.py::test_a: AssertionError: the first time" in line
    assert line.endswith("test_it.py:6)")


def test_a_failure_found_by_chance_is_not_run_again(tmp_path: Path) -> None:
    """Not even where all tests are: Hypothesis would draw other examples, or chaos other faults."""
    file = tmp_path / "test_it.py"
    file.write_text(
        "from pathlib import Path\n"
        "from hypothesis import given, strategies\n"
        "@given(strategies.integers())\n"
        "def test_a(number):\n"
        "    mark = Path(__file__).with_name('ran')\n"
        "    ran = mark.exists()\n"
        "    mark.touch()\n"
        "    assert ran\n"
    )
    result = run_stage(Stage("s", (_pytest("-q", "-p", "no:cacheprovider", str(file)),), 1))
    assert result.failed
    assert result.unsteady == []
    for stage in STAGES:
        if stage.name in ("chaos", "simulation"):
            assert not any("--reruns" in command for command in stage.commands)


def without_ctrl_c(*command: str) -> subprocess.CompletedProcess[str]:
    """Run a command as a shell without job control runs it in the background."""
    return subprocess.run(
        ["sh", "-c", 'trap "" INT; exec "$@"', "sh", *command],
        cwd=ROOT, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=100,
        check=False,
    )  # fmt: skip


_ONE_STAGE = """
import sys
from tests import run_all
from tests.run_all import Stage
asked = "import signal, sys; sys.exit(signal.getsignal(signal.SIGINT) == signal.SIG_IGN)"
run_all.STAGES = (Stage("one", ((sys.executable, "-c", asked),), 60),)
sys.exit(run_all.main([]))
"""


def test_ctrl_c_ends_the_processes_of_a_stage_even_if_the_shell_ignores_it() -> None:
    done = without_ctrl_c(sys.executable, "-c", _ONE_STAGE)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("options", [(), ("-n", "1")], ids=["one process", "xdist"])
def test_ctrl_c_is_tested_even_if_the_shell_ignores_it(options: tuple[str, ...]) -> None:
    test = "tests/component/squall/test_entry.py::test_ctrl_c_ends_local_mode"
    with_pytest = (sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider")
    done = without_ctrl_c(*with_pytest, "--timeout", "60", *options, test)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 passed" in done.stdout
