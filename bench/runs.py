"""Runs workers and checks what they counted."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from bench.topologies import WORDS_A_LINE, make_lines, plain_loop


@dataclass(frozen=True, slots=True)
class Case:
    """One benchmark: a topology of `bench.topologies` and how much goes through it."""

    name: str
    topology: str
    arguments: Mapping[str, Any]
    tuples: int  # that a figure "a tuple" is divided by: words, or the spout's tuples
    core: str = "compiled"
    workers: int = 1
    conf: Mapping[str, Any] = field(default_factory=dict)
    stubs: Sequence[str] = ()
    # What issue 11 asks for: ratio to the plain loop, or millions of tuples a second of one core.
    goal_ratio: float | None = None
    limit_ratio: float | None = None
    goal_millions: float | None = None


@dataclass(frozen=True, slots=True)
class Result:
    cpu_secs: float
    wall_secs: float


class WrongCountError(RuntimeError):
    """A run lost, repeated or failed something."""


def plain_secs(lines: int, rounds: int) -> float:
    """CPU-seconds of the plain loop."""
    some = make_lines(lines)
    start = time.process_time()
    plain_loop(some, rounds)
    return time.process_time() - start


def run(case: Case, expected: Mapping[str, int] | None) -> Result:
    """Run it once. `expected` counts of words are compared exactly. Raises WrongCountError."""
    root = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    environment = {**os.environ, "SQUALL_CORE": case.core}
    children = []
    for index in range(case.workers):
        options = {
            "topology": case.topology,
            "arguments": case.arguments,
            "workers": case.workers,
            "index": index,
            "conf": case.conf,
            "stubs": list(case.stubs),
        }
        children.append(
            subprocess.Popen(
                [sys.executable, "-m", "bench.worker", json.dumps(options)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                cwd=root,
                env=environment,
            )
        )
    try:
        if case.workers > 1:
            ports = [_hear(child) for child in children]
            _tell(children, ports)
        for child in children:
            _hear(child)
        _tell(children, "go")
        if case.workers > 1:
            for child in children:
                _hear(child)
            _tell(children, "stop")
        measured = [_hear(child) for child in children]
        for child in children:
            child.communicate(timeout=30)
    finally:
        for child in children:
            if child.poll() is None:
                child.kill()
            child.wait()
            for pipe in (child.stdin, child.stdout):
                if pipe is not None:
                    pipe.close()
    _check(case, measured, expected)
    return Result(sum(m["cpu_secs"] for m in measured), max(m["wall_secs"] for m in measured))


def _hear(child: subprocess.Popen[str]) -> Any:
    assert child.stdout is not None
    line = child.stdout.readline()
    if not line:
        raise RuntimeError(f"a worker ended with status {child.wait()}")
    return json.loads(line)


def _tell(children: Sequence[subprocess.Popen[str]], message: Any) -> None:
    for child in children:
        assert child.stdin is not None
        child.stdin.write(json.dumps(message) + "\n")
        child.stdin.flush()


def _check(
    case: Case, measured: Sequence[Mapping[str, Any]], expected: Mapping[str, int] | None
) -> None:
    errors = [error for m in measured for error in m["errors"]]
    failed = sum(m["failed"] for m in measured)
    if errors or failed or any(m["core"] != case.core for m in measured):
        raise WrongCountError(f"{case.name}: {failed} failed, {errors}, {measured[0]['core']}")
    last = "count" if expected is not None else "sink"
    executed = sum(m["executed"].get(last, 0) for m in measured)
    if executed != case.tuples:
        raise WrongCountError(f"{case.name}: {executed} tuples of {case.tuples} were executed")
    if case.arguments["acked"]:
        acked = sum(m["acked"] for m in measured)
        messages = case.tuples // WORDS_A_LINE if expected is not None else case.tuples
        if acked != messages:
            raise WrongCountError(f"{case.name}: {acked} of {messages} messages were acked")
    if expected is not None:
        counts: dict[str, int] = {}
        for m in measured:
            for word, n in m["counts"].items():
                counts[word] = counts.get(word, 0) + n
        if counts != expected:
            raise WrongCountError(f"{case.name}: the counts of some words are wrong")


def measure(cases: Sequence[Case], pairs: int, lines: int, rounds: int) -> dict[str, Any]:
    """Run the cases by turns, each run beside one of the plain loop; medians."""
    words = lines * rounds * WORDS_A_LINE
    once = plain_loop(make_lines(lines), rounds)
    plain: list[float] = []
    results: dict[str, list[Result]] = {case.name: [] for case in cases}
    ratios: dict[str, list[float]] = {case.name: [] for case in cases}
    for number in range(pairs):
        print(f"round {number + 1} of {pairs}", file=sys.stderr)
        for case in cases:
            expected = None
            if case.topology == "word_count":
                times = case.tuples // words
                expected = {word: n * times for word, n in once.items()}
            before = plain_secs(lines, rounds)
            result = run(case, expected)
            beside = (before + plain_secs(lines, rounds)) / 2 / words
            plain.append(beside)
            results[case.name].append(result)
            ratios[case.name].append(result.cpu_secs / case.tuples / beside)
    table = {}
    for case in cases:
        cpu = statistics.median(r.cpu_secs for r in results[case.name]) / case.tuples
        row: dict[str, Any] = {
            "core": case.core,
            "workers": case.workers,
            "acked": case.arguments["acked"],
            "cpu_us_a_tuple": round(1e6 * cpu, 4),
            "millions_a_core_sec": round(1e-6 / cpu, 2),
            "wall_millions_sec": round(
                1e-6 * case.tuples / statistics.median(r.wall_secs for r in results[case.name]),
                2,
            ),
            "tuples_checked": case.tuples,
        }
        if case.topology == "word_count":
            row["ratio_to_plain"] = round(statistics.median(ratios[case.name]), 2)
            row["ratios"] = [round(ratio, 2) for ratio in sorted(ratios[case.name])]
        for key in ("goal_ratio", "limit_ratio", "goal_millions"):
            if getattr(case, key) is not None:
                row[key] = getattr(case, key)
        table[case.name] = row
    return {
        "plain_us_a_word": round(1e6 * statistics.median(plain), 4),
        "pairs": pairs,
        "counts_checked": True,
        "cases": table,
    }
