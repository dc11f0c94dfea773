"""Comparing checkouts by turns: two that have only what a checkout has long had, with the runs of a
benchmark replaced by what they were given."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from bench import turns

CASES = """
from bench.runs import Case

def cases():
    return [Case("small", {"old": 1}, 1_000_000), Case("bad", {}, 1), Case("mute", {}, 1)]
"""
RUNS = """
import dataclasses, pathlib, sys

@dataclasses.dataclass(frozen=True)
class Case:
    name: str
    conf: dict
    tuples: int

@dataclasses.dataclass(frozen=True)
class Result:
    cpu_secs: float
    wall_secs: float
    figures: list

def run(case):
    pathlib.Path("runs").open("a").write(f"{case.name} {case.conf}\\n")
    if case.name == "bad":
        print("the worker's own error", file=sys.stderr)
        raise RuntimeError("bad: 3 messages failed")
    if case.name == "mute":
        sys.exit(0)
    print("noise before the figures")
    return Result(CPU_SECS * case.conf.get("factor", 1), 1.0, [{"latencies_us": [1.0, 2.0]}])
"""


def checkout(folder: Path, cpu_secs: float) -> Path:
    (folder / "bench").mkdir(parents=True)
    (folder / "bench" / "__init__.py").touch()
    (folder / "bench" / "latency.py").write_text(CASES)
    (folder / "bench" / "runs.py").write_text(f"CPU_SECS = {cpu_secs}\n{RUNS}")
    (folder / ".venv" / "bin").mkdir(parents=True)
    (folder / ".venv" / "bin" / "python").symlink_to(sys.executable)
    return folder


@pytest.fixture
def before(tmp_path: Path) -> Path:
    return checkout(tmp_path / "before", 2.0)


@pytest.fixture
def after(tmp_path: Path) -> Path:
    return checkout(tmp_path / "after", 3.0)


def compare(*arguments: object) -> int:
    return turns.main(["--subject", "latency", "--rounds", "2", *map(str, arguments)])


def test_each_side_runs_in_its_own_checkout_with_its_own_options(
    before: Path,
    after: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(after))  # it is not for the other side
    monkeypatch.setenv("PYTHONSAFEPATH", "1")
    assert compare("--cases", "small", before, f"{after}:factor=4") == 0
    shown = capsys.readouterr().out

    cpu = next(line.split() for line in shown.splitlines() if "CPU, us a tuple" in line)
    assert cpu == ["small", "CPU,", "us", "a", "tuple", "2.00", "12.0", "6.00x", "6.00-6.00"]
    assert "latency p99, us" in shown
    assert (before / "runs").read_text() == "small {'old': 1}\n" * 2
    assert (after / "runs").read_text() == "small {'old': 1, 'factor': 4}\n" * 2


def test_the_control_runs_one_side_alone_and_twice_at_once(
    before: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert compare("--cases", "small", "--control", before) == 0
    assert "beside/alone" in capsys.readouterr().out
    assert len((before / "runs").read_text().splitlines()) == 2 * (1 + 2)


def test_an_unknown_case_is_refused_with_those_of_its_side(
    before: Path, after: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (after / "bench" / "latency.py").write_text("def cases(): return []")
    with pytest.raises(SystemExit) as ended:
        compare("--cases", "small,new", before, after)
    assert ended.value.code == 2
    said = capsys.readouterr().err
    assert f"{before}: no such case of latency: new; there are: small, bad, mute" in said
    assert not (before / "runs").exists()


@pytest.mark.parametrize(
    ("case", "said"),
    [
        ("bad", "exit status 1: RuntimeError: bad: 3 messages failed"),
        ("mute", "printed no figures: ''"),
    ],
)
def test_a_run_that_fails_names_its_side_and_its_last_line(
    case: str, said: str, before: Path, after: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert compare("--cases", case, before, after) == 1
    shown = capsys.readouterr()
    assert shown.err.splitlines()[-1] == f"error: {before}: {said}"
    assert ("the worker's own error" in shown.err) == (case == "bad")
    assert shown.out == ""
    assert not (after / "runs").exists()


def test_a_run_that_hangs_is_ended(
    before: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (before / "bench" / "latency.py").write_text(CASES + "import time; time.sleep(600)")
    monkeypatch.setattr(turns, "_RUN_SECS", 0.5)
    with pytest.raises(SystemExit):
        compare("--cases", "small", before, before)
    assert "a run has not ended after 0.5 s" in capsys.readouterr().err
