"""The workers of a real cluster beside the bench's own processes: the same word count, by turns.

    python -m bench cluster

A cluster of `storm dev` with the default configuration has a topology for each number of workers,
which does nothing until a round is ordered (`cluster_topologies/rounds_topology.py`). Each round on
the cluster stands beside a run of the headline's word count with as many lines. So the ratio is
what the cluster adds: reports, heartbeats, metrics, history, ZooKeeper, logs.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.support.devcluster import DevCluster

from bench import clusters
from bench.headline import LINES, word_count
from bench.runs import RunError, WrongCountError, run
from bench.tables import Table, met, number
from bench.topologies import WORDS_A_LINE, make_lines, plain_loop
from squall_engine import core

PASSES = 10  # over the lines, of each spout: a round takes about a second
GOAL, LIMIT = 1.15, 1.3  # times the bench's own processes, with two workers
_ROUND_SECS = 300.0  # at most; a second or two on a quiet machine
_POLL_SECS = 0.02


@dataclass(frozen=True, slots=True)
class Case:
    name: str
    title: str
    workers: int
    goal: float | None = None
    limit: float | None = None


def cases() -> list[Case]:
    return [
        Case("one_worker", "word count, acked, one worker", 1),
        Case("two_workers", "word count, acked, two workers", 2, GOAL, LIMIT),
    ]


def cpu_secs(pid: int) -> float:
    """Of all threads that the process has or had, by the clock that it reads as
    `time.process_time()`: the kernel's clock of another process has this number."""
    return time.clock_gettime((~pid << 3) | 2)


@dataclass(slots=True)
class Rounds:
    """A topology that waits for orders in its folder."""

    case: Case
    folder: Path
    pids: Sequence[int]  # of its workers
    number: int = 0

    def run(self, lines: int, passes: int) -> float:
        """CPU of its workers for one round, in seconds. Raises WrongCountError unless every word
        was counted as often as it was emitted and every line was acked."""
        self.number += 1
        before = sum(map(cpu_secs, self.pids))
        (self.folder / f"round-{self.number}").touch()
        reports = self._wait("lines")
        cpu = sum(map(cpu_secs, self.pids)) - before
        (self.folder / f"counted-{self.number}").touch()
        counts: dict[str, int] = {}
        for text in self._wait("count"):
            for line in text.splitlines():
                word, n = line.split()
                counts[word] = counts.get(word, 0) + int(n)
        emitted = lines * passes
        if reports != [f"{emitted} {emitted} 0"] * self.case.workers:
            raise WrongCountError(f"{self.case.name}: sent, acked, failed: {reports}")
        once = plain_loop(make_lines(lines), 1)
        if counts != {word: n * passes * self.case.workers for word, n in once.items()}:
            raise WrongCountError(f"{self.case.name}: the counts of some words are wrong")
        return cpu

    def _wait(self, kind: str) -> list[str]:
        """What each task has written about this round."""
        deadline = time.monotonic() + _ROUND_SECS
        while True:
            files = list(self.folder.glob(f"{kind}-*-{self.number}"))
            if len(files) == self.case.workers:
                return [file.read_text() for file in files]
            if time.monotonic() > deadline:
                raise RunError(
                    f"{self.case.name}: {len(files)} of {self.case.workers} tasks wrote "
                    f"{kind} of round {self.number} in {_ROUND_SECS:.0f} s"
                )
            time.sleep(_POLL_SECS)


