"""Compares two checkouts by turns, or one checkout with two settings: measures a change.

    python -m bench.turns --subject scale --cases workers_1,workers_2 ../before .
    python -m bench.turns --subject latency --cases two_workers . .:topology.worker.busy.poll.ms=10
    python -m bench.turns --cases word_count --control .

A side is a directory, and options of the topology for its runs: DIR:OPTION=VALUE, more of them
after further colons, each value as JSON or as text. Each run is a process of that checkout's
interpreter (.venv) with that checkout's bench: an older one can be a side if it has the case. A
machine becomes slower and faster within minutes, so the sides alternate, and each round reverses
the order of the one before. A figure is the median of all rounds, and the range is that of the
ratios within a round: where it includes 1, the sides hardly differ.

--control takes one side. It runs alone, then twice at the same time, and the ratio says how much
more CPU a tuple takes beside a neighbour that shares only the machine: shared caches and virtual
cores make CPU time longer. Read a ratio of two workers to one beside that.

Exit status: 0 measured, 1 a run that failed or a wrong count, 2 wrong usage.
"""

from __future__ import annotations

import argparse
import functools
import json
import os
import re
import statistics
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.latency import percentiles
from bench.machine import Watch
from bench.tables import Table, number, show
from squall_common.config.load import warnings_about

# Those whose cases are run by `bench.runs.run`.
SUBJECTS = (
    "headline", "features", "latency", "scale", "encryption", "windows", "streams", "nexmark",
)  # fmt: skip
FIGURES = {
    "cpu_us": "CPU, us a tuple",
    "wall_secs": "time, s",
    "p50": "latency p50, us",
    "p99": "latency p99, us",
}
# Each worker of a run ends by itself before.
_RUN_SECS = 300.0
# These run in the other checkout, and use only what checkouts have long had.
_LIST = """
import importlib, json, sys
print(json.dumps([case.name for case in importlib.import_module("bench." + sys.argv[1]).cases()]))
"""
_RUN = """
import dataclasses, importlib, json, sys
from bench.runs import run
subject, name, conf = sys.argv[1], sys.argv[2], json.loads(sys.argv[3])
cases = importlib.import_module("bench." + subject).cases()
case = next(case for case in cases if case.name == name)
result = run(dataclasses.replace(case, conf={**case.conf, **conf}))
print(json.dumps({
    "cpu_us": 1e6 * result.cpu_secs / case.tuples,
    "wall_secs": result.wall_secs,
    "latencies_us": [us for one in result.figures for us in one.get("latencies_us", ())],
}))
"""
Figures = Mapping[str, float]  # keys are those of FIGURES


class TurnsError(RuntimeError):
    """A side that cannot be measured, or a run that failed."""


@dataclass(frozen=True, slots=True)
class Side:
    name: str  # as it was given
    folder: Path
    conf: Mapping[str, Any]

    @classmethod
    def parse(cls, text: str) -> Side:
        """Raises TurnsError unless there is a checkout with its interpreter."""
        folder, *options = re.split(r":(?=[A-Za-z_][\w.-]*=)", text)
        conf: dict[str, Any] = {}
        for option in options:
            key, _, value = option.partition("=")
            try:
                conf[key] = json.loads(value)
            except ValueError:
                conf[key] = value
        side = cls(text, Path(folder).resolve(), conf)
        if not (side.folder / "bench" / "runs.py").is_file():
            raise TurnsError(f"{text}: no checkout of Squall: {side.folder} has no bench/runs.py")
        if not os.access(side.python, os.X_OK):
            raise TurnsError(f"{text}: no .venv in {side.folder}: run make there")
        return side

    @property
    def python(self) -> Path:
        return self.folder / ".venv" / "bin" / "python"

    def start(self, code: str, *arguments: str) -> subprocess.Popen[str]:
        """Run the code in this checkout."""
        # With these it could import our bench, or none.
        ours = ("PYTHONPATH", "PYTHONHOME", "PYTHONSAFEPATH")
        return subprocess.Popen(
            [str(self.python), "-c", code, *arguments],
            cwd=self.folder,
            env={name: value for name, value in os.environ.items() if name not in ours},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )


def ask(side: Side, code: str, *arguments: str, at_once: int = 1) -> list[Any]:
    """The last line that the code prints, as JSON, of each of the processes that run it at once.
    Raises TurnsError if one does not end well."""
    children: list[subprocess.Popen[str]] = []
    try:
        for _ in range(at_once):
            children.append(side.start(code, *arguments))
        return [_answer(side, child) for child in children]
    finally:
        for child in children:
            if child.poll() is None:
                child.kill()
            child.communicate()


def _answer(side: Side, child: subprocess.Popen[str]) -> Any:
    try:
        printed, errors = child.communicate(timeout=_RUN_SECS)
    except subprocess.TimeoutExpired:
        raise TurnsError(f"{side.name}: a run has not ended after {_RUN_SECS:g} s") from None
    if child.returncode != 0:
        sys.stderr.write(errors)  # a worker's error comes before that of the run
        last = (errors.strip().splitlines() or ["it printed no error"])[-1]
        raise TurnsError(f"{side.name}: exit status {child.returncode}: {last}")
    try:
        return json.loads(printed.splitlines()[-1])
    except (IndexError, ValueError):
        raise TurnsError(f"{side.name}: printed no figures: {printed[-200:]!r}") from None


