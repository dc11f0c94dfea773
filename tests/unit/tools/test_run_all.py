"""The table at the end of `make test`."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import pytest
from tests.run_all import ROOT, STAGES, Journal, Result, Stage, again, main, may_be_chance, table
from tests.support.seeds import drawn, drawn_seed


def test_the_table_names_failures_overruns_and_skips() -> None:
    fine = Result(Stage("lint", (), 20), took_secs=3.0)
    counts = {"tests": 12, "failed": 2, "skipped": 1}
    bad = Result(
        Stage("unit", (), 10), took_secs=11.6, failed=True, counts=counts, skipped=["a.b: no root"]
    )
    assert table([fine, bad]).splitlines() == [
        "stage        result             took  budget  tests",
        "lint         ok                   3s     20s  ",
        "unit         FAILED              12s     10s  12 run, 2 failed, 1 skipped  OVER BUDGET",
        "all                              15s     30s",
        "Skipped:",
        "  a.b: no root",
        "Unsteady: nothing.",
    ]


def test_a_test_that_passed_only_on_retry_is_not_called_ok() -> None:
    stage = Result(Stage("unit", (), 10), took_secs=1.0, unsteady=["a.b: assert 1 == 2 (b.py:7)"])
    lines = table([stage]).splitlines()
    assert lines[1] == "unit         ok, 1 unsteady       1s     10s  "
    assert lines[-2:] == [
        "UNSTEADY: 1 passed only the second time; find out why they failed:",
        "  a.b: assert 1 == 2 (b.py:7)",
    ]


def test_a_run_without_skips_says_so() -> None:
    assert "Skipped: nothing." in table([Result(Stage("lint", (), 20))]).splitlines()


def test_a_drawn_seed_stays_and_is_named_in_what_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    assert drawn("SQUALL_NO_SUCH_SEED") == drawn("SQUALL_NO_SUCH_SEED")
    monkeypatch.setenv("SQUALL_A_SEED", "17")
    with pytest.raises(AssertionError) as failed, drawn_seed("SQUALL_A_SEED") as seed:
        assert seed == 18
    assert failed.value.__notes__ == ["Again with the same seed: SQUALL_A_SEED=17"]


def test_an_unknown_stage_is_wrong_usage(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["nonsense"]) == 2
    assert ", ".join(stage.name for stage in STAGES) in capsys.readouterr().err


def test_the_budgets_are_those_of_the_page_and_add_up_to_the_limit() -> None:
    page = (ROOT / "docs" / "testing.md").read_text()
    rows = re.findall(r"^\| (\w+) \|.*\| (\d+) s \|$", page, re.M)
    assert [(stage.name, str(stage.budget_secs)) for stage in STAGES] == rows
    assert sum(stage.budget_secs for stage in STAGES) <= 3_000  # 50 minutes


def test_what_does_more_in_a_soak_is_in_it() -> None:
    lines = (ROOT / "Makefile").read_text().partition("\nsoak:")[2].partition("\n\n")[0]
    folder = ROOT / "tests" / "integration"
    more = {path for path in folder.rglob("test_*.py") if re.search(r"\bSOAK\b", path.read_text())}
    named = {ROOT / path for path in re.findall(r"tests/integration/\S+\.py", lines)}
    assert more == named


def read(tmp_path: Path, *events: object) -> Journal:
    path = tmp_path / "journal"
    path.write_text("".join(f"{json.dumps(event)}\n" for event in events))
    return Journal.read(path)


def report(test: str, outcome: str, *, ended: bool = True, **more: str) -> dict[str, object]:
    return {"id": test, "outcome": outcome, "ended": ended, **more}


def test_the_worst_phase_of_a_test_is_its_outcome_with_its_first_cause(tmp_path: Path) -> None:
    found = read(
        tmp_path,
        {"rootdir": "/r"},
        {"started": "t.py::a"},
        report("t.py::a", "passed", ended=False),
        report("t.py::a", "failed", ended=False, cause="the call"),
        report("t.py::a", "failed", cause="the end"),
        report("t.py::b", "skipped", ended=False, cause="no root"),
        report("t.py::b", "passed"),
        {"finished": 1},
    )
    assert found.outcomes == {"/r/t.py::a": "failed", "/r/t.py::b": "skipped"}
    assert found.causes == {"/r/t.py::a": "the call", "/r/t.py::b": "no root"}
    assert found.finished == 1


def test_tests_of_a_process_that_died_are_unfinished(tmp_path: Path) -> None:
    found = read(
        tmp_path,
        {"collected": ["a", "b", "c"]},
        report("a", "passed"),
        report("b", "passed", ended=False),
    )
    assert found.finished is None
    assert found.unfinished() == ["b", "c"]
    assert Journal.read(tmp_path / "nothing").unfinished() == []


def test_failures_that_no_chance_explains_are_not_run_again(tmp_path: Path) -> None:
    failed = read(tmp_path, report("a", "failed"), {"finished": 1})
    assert may_be_chance(1, failed, ["a"])
    assert not may_be_chance(None, failed, ["a"])  # cut
    assert not may_be_chance(1, failed, [str(n) for n in range(60)])
    final = read(tmp_path, report("a", "failed", final="lost"), {"finished": 1})
    assert not may_be_chance(1, final, ["a", "b"])
    broken = read(tmp_path, {"broken": "b.py"}, report("a", "failed"), {"finished": 1})
    assert not may_be_chance(1, broken, ["a"])
    # Its process died: of several it is unknown what they were to run.
    assert may_be_chance(1, read(tmp_path, {"collected": ["a"]}), ["a"])
    assert not may_be_chance(1, read(tmp_path, {"started": "a"}), ["a"])


def test_tests_run_again_alone_with_the_options_of_their_stage() -> None:
    command = ("env", "A=b", sys.executable, "-m", "pytest", "-q", "-n", "2", "tests/unit")
    assert again(command, ["tests/unit/test_a.py::test_b"]) == (
        *command[:-1], "-n", "1", "tests/unit/test_a.py::test_b",
    )  # fmt: skip
    assert again(("pytest", "-v", "tests/compose"), ["a::b"]) == ("pytest", "-v", "a::b")
