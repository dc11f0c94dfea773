"""Word count in rounds: what a round counts, and what its figures are compared with."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import pytest
from bench import cluster_rounds, clusters
from bench.runs import WrongCountError
from bench.topologies import make_lines

from squall import LocalCluster
from squall_common.topology.model import Topology

LINES, PASSES, TASKS = 40, 3, 2
CASE = cluster_rounds.Case("two", "two", TASKS, 1.15, 1.3)


@pytest.fixture
def topology(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Topology:
    """What runs on the cluster."""
    monkeypatch.syspath_prepend(str(clusters.TOPOLOGIES))
    for name in ("words_topology", "rounds_topology"):  # after the test the path is gone
        monkeypatch.delitem(sys.modules, name, raising=False)
    import rounds_topology  # type: ignore[import-not-found]

    (tmp_path / "lines").write_text("\n".join(make_lines(LINES)) + "\n")
    made: Topology = rounds_topology.topology(str(tmp_path / "lines"), str(tmp_path), TASKS, PASSES)
    return made


def test_each_round_counts_all_words_from_0_on(topology: Topology, tmp_path: Path) -> None:
    rounds = cluster_rounds.Rounds(CASE, tmp_path, [os.getpid()])
    with LocalCluster() as cluster:
        cluster.submit_topology("rounds", {}, topology)
        for _ in range(2):
            assert rounds.run(LINES, PASSES) > 0
    assert rounds.number == 2


@pytest.mark.parametrize(
    ("lines", "passes", "wrong"),
    [(LINES, PASSES + 1, "sent, acked, failed"), (LINES - 1, PASSES, "sent, acked, failed")],
)
def test_a_round_that_counted_something_else_is_an_error(
    topology: Topology, tmp_path: Path, lines: int, passes: int, wrong: str
) -> None:
    rounds = cluster_rounds.Rounds(CASE, tmp_path, [os.getpid()])
    with LocalCluster() as cluster:
        cluster.submit_topology("rounds", {}, topology)
        with pytest.raises(WrongCountError, match=wrong):
            rounds.run(lines, passes)


def test_a_word_too_many_is_an_error(tmp_path: Path) -> None:
    case = cluster_rounds.Case("one", "one", 1)
    emitted = LINES * PASSES
    (tmp_path / "lines-1-1").write_text(f"{emitted} {emitted} 0")
    words = " ".join(make_lines(LINES)).split()
    (tmp_path / "count-2-1").write_text(
        "".join(f"{word} {words.count(word) * PASSES}\n" for word in set(words)) + "more 1\n"
    )
    with pytest.raises(WrongCountError, match="counts of some words are wrong"):
        cluster_rounds.Rounds(case, tmp_path, [os.getpid()]).run(LINES, PASSES)


@pytest.mark.parametrize(
    ("real", "verdict"), [((1.1, 1.2, 1.1), "yes"), ((1.2, 1.2, 1.1), "limit"), ((2, 1, 3), "NO")]
)
def test_two_workers_are_judged_by_the_ratio_within_a_pair(
    real: tuple[float, ...], verdict: str
) -> None:
    two = next(case for case in cluster_rounds.cases() if case.workers == 2)
    row = cluster_rounds._row(two, [1.0, 1.0, 1.0], real, lines_each=1_000)
    (table,) = cluster_rounds.tables({"pairs": 3, "cases": {"two": row}})
    assert table.rows[0][-3:] == ["1.15x", "1.3x", verdict]


def test_the_clock_of_another_process_is_its_own_clock() -> None:
    before = time.process_time()
    seen = cluster_rounds.cpu_secs(os.getpid())
    assert before <= seen <= time.process_time()
