"""A topology that runs forever on a cluster, Apache Storm's or ours, measured from outside: CPU of
its workers from the kernel, acked messages from what its spouts write."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from bench.clusters import cpu_secs, rss_mb
from bench.runs import RunError, WrongCountError
from bench.topologies import WORDS_A_LINE, make_lines, plain_loop

WARM_SECS = 15.0  # after the first acks: a JVM compiles
WINDOW_SECS = 6.0
_FIRST_SECS = 90.0
_LAST_SECS = 90.0
_COUNT_SECS = 60.0  # counters write once a second, after what is queued


@dataclass(frozen=True, slots=True)
class Topology:
    """What a topology counts: tuples of each message, and what its counters must have written in
    the end, from the totals of its spouts (sent, acked, failed, passes)."""

    tuples_a_message: int
    counts: Callable[[Mapping[str, int]], Mapping[str, int]]
    sent: Callable[[Mapping[str, int]], int]


def word_count(lines: int) -> Topology:
    """Whole passes over the same lines."""
    once = plain_loop(make_lines(lines), 1)
    return Topology(
        WORDS_A_LINE,
        lambda totals: {word: n * totals["passes"] for word, n in once.items()},
        lambda totals: totals["passes"] * lines,
    )


CONSTANT = Topology(1, lambda totals: {"constant": totals["sent"]}, lambda totals: totals["sent"])


def measure(
    name: str,
    topology: Topology,
    results: Path,
    workers: Callable[[], Sequence[psutil.Process]],
    windows: int,
) -> dict[str, Any]:
    """Figures of a topology that was just submitted; it has stopped emitting afterwards. Raises
    WrongCountError when not every word (or tuple) was counted once."""
    _wait(f"{name}: the first acks", lambda: _acked(results) > 0, _FIRST_SECS)
    time.sleep(WARM_SECS)
    found = workers()
    us: list[float] = []
    rates: list[float] = []
    memory = 0.0
    for _ in range(windows):
        at, words, cpu = _sample(results, found, topology)
        time.sleep(WINDOW_SECS)
        at_end, words_end, cpu_end = _sample(results, found, topology)
        # The spouts' counts are as old as their files: so rates, each with its own clock.
        rate = (words_end - words) / (at_end[0] - at[0])
        us.append(1e6 * (cpu_end - cpu) / (at_end[1] - at[1]) / rate)
        rates.append(rate)
        memory = max(memory, *(rss_mb(process) for process in found))
    (results / "stop").touch()
    totals = _settle(name, results)
    expected = topology.counts(totals)
    _wait(
        f"{name}: the last counts", lambda: _counts(results) == expected, _COUNT_SECS, hint=results
    )
    if totals["failed"] or totals["sent"] != topology.sent(totals):
        raise WrongCountError(f"{name}: {totals}")
    return {
        "cpu_us_a_word": round(statistics.median(us), 3),
        "cpu_us_all": [round(value, 3) for value in us],
        "words_sec": round(statistics.median(rates)),
        "rss_mb": round(memory),
        "words_checked": totals["sent"] * topology.tuples_a_message,
    }


def _rows(results: Path) -> list[tuple[float, list[int]]]:
    rows = []
    for file in results.glob("lines-*"):
        numbers = [int(word) for word in file.read_text().split()]
        rows.append((file.stat().st_mtime, numbers))
    return rows


def _acked(results: Path) -> int:
    return sum(numbers[1] for _, numbers in _rows(results))


def _sample(
    results: Path, found: Sequence[psutil.Process], topology: Topology
) -> tuple[tuple[float, float], float, float]:
    """((time of the counts, time of the CPU), words, CPU seconds)."""
    rows = _rows(results)
    counted_at = statistics.fmean(at for at, _ in rows)
    words = topology.tuples_a_message * sum(numbers[1] for _, numbers in rows)
    return (counted_at, time.monotonic()), words, sum(cpu_secs(process) for process in found)


def _settle(name: str, results: Path) -> Mapping[str, int]:
    """Wait until every spout has stopped and every line is acked."""
    totals: dict[str, int] = {}

    def done() -> bool:
        numbers = [row for _, row in _rows(results)]
        for at, key in enumerate(("sent", "acked", "failed", "passes")):
            totals[key] = sum(row[at] for row in numbers)
        return all(row[4] for row in numbers) and totals["acked"] == totals["sent"]

    _wait(f"{name}: every line to be acked", done, _LAST_SECS, hint=totals)
    return totals


def _counts(results: Path) -> dict[str, int]:
    counts: dict[str, int] = {}
    for file in results.glob("count-*"):
        for line in file.read_text().splitlines():
            word, n = line.split()
            counts[word] = counts.get(word, 0) + int(n)
    return counts


def _wait(what: str, probe: Callable[[], bool], secs: float, hint: object = "") -> None:
    deadline = time.monotonic() + secs
    while not probe():
        if time.monotonic() > deadline:
            error = WrongCountError if hint else RunError
            raise error(f"waited {secs:.0f} s for {what} {hint}".rstrip())
        time.sleep(0.2)
