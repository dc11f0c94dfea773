"""The table at the end of `make test`."""

from __future__ import annotations

import pytest
from tests.run_all import STAGES, Result, Stage, main, table
from tests.support.seeds import drawn, drawn_seed


def test_the_table_names_failures_overruns_and_skips() -> None:
    fine = Result(Stage("lint", (), 20), took_secs=3.0)
    counts = {"tests": 12, "failures": 1, "errors": 1, "skipped": 1}
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
