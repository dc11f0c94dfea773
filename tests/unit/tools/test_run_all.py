"""The table at the end of `make test`."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from tests.run_all import STAGES, Result, Stage, main, run_stage, table


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
