"""Runs workers and checks what they counted."""

from __future__ import annotations

import functools
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench import variants
from bench.ids import new_topology_id
from bench.stubs import cuts_of
from bench.topologies import WORDS_A_LINE, column_loop, make_lines, plain_loop

ROOT = Path(__file__).resolve().parent.parent
# A run that hangs is an error, not a wait. On a quiet machine the longest takes ten seconds.
_LIFE_SECS = 120.0


@dataclass(frozen=True, slots=True)
class Case:
    """One benchmark: a topology of `bench.topologies`, how much goes through it, and what must
    come out."""

    name: str
    topology: str
    arguments: Mapping[str, Any]
    tuples: int  # that a figure "a tuple" is divided by
    executed: Mapping[str, int] = field(default_factory=dict)  # tuples of a bolt, exactly
    messages: int = 0  # that are acked, exactly
    # Words: those of so many lines, each so often, must be counted exactly. None: no word count.
    words_of: tuple[int, int] | None = None
    title: str = ""
    core: str = "compiled"
    modules: str = ""  # SQUALL_MODULES; "": those that a worker would take
    workers: int = 1
    first_worker: Mapping[str, int] = field(default_factory=dict)  # of a component's tasks; else 0
    conf: Mapping[str, Any] = field(default_factory=dict)
    stubs: Sequence[str] = ()
    loop: str = "plain"  # what a word count is compared with: a key of LOOPS
    # The goals: ratio to that loop, or millions of tuples a second of one core,
    # or tuples a second of wall time.
    goal_ratio: float | None = None
    limit_ratio: float | None = None
    goal_millions: float | None = None
    limit_millions: float | None = None
    goal_wall: float | None = None


@dataclass(frozen=True, slots=True)
class Result:
    cpu_secs: float
    wall_secs: float
    figures: Sequence[Mapping[str, Any]] = ()  # what components measured themselves
    start_secs: float = 0.0  # of the slowest worker, from the start of its process on
    checkpoint_secs: Sequence[float] = ()  # of each checkpoint


class WrongCountError(RuntimeError):
    """A run lost, repeated or failed something."""


class RunError(RuntimeError):
    """A run did not come to its end."""


LOOPS = {"plain": plain_loop, "columns": column_loop}


def plain_secs(lines: int, rounds: int, loop: str = "plain") -> float:
    """CPU-seconds of one of LOOPS."""
    some = make_lines(lines)
    start = time.process_time()
    LOOPS[loop](some, rounds)
    return time.process_time() - start


@functools.cache
def _counts_of(lines: int) -> Mapping[str, int]:
    return plain_loop(make_lines(lines), 1)


def run(case: Case, life_secs: float = _LIFE_SECS) -> Result:
    """Run it once. Raises WrongCountError, and RunError when a worker ended early."""
    environment = {**os.environ, "SQUALL_CORE": case.core}
    if case.modules:
        environment["SQUALL_MODULES"] = case.modules
    cuts = cuts_of(case.stubs) if case.core == "compiled" else []
    core_path = str(variants.build(cuts)) if cuts else None
    topology_id = new_topology_id()
    children: list[subprocess.Popen[str]] = []
    try:
        for index in range(case.workers):
            options = {
                "topology_id": topology_id,
                "topology": case.topology,
                "arguments": case.arguments,
                "workers": case.workers,
                "index": index,
                "first_worker": case.first_worker,
                "conf": case.conf,
                "stubs": list(case.stubs),
                "core_path": core_path,
                "life_secs": life_secs,
            }
            children.append(
                subprocess.Popen(
                    [sys.executable, "-m", "bench.worker", json.dumps(options)],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    text=True,
                    cwd=ROOT,
                    env=environment,
                )
            )
        if case.workers > 1:
            _send(children, [_receive(child) for child in children])
        for child in children:
            _receive(child)
        _send(children, "go")
        if case.workers > 1:
            for child in children:
                _receive(child)
            _send(children, "stop")
        measured = [_receive(child) for child in children]
        for child in children:
            child.communicate(timeout=30)
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        raise RunError(f"{case.name}: {error}") from error
    except RunError as error:
        raise RunError(f"{case.name}: {error}") from None
    finally:
        for child in children:
            if child.poll() is None:
                child.kill()
            child.wait()
            for pipe in (child.stdin, child.stdout):
                if pipe is not None:
                    pipe.close()
    _check(case, measured)
    return Result(
        sum(m["cpu_secs"] for m in measured),
        max(m["wall_secs"] for m in measured),
        [figures for m in measured for figures in m["figures"]],
        max(m["start_secs"] for m in measured),
        [secs for m in measured for secs in m["checkpoint_secs"]],
    )


