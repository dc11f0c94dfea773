"""The table at the end of `make test`."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from tests.run_all import ROOT, STAGES, Result, Stage, main, run_stage, table


def test_the_table_names_failures_overruns_and_skips() -> None:
    fine = Result(Stage("lint", (), 20), took_secs=3.0)
    counts = {"tests": 12, "failures": 1, "errors": 1, "skipped": 1}
    bad = Result(
        Stage("unit", (), 10), took_secs=11.6, failed=True, counts=counts, skipped=["a.b: no root"]
    )
    assert table([fine, bad]).splitlines() == [
        "stage        result      took  budget  tests",
        "lint         ok            3s     20s  ",
        "unit         FAILED       12s     10s  12 run, 2 failed, 1 skipped  OVER BUDGET",
        "all                       15s     30s",
        "Skipped:",
        "  a.b: no root",
        "Run twice: nothing.",
    ]


def test_nothing_skipped_is_said_too() -> None:
    assert "Skipped: nothing." in table([Result(Stage("lint", (), 20))]).splitlines()


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


def test_an_unknown_stage_is_wrong_usage(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["nonsense"]) == 2
    assert ", ".join(stage.name for stage in STAGES) in capsys.readouterr().err


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


def test_what_a_stage_starts_ends_with_ctrl_c_also_where_the_shell_ignores_it() -> None:
    done = without_ctrl_c(sys.executable, "-c", _ONE_STAGE)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("options", [(), ("-n", "1")], ids=["one process", "xdist"])
def test_ctrl_c_is_tested_also_where_the_shell_ignores_it(options: tuple[str, ...]) -> None:
    test = "tests/unit/squall/test_entry.py::test_ctrl_c_ends_local_mode"
    with_pytest = (sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider")
    done = without_ctrl_c(*with_pytest, "--timeout", "60", *options, test)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 passed" in done.stdout