def check_cases(side: Side, subject: str, cases: Sequence[str]) -> None:
    """Raises TurnsError for a case that this checkout does not have."""
    (there,) = ask(side, _LIST, subject)
    if unknown := [name for name in cases if name not in there]:
        raise TurnsError(
            f"{side.name}: no such case of {subject}: {', '.join(unknown)}; "
            f"there are: {', '.join(there)}"
        )


def figures_of(printed: Mapping[str, Any]) -> Figures:
    """Of a run; percentiles if it took latencies."""
    found = {"cpu_us": printed["cpu_us"], "wall_secs": printed["wall_secs"]}
    if printed["latencies_us"]:
        found |= percentiles(printed["latencies_us"])
    return {key: found[key] for key in FIGURES if key in found}


def means(runs: Sequence[Figures]) -> Figures:
    return {key: statistics.mean(run[key] for run in runs) for key in runs[0]}


@dataclass(frozen=True, slots=True)
class Way:
    """One of the two that are compared."""

    label: str
    side: Side
    at_once: int = 1  # runs at the same time, of which the means are taken

    def measure(self, subject: str, case: str) -> Figures:
        runs = ask(self.side, _RUN, subject, case, json.dumps(self.side.conf), at_once=self.at_once)
        return means([figures_of(printed) for printed in runs])


Pair = tuple[Figures, Figures]


def take(
    rounds: int, cases: Sequence[str], measures: Sequence[Callable[[str], Figures]]
) -> dict[str, list[Pair]]:
    """The figures of the two in each round, by case."""
    taken: dict[str, list[Pair]] = {case: [] for case in cases}
    first, second = measures
    for index in range(rounds):
        print(f"round {index + 1} of {rounds}", file=sys.stderr, flush=True)
        for case in cases:
            if index % 2 == 0:
                one = first(case)
                other = second(case)
            else:
                other = second(case)
                one = first(case)
            taken[case].append((one, other))
    return taken


def table(
    title: str, ways: Sequence[Way], taken: Mapping[str, Sequence[Pair]], notes: Sequence[str]
) -> Table:
    rows = []
    for case, pairs in taken.items():
        # Latencies are compared if both took them.
        for key in (key for key in FIGURES if all(key in one for one in pairs[0])):
            values = [(one[key], other[key]) for one, other in pairs]
            one, other = (statistics.median(side) for side in zip(*values, strict=True))
            ratios = [b / a for a, b in values]
            rows.append([
                case, FIGURES[key], number(one), number(other),
                f"{other / one:.2f}x", f"{min(ratios):.2f}-{max(ratios):.2f}",
            ])  # fmt: skip
    first, second = (way.label for way in ways)
    return Table(title, ["case", "", first, second, f"{second}/{first}", "range"], rows, notes)


def main(arguments: Sequence[str] | None = None) -> int:
    summary, _, rest = (__doc__ or "").partition("\n")
    parser = argparse.ArgumentParser(
        prog="python -m bench.turns",
        description=summary,
        epilog=rest,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("sides", nargs="+", metavar="DIR[:OPTION=VALUE]")
    parser.add_argument("--subject", default="headline", choices=SUBJECTS)
    parser.add_argument("--cases", required=True, help="names of cases, separated by commas")
    parser.add_argument("--rounds", type=int, default=5, help="runs of each side (5)")
    parser.add_argument(
        "--control", action="store_true", help="one side alone, and twice at the same time"
    )
    options = parser.parse_args(arguments)
    cases = list(dict.fromkeys(filter(None, options.cases.split(","))))
    if len(options.sides) != (1 if options.control else 2):
        parser.error("give one side with --control, and two without it")
    if options.rounds < 1 or not cases:
        parser.error("give at least one round, and one case")
    try:
        sides = [Side.parse(text) for text in options.sides]
        for side in sides:
            check_cases(side, options.subject, cases)
    except TurnsError as error:
        parser.error(str(error))
    if options.control:
        title = f"{options.subject}: {sides[0].name} alone, and beside itself"
        ways = [Way("alone", sides[0]), Way("beside", sides[0], at_once=2)]
        notes = ["Beside: the mean of two runs at the same time."]
    else:
        title = f"{options.subject}: A is {sides[0].name}, B is {sides[1].name}"
        ways = [Way(label, side) for label, side in zip("AB", sides, strict=True)]
        notes = []
    for side in sides:
        for warning in warnings_about(side.conf, where=side.name):
            print(f"warning: {warning}", file=sys.stderr)
    watch = Watch()
    try:
        taken = take(
            options.rounds,
            cases,
            [functools.partial(way.measure, options.subject) for way in ways],
        )
    except (OSError, TurnsError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    others = watch.report()["others_percent"]
    notes.append(
        f"Medians of {options.rounds} rounds, and the range of their ratios; every count was "
        f"exact. Others used {others:.0f} % of the machine."
    )
    show([table(title, ways, taken, [" ".join(notes)])])
    return 0


if __name__ == "__main__":
    sys.exit(main())