def take(
    pairs: int, only: set[str] | None = None, lines: int = LINES, passes: int = PASSES
) -> dict[str, Any]:
    """`pairs` rounds of each case, by turns with the bench's own processes."""
    chosen = [case for case in cases() if only is None or case.name in only]
    own: dict[str, list[float]] = {case.name: [] for case in chosen}
    real: dict[str, list[float]] = {case.name: [] for case in chosen}
    try:
        with (
            tempfile.TemporaryDirectory(prefix="squall-rounds-") as name,
            clusters.cluster(slots=sum(case.workers for case in chosen)) as cluster,
        ):
            rounds = _submit(cluster, chosen, Path(name), lines, passes)
            for at in range(pairs + 1):
                warm_up = at == 0  # connections, rings, and code that the interpreter specializes
                if not warm_up:
                    print(f"round {at} of {pairs}", file=sys.stderr, flush=True)
                for case in chosen:
                    on_cluster = rounds[case.name].run(lines, passes)
                    if not warm_up:
                        real[case.name].append(on_cluster)
                        own[case.name].append(_alone(case, lines, passes))
            for case in chosen:
                cluster.storm("kill", case.name, "-w", "0")
                cluster.wait_gone(case.name)
    except AssertionError as error:
        raise RunError(f"the cluster: {error}") from error
    return {
        "pairs": pairs,
        "counts_checked": True,
        "cases": {
            case.name: _row(case, own[case.name], real[case.name], lines * passes)
            for case in chosen
        },
    }


def _submit(
    cluster: DevCluster, chosen: Sequence[Case], folder: Path, lines: int, passes: int
) -> dict[str, Rounds]:
    """The topologies, each with its workers started."""
    file = folder / "lines.txt"
    file.write_text("\n".join(make_lines(lines)) + "\n")
    found: dict[str, Rounds] = {}
    seen: set[int] = set()
    for case in chosen:
        results = folder / case.name
        results.mkdir()
        arguments = (case.name, str(file), str(results), str(case.workers), str(passes))
        cluster.storm("jar", clusters.TOPOLOGIES, "rounds_topology", *arguments)
        pids = cluster.worker_pids(len(seen) + case.workers) - seen
        seen |= pids
        found[case.name] = Rounds(case, results, sorted(pids))
    return found


def _alone(case: Case, lines: int, passes: int) -> float:
    """CPU of the bench's own processes for the same."""
    own = word_count(case.name, workers=case.workers, lines=lines, rounds=passes, core=core.NAME)
    return run(own, _ROUND_SECS).cpu_secs


def _row(
    case: Case, own: Sequence[float], real: Sequence[float], lines_each: int
) -> dict[str, Any]:
    words = lines_each * case.workers * WORDS_A_LINE
    ratios = sorted(cluster / alone for cluster, alone in zip(real, own, strict=True))
    row: dict[str, Any] = {
        "title": case.title,
        "workers": case.workers,
        "own_us_a_word": round(1e6 * statistics.median(own) / words, 4),
        "cluster_us_a_word": round(1e6 * statistics.median(real) / words, 4),
        "ratio": round(statistics.median(ratios), 3),
        "ratios": [round(ratio, 3) for ratio in ratios],
        "words_checked": words,
    }
    if case.goal is not None:
        row |= {"goal": case.goal, "limit": case.limit}
    return row


def tables(report: Mapping[str, Any]) -> list[Table]:
    rows = []
    for row in report["cases"].values():
        spread = row["ratios"]
        goal, limit = row.get("goal"), row.get("limit")
        rows.append(
            [
                row["title"],
                number(row["own_us_a_word"]),
                number(row["cluster_us_a_word"]),
                f"{row['ratio']:.2f}x ({spread[0]:.2f}-{spread[-1]:.2f})",
                f"{goal:g}x" if goal else "",
                f"{limit:g}x" if limit else "",
                met(row["ratio"], goal, limit, at_most=True),
            ]
        )
    columns = [
        "CPU, us a word", "the bench's processes", "a cluster's workers", "ratio", "goal", "limit",
        "met",
    ]  # fmt: skip
    note = (
        f"Medians of {report['pairs']} pairs by turns; every count was exact. CPU of the processes "
        "that handle words, with all that a worker of a cluster does beside them."
    )
    return [Table("On a real cluster", columns, rows, [note])]
