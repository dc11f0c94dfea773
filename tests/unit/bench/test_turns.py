"""How two sides are compared by turns; what runs in their checkouts is in tests/component."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from bench import turns
from bench.__main__ import SUBJECTS, subject
from bench.runs import ROOT, Case
from bench.turns import Side, TurnsError, Way

HERE = str(ROOT)


def way(label: str, at_once: int = 1) -> Way:
    return Way(label, Side(label, ROOT, {}), at_once)


def figures(cpu_us: float, wall_secs: float = 1.0) -> dict[str, float]:
    return {"cpu_us": cpu_us, "wall_secs": wall_secs}


def checkout(folder: Path) -> Path:
    for name in ("bench/runs.py", ".venv/bin/python"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).touch(0o755)
    return folder


def test_a_side_is_a_directory_with_options_of_the_topology(tmp_path: Path) -> None:
    folder = checkout(tmp_path / "be:fore")
    text = f"{folder}:topology.workers=2:topology.kryo.register=a:b=c:topology.debug=true"
    side = Side.parse(text)
    assert (side.name, side.folder) == (text, folder)
    assert side.conf == {
        "topology.workers": 2,
        "topology.kryo.register": "a",
        "b": "c",
        "topology.debug": True,
    }
    assert Side.parse(str(folder)).conf == {}


def test_a_directory_that_cannot_be_measured_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TurnsError, match=r"has no bench/runs\.py"):
        Side.parse(f"{tmp_path}:topology.workers=2")
    (checkout(tmp_path) / ".venv/bin/python").unlink()
    with pytest.raises(TurnsError, match=f"^{tmp_path}: no .venv in .*: run make there$"):
        Side.parse(str(tmp_path))


def test_each_round_reverses_the_order_of_the_one_before() -> None:
    order: list[str] = []

    def measure(label: str, case: str) -> dict[str, float]:
        order.append(label + case)
        return figures(len(order))

    taken = turns.take(
        3, ["x", "y"], [lambda case: measure("A", case), lambda case: measure("B", case)]
    )
    assert order == ["Ax", "Bx", "Ay", "By", "Bx", "Ax", "By", "Ay", "Ax", "Bx", "Ay", "By"]
    pairs = [(one["cpu_us"], other["cpu_us"]) for one, other in taken["x"]]
    assert pairs == [(1, 2), (6, 5), (9, 10)]  # A's first, whichever ran first


def test_the_ratio_is_of_medians_and_the_range_of_each_round() -> None:
    pairs = [(1.0, 2.0), (2.0, 2.0), (4.0, 6.0)]
    taken = {"words": [(figures(a, 2.0), figures(b, 3.0)) for a, b in pairs]}
    table = turns.table("title", [way("A"), way("B")], taken, [])
    assert table.columns == ["case", "", "A", "B", "B/A", "range"]
    assert table.rows == [
        ["words", "CPU, us a tuple", "2.00", "2.00", "1.00x", "1.00-2.00"],
        ["words", "time, s", "2.00", "3.00", "1.50x", "1.50-1.50"],
    ]


def test_latencies_become_percentiles_where_both_took_them() -> None:
    printed = {"cpu_us": 1.0, "wall_secs": 2.0, "latencies_us": [float(n) for n in range(1001)]}
    found = turns.figures_of(printed)
    assert found == {"cpu_us": 1.0, "wall_secs": 2.0, "p50": 500.0, "p99": 990.0}
    without = turns.figures_of({**printed, "latencies_us": []})
    assert without == figures(1.0, 2.0)
    both = turns.table("", [way("A"), way("B")], {"l": [(found, found)]}, [])
    assert [row[1] for row in both.rows][2:] == ["latency p50, us", "latency p99, us"]
    one = turns.table("", [way("A"), way("B")], {"l": [(found, without)]}, [])
    assert len(one.rows) == 2


def test_the_figures_of_runs_at_the_same_time_are_their_means(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[tuple[Any, ...]] = []

    def ask(side: Side, code: str, *arguments: str, at_once: int) -> list[Any]:
        asked.append((*arguments, at_once))
        return [{**figures(us), "latencies_us": []} for us in (1.0, 4.0)[:at_once]]

    monkeypatch.setattr(turns, "ask", ask)
    assert way("alone").measure("scale", "workers_1") == figures(1.0)
    assert way("beside", at_once=2).measure("scale", "workers_1") == figures(2.5)
    assert asked == [("scale", "workers_1", "{}", 1), ("scale", "workers_1", "{}", 2)]


def test_all_subjects_that_run_cases_of_topologies_can_be_compared() -> None:
    # The cases of nexmark-peers are those of nexmark.
    several = {name for name in SUBJECTS if isinstance(subject(name).cases()[0], Case)}
    assert set(turns.SUBJECTS) == several - {"nexmark-peers"}


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([HERE], "two without it"),
        ([HERE, HERE, "--control"], "one side with --control"),
        ([HERE, HERE, "--rounds", "0"], "at least one round"),
        ([HERE, HERE, "--subject", "peers"], "invalid choice: 'peers'"),
        ([HERE, "/nowhere"], "/nowhere: no checkout of Squall"),
    ],
)
def test_wrong_usage_is_refused_before_anything_runs(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        turns.main(["--cases", "word_count", *arguments])
    assert ended.value.code == 2
    assert said in capsys.readouterr().err