def _receive(child: subprocess.Popen[str]) -> Any:
    assert child.stdout is not None
    line = child.stdout.readline()
    if not line:
        raise RunError(f"a worker ended early, with status {child.wait()}")
    return json.loads(line)


def _send(children: Sequence[subprocess.Popen[str]], message: Any) -> None:
    for child in children:
        assert child.stdin is not None
        child.stdin.write(json.dumps(message) + "\n")
        child.stdin.flush()


def _check(case: Case, measured: Sequence[Mapping[str, Any]]) -> None:
    errors = [error for m in measured for error in m["errors"]]
    failed = sum(m["failed"] for m in measured)
    if errors or failed:
        raise WrongCountError(f"{case.name}: {failed} messages failed; errors: {errors}")
    if any(m["core"] != case.core for m in measured):
        raise RunError(f"{case.name}: ran on the core {measured[0]['core']!r}, not {case.core!r}")
    if "statistics" not in case.stubs:
        for component, expected in case.executed.items():
            executed = sum(m["executed"].get(component, 0) for m in measured)
            if executed != expected:
                raise WrongCountError(
                    f"{case.name}: {component} executed {executed} tuples, not {expected}"
                )
    acked = sum(m["acked"] for m in measured)
    if acked != case.messages:
        raise WrongCountError(f"{case.name}: {acked} messages were acked, not {case.messages}")
    if case.words_of is not None:
        lines, times = case.words_of
        counts: dict[str, int] = {}
        for m in measured:
            for word, n in m["counts"].items():
                counts[word] = counts.get(word, 0) + n
        if counts != {word: n * times for word, n in _counts_of(lines).items()}:
            raise WrongCountError(f"{case.name}: the counts of some words are wrong")


def measure(cases: Sequence[Case], pairs: int, lines: int = 0, rounds: int = 0) -> dict[str, Any]:
    """Run the cases by turns; medians. With `lines`, each run of a word count stands between two
    of its loop over so many lines, so often."""
    words = lines * rounds * WORDS_A_LINE
    plain: list[float] = []
    results: dict[str, list[Result]] = {case.name: [] for case in cases}
    ratios: dict[str, list[float]] = {case.name: [] for case in cases}
    for number in range(pairs):
        print(f"round {number + 1} of {pairs}", file=sys.stderr, flush=True)
        for case in cases:
            compared = words > 0 and case.words_of is not None
            before = plain_secs(lines, rounds, case.loop) if compared else 0.0
            result = run(case)
            results[case.name].append(result)
            if compared:
                beside = (before + plain_secs(lines, rounds, case.loop)) / 2 / words
                if case.loop == "plain":
                    plain.append(beside)
                ratios[case.name].append(result.cpu_secs / case.tuples / beside)
    report: dict[str, Any] = {
        "pairs": pairs,
        "counts_checked": True,
        "cases": {case.name: _row(case, results[case.name], ratios[case.name]) for case in cases},
    }
    if plain:
        report["plain_us_a_word"] = round(1e6 * statistics.median(plain), 4)
    return report


def _row(case: Case, results: Sequence[Result], ratios: Sequence[float]) -> dict[str, Any]:
    cpu = statistics.median(r.cpu_secs for r in results) / case.tuples
    wall = statistics.median(r.wall_secs for r in results)
    row: dict[str, Any] = {
        "title": case.title or case.name,
        "core": case.core,
        "workers": case.workers,
        "acked": case.messages > 0,
        "loop": case.loop,
        "cpu_us_a_tuple": round(1e6 * cpu, 4),
        "cpu_us_all": [round(1e6 * r.cpu_secs / case.tuples, 4) for r in results],
        "millions_a_core_sec": round(1e-6 / cpu, 3),
        "wall_millions_sec": round(1e-6 * case.tuples / wall, 4),
        "tuples_checked": case.tuples,
    }
    if ratios:
        row["ratio_to_plain"] = round(statistics.median(ratios), 2)
        row["ratios"] = [round(ratio, 2) for ratio in sorted(ratios)]
    for key in ("goal_ratio", "limit_ratio", "goal_millions", "limit_millions", "goal_wall"):
        if getattr(case, key) is not None:
            row[key] = getattr(case, key)
    return row
