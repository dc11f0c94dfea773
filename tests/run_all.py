"""Runs everything that CI runs, in stages, and says how long each took against its budget.

    python tests/run_all.py [STAGE ...]        all stages, or those named
    python tests/run_all.py check              those of `make check`

The exit status is 0 when every stage passed. What was skipped is listed with its reason. A stage
that took longer than its budget is a warning, not a failure: the machine may be busy. A test that
failed is run once more, since neighbours on a shared machine can slow anything down; when it passes
then, its stage is not "ok" but says how many tests were unsteady, and they are listed with what
failed at first. Chaos, the simulation and what Hypothesis draws are never run again, and lost or
invented tuples fail at once.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
import tomllib
import xml.etree.ElementTree as ElementTree
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


@dataclass(frozen=True, slots=True)
class Stage:
    """One line of the table. `budget_secs` is for two cores (docs/testing.md)."""

    name: str
    commands: tuple[tuple[str, ...], ...]
    budget_secs: int


@dataclass(slots=True)
class Result:
    """What became of a stage."""

    stage: Stage
    took_secs: float = 0.0
    failed: bool = False
    counts: dict[str, int] = field(default_factory=dict)
    skipped: list[str] = field(default_factory=list)
    unsteady: list[str] = field(default_factory=list)  # passed only when run again, and why

    @property
    def verdict(self) -> str:
        """What the table says."""
        if self.failed:
            return "FAILED"
        return f"ok, {len(self.unsteady)} unsteady" if self.unsteady else "ok"


def _pytest(*arguments: str, again: bool = True) -> tuple[str, ...]:
    options = ("--reruns", "1", "--rerun-except", "TuplesLost", "-p", "tests.support.reruns")
    return (sys.executable, "-m", "pytest", *(options if again else ()), *arguments)


# A file's tests share a cluster. The files are handed out in the order in which they are collected.
_BY_FILE = ("--dist", "loadfile", "--no-loadscope-reorder")

ENGINE_TESTS = (
    "tests/unit/engine",
    "tests/unit/worker/watch",
    "tests/component/engine",
    "tests/property/engine",
    "tests/unit/squall/test_local.py",
    "tests/unit/common/component/test_groupings.py",
)

STAGES = (
    Stage(
        "lint",
        (
            (sys.executable, "-m", "ruff", "check", "."),
            (sys.executable, "-m", "ruff", "format", "--check", "."),
        ),
        5,
    ),
    Stage("types", ((sys.executable, "-m", "mypy"),), 30),
    Stage("unit", (_pytest("-q", "-n", "2", "tests/unit", "tests/property"),), 150),
    Stage("component", (_pytest("-q", "-n", "2", "tests/component"),), 105),
    # What the compiled core replaces, once more in Python.
    Stage(
        "pure",
        (
            (
                "env",
                "SQUALL_CORE=pure",
                *_pytest("-q", "-n", "2", *ENGINE_TESTS),
            ),
        ),
        90,
    ),
    # The compiled core with sanitizers; whatever reads bytes of others, fuzzed.
    Stage("native", ((sys.executable, "-m", "tests.native"),), 100),
    Stage(
        "simulation",
        (
            (sys.executable, "-m", "tests.simulation", "--commit", "--seeds", "60"),
            _pytest("-q", "-n", "2", "tests/simulation", again=False),
        ),
        260,
    ),
    # Four at a time: they wait for other processes much of the time.
    Stage(
        "integration",
        (_pytest("-q", *_BY_FILE, "-n", "4", "--durations=10", "tests/integration"),),
        440,
    ),
    # Real Chromium: it takes more than a core by itself.
    Stage("browser", (_pytest("-q", "-n", "2", "--durations=10", "tests/browser"),), 180),
    # The installation is one long file: what waits for pip and clusters runs beside it.
    Stage(
        "outside",
        (
            _pytest(
                *("-v", *_BY_FILE, "-n", "3", "--durations=10"),
                *("tests/install", "tests/conformance"),
            ),
        ),
        160,
    ),
    # The site, with every block of code in its pages; sessions of readers on a real cluster.
    Stage("docs", (_pytest("-q", *_BY_FILE, "-n", "2", "--durations=10", "tests/docs"),), 180),
    # A Spark session for each of two processes: it waits often enough.
    Stage("spark", (_pytest("-q", *_BY_FILE, "-n", "2", "--durations=10", "tests/spark"),), 300),
    # Real servers, which are killed in the middle; a file's tests share one.
    Stage(
        "connectors",
        (_pytest("-q", *_BY_FILE, "-n", "3", "--durations=10", "tests/connectors"),),
        300,
    ),
    # Two files at a time: one whole cluster, and beside its first part the small ones.
    Stage(
        "chaos",
        (_pytest("-v", *_BY_FILE, "-n", "2", "--durations=10", "tests/chaos", again=False),),
        420,
    ),
    Stage("compose", (_pytest("-v", "-s", "tests/compose"),), 285),
)

# Unit tests, and the quick ones among the property tests.
FAST = (
    "tests/unit",
    "tests/property/drpc",
    "tests/property/nimbus",
    "tests/property/supervisor",
)
# What mypy checks without PySpark.
WITHOUT_SPARK = [
    option
    for package in tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["mypy"]["packages"]
    if package != "squall_spark"
    for option in ("-p", package)
]
CHECK = (
    Stage("lint", STAGES[0].commands, 10),
    Stage("types", ((sys.executable, "-m", "mypy", *WITHOUT_SPARK),), 70),
    Stage("fast", (_pytest("-q", "-n", "2", *FAST),), 100),
)


def run_stage(stage: Stage) -> Result:
    """Run one stage, its output passed through."""
    result = Result(stage)
    start = time.monotonic()
    for command in stage.commands:
        with tempfile.TemporaryDirectory() as folder:
            report = Path(folder) / "report.xml"
            is_pytest = "pytest" in command
            extra = (f"--junit-xml={report}",) if is_pytest else ()
            print(f"\n=== {stage.name}: {' '.join(command[1:])}", flush=True)
            reruns = Path(folder) / "reruns.txt"
            env = {**os.environ, "SQUALL_TEST_RERUNS": str(reruns)}
            status = subprocess.run((*command, *extra), cwd=ROOT, env=env, check=False)
            result.failed |= status.returncode != 0
            if reruns.exists():
                result.unsteady += reruns.read_text().splitlines()
            if report.exists():
                _read_report(report, result)
    result.took_secs = time.monotonic() - start
    return result


def _read_report(report: Path, result: Result) -> None:
    # Written by our own pytest a moment ago: no foreign XML.
    for suite in ElementTree.parse(report).getroot().iter("testsuite"):
        for name in ("tests", "failures", "errors", "skipped"):
            result.counts[name] = result.counts.get(name, 0) + int(suite.get(name, "0"))
        for case in suite.iter("testcase"):
            for skipped in case.iter("skipped"):
                where = f"{case.get('classname')}.{case.get('name')}"
                result.skipped.append(f"{where}: {skipped.get('message')}")


def table(results: list[Result]) -> str:
    """The summary: a line a stage, the total, what was skipped and why."""
    lines = [f"{'stage':<12} {'result':<15} {'took':>7} {'budget':>7}  tests"]
    for result in results:
        over = "  OVER BUDGET" if result.took_secs > result.stage.budget_secs else ""
        counts = result.counts
        tests = ""
        if counts:
            bad = counts["failures"] + counts["errors"]
            tests = f"{counts['tests']} run, {bad} failed, {counts['skipped']} skipped"
        lines.append(
            f"{result.stage.name:<12} {result.verdict:<15} "
            f"{result.took_secs:>6.0f}s {result.stage.budget_secs:>6}s  {tests}{over}"
        )
    took = sum(result.took_secs for result in results)
    budget = sum(result.stage.budget_secs for result in results)
    lines.append(f"{'all':<12} {'':<15} {took:>6.0f}s {budget:>6}s")
    skipped = [line for result in results for line in result.skipped]
    lines.append("Skipped: nothing." if not skipped else "Skipped:")
    lines.extend(f"  {line}" for line in skipped)
    unsteady = [line for result in results for line in result.unsteady]
    lines.append(
        f"UNSTEADY: {len(unsteady)} passed only the second time; find out why they failed:"
        if unsteady
        else "Unsteady: nothing."
    )
    lines.extend(f"  {line}" for line in unsteady)
    return "\n".join(lines)


def main(names: list[str]) -> int:
    if names == ["check"]:
        return _run(list(CHECK))
    known = {stage.name: stage for stage in STAGES}
    unknown = [name for name in names if name not in known]
    if unknown:
        print(f"no stage {', '.join(unknown)}; there are {', '.join(known)}", file=sys.stderr)
        return 2
    return _run([known[name] for name in names] or list(STAGES))


def _run(stages: list[Stage]) -> int:
    # A shell without job control starts what it sends to the background with Ctrl-C ignored, which
    # every process that we start would inherit: the tests of Ctrl-C would wait in vain.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    # Hundreds of processes import the same modules: without bytecode each would compile them.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    results = [run_stage(stage) for stage in stages]
    print(f"\n{table(results)}", flush=True)
    return 1 if any(result.failed for result in results) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
