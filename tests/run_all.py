"""Runs everything that CI runs, in stages, and says how long each took against its budget.

    python tests/run_all.py [STAGE ...]        all stages, or those named
    python tests/run_all.py check              those of `make check`

The exit status is 0 when every stage passed. What was skipped is listed with its reason. A stage
that took longer than its budget is a warning, not a failure: the machine may be busy.

The tests of a stage that failed are run once more when the stage has ended, since neighbours on a
shared machine can slow anything down: one after the other in a new process, so that nothing is left
of the first try, neither a broken cluster that its file shared nor a process that hung or crashed.
When all pass then, the stage is not "ok" but says how many tests were unsteady, and they are listed
with what failed at first. The simulation and what Hypothesis draws at random are never run again,
and lost or invented tuples fail at once (`tests/support/journal.py`). Nor is a stage with so many
failures that chance is no explanation.

A stage in which nothing has moved for half an hour is cut: the stacks of its processes are printed,
and it has failed. (A test that hangs fails by itself long before: `tests/support/limits.py`.)
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import signal
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent

# More failures than that are not chance.
AGAIN_MAX = 50
# Without the start or end of a test; a stage's other commands have as long in all. Longer than any
# test may take.
STILL_SECS_MAX = 1800.0


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


@dataclass(slots=True)
class Journal:
    """What a run of pytest wrote (`tests/support/journal.py`). Ids of tests begin with a path."""

    finished: int | None = None  # its exit status; None when it died
    collected: list[str] = field(default_factory=list)
    broken: list[str] = field(default_factory=list)  # what could not be collected
    started: list[str] = field(default_factory=list)
    ended: set[str] = field(default_factory=set)
    outcomes: dict[str, str] = field(default_factory=dict)  # the worst of the three phases
    causes: dict[str, str] = field(default_factory=dict)  # why it failed at first, or was skipped
    final: dict[str, str] = field(default_factory=dict)  # why it may not be run again

    @classmethod
    def read(cls, path: Path) -> Journal:
        found = cls()
        rootdir = ""
        for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else ():
            match json.loads(line):
                case {"rootdir": rootdir}:
                    pass
                case {"collected": ids}:
                    found.collected = [os.path.join(rootdir, test) for test in ids]
                case {"broken": name}:
                    found.broken.append(name)
                case {"started": test}:
                    found.started.append(os.path.join(rootdir, test))
                case {"id": test, **event}:
                    found._note(os.path.join(rootdir, test), event)
                case {"finished": status}:
                    found.finished = status
        return found

    def _note(self, test: str, event: Mapping[str, Any]) -> None:  # Any: JSON
        if event["ended"]:
            self.ended.add(test)
        severity = ("passed", "skipped", "failed")
        before = self.outcomes.get(test, "passed")
        self.outcomes[test] = max(before, event["outcome"], key=severity.index)
        if "cause" in event and (test not in self.causes or self.outcomes[test] != before):
            self.causes[test] = event["cause"]
        if "final" in event:
            self.final[test] = event["final"]

    def with_outcome(self, outcome: str) -> list[str]:
        return [test for test, was in self.outcomes.items() if was == outcome]

    def unfinished(self) -> list[str]:
        """Tests that were to run and did not end, nor fail: their process died."""
        return [
            test
            for test in self.collected or self.started
            if test not in self.ended and self.outcomes.get(test) != "failed"
        ]


def _pytest(*arguments: str) -> tuple[str, ...]:
    return (sys.executable, "-m", "pytest", "-p", "tests.support.journal", *arguments)


def again(command: Sequence[str], tests: Sequence[str]) -> tuple[str, ...]:
    """The command that runs these tests of a pytest command alone, one after the other."""
    start = command.index("pytest") + 1
    options = [word for word in command[start:] if not (ROOT / word).exists()]
    # Still in a process of its own if they had one: a crash is then that of a test.
    alone = ("-n", "1") if "-n" in options else ()
    return (*command[:start], *options, *alone, *tests)


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
TRANSPORT_TESTS = (
    "tests/unit/worker/transport",
    "tests/component/worker/transport",
    "tests/property/worker/transport",
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
    # Checks of security taken away, a few with each commit: the test of each must fail.
    Stage("mutations", ((sys.executable, "-m", "tests.mutations", "--commit", "12"),), 40),
    # What the compiled core and the compiled modules replace, once more in Python.
    Stage(
        "pure",
        (
            (
                "env",
                "SQUALL_CORE=pure",
                *_pytest("-q", "-n", "2", *ENGINE_TESTS, *TRANSPORT_TESTS),
            ),
        ),
        90,
    ),
    # The compiled core with sanitizers; whatever reads bytes of others, fuzzed.
    Stage("native", ((sys.executable, "-m", "tests.native"),), 95),
    Stage(
        "simulation",
        (
            (sys.executable, "-m", "tests.simulation", "--commit", "--seeds", "60"),
            # Bugs are planted, and links watched, by replacing methods: not of compiled classes.
            ("env", "SQUALL_MODULES=python", *_pytest("-q", "-n", "2", "tests/simulation")),
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
        280,
    ),
    # Two files at a time: one whole cluster, and beside its first part the small ones.
    Stage(
        "chaos",
        (_pytest("-v", *_BY_FILE, "-n", "2", "--durations=10", "tests/chaos"),),
        400,
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
        if "pytest" in command:
            _run_tests(stage.name, command, result)
        else:
            result.failed |= _run_command(stage.name, command, None) != 0
    result.took_secs = time.monotonic() - start
    return result


def _run_tests(name: str, command: tuple[str, ...], result: Result) -> None:
    """Run the tests of a command, those that fail once more, and add up what became of them."""
    with tempfile.TemporaryDirectory() as folder:
        status = _run_command(name, command, Path(folder) / "first")
        first = Journal.read(Path(folder) / "first")
        failed = first.with_outcome("failed") + first.unfinished()
        forgiven: list[str] = []
        if may_be_chance(status, first, failed):
            print(f"\n=== {name}: {len(failed)} failed; once more, alone", flush=True)
            _run_command(name, again(command, failed), Path(folder) / "second")
            second = Journal.read(Path(folder) / "second")
            forgiven = [
                test
                for test in failed
                if second.outcomes.get(test) == "passed" and test not in second.final
            ]
    result.failed |= status != 0 and (not failed or len(forgiven) < len(failed))
    result.unsteady += [
        f"{_shown(test)}: {first.causes.get(test, 'its process died')}" for test in forgiven
    ]
    skipped = first.with_outcome("skipped")
    result.skipped += [f"{_shown(test)}: {first.causes.get(test)}" for test in skipped]
    counts = {
        "tests": len(first.outcomes),
        "failed": len(failed) - len(forgiven) + len(first.broken),
        "skipped": len(skipped),
    }
    for what, count in counts.items():
        result.counts[what] = result.counts.get(what, 0) + count


def may_be_chance(status: int | None, first: Journal, failed: list[str]) -> bool:
    """Whether it is worth running them again."""
    # A process that died can be made up for if it is known what it was to run.
    known = first.finished is not None or first.collected
    return (
        status not in (None, 0)  # None: cut
        and bool(known and failed and not first.broken)
        and first.finished in (None, 1)  # 1: tests failed; the others: it was broken off
        and len(failed) <= AGAIN_MAX
        and not any(test in first.final for test in failed)
    )


def _shown(test: str) -> str:
    return test.removeprefix(f"{ROOT}{os.sep}")


def _run_command(name: str, command: Sequence[str], journal: Path | None) -> int | None:
    """Run one command; its exit status, or None if it was cut. If that is not 0, the processes that
    it left are ended, too."""
    print(f"\n=== {name}: {' '.join(command[1:])}", flush=True)
    # Whatever inherits this was started by the command. (Its name begins otherwise than Squall's
    # own variables, which tests leave out.)
    mark = f"RUN_ALL_COMMAND={secrets.token_hex(8)}"
    key, _, value = mark.partition("=")
    env = {**os.environ, key: value, "SQUALL_TEST_JOURNAL": str(journal or "")}
    process = subprocess.Popen(command, cwd=ROOT, env=env)
    status: int | None = None
    try:
        status = _wait(process, journal)
        if status is None:
            doing = Journal.read(journal) if journal is not None else Journal()
            began = ", ".join(_shown(test) for test in doing.started if test not in doing.ended)
            print(f"\n=== {name}: cut, it stood still; begun and not ended: {began}", flush=True)
    except KeyboardInterrupt:  # it got the Ctrl-C as well
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(30)
        raise
    finally:
        if process.poll() is None:
            _cut(process)
    if status != 0:
        end = (sys.executable, "tests/leftovers.py", mark, "5")
        subprocess.run(end, cwd=ROOT, check=False)
    return status


def _wait(process: subprocess.Popen[bytes], journal: Path | None) -> int | None:
    """The exit status; None after half an hour in which nothing happened."""
    moved, size = time.monotonic(), 0
    while True:
        with contextlib.suppress(subprocess.TimeoutExpired):
            return process.wait(min(5.0, STILL_SECS_MAX))
        now = journal.stat().st_size if journal is not None and journal.exists() else 0
        if now != size:
            moved, size = time.monotonic(), now
        if time.monotonic() - moved > STILL_SECS_MAX:
            return None


def _cut(process: subprocess.Popen[bytes]) -> None:
    """End a command and its direct children (xdist's) so that Python shows their stacks."""
    with contextlib.suppress(OSError):
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        for pid in map(int, children):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGABRT)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(5)
    process.send_signal(signal.SIGABRT)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(5)
    process.kill()
    process.wait()


def table(results: list[Result]) -> str:
    """The summary: a line a stage, the total, what was skipped and why."""
    lines = [f"{'stage':<12} {'result':<15} {'took':>7} {'budget':>7}  tests"]
    for result in results:
        over = "  OVER BUDGET" if result.took_secs > result.stage.budget_secs else ""
        counts = result.counts
        tests = ""
        if counts:
            tests = f"{counts['tests']} run, {counts['failed']} failed, {counts['skipped']} skipped"
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
