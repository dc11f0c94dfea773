"""A benchmark counts only when its result is right."""

import dataclasses
import json
import subprocess
import sys

import pytest
from bench import __main__ as command
from bench import headline
from bench.headline import numbers, route, word_count
from bench.runs import Case, RunError, WrongCountError, measure, run

from squall_engine import core

LINES = 500
WORDS = LINES * 8


def small(style="tuple", **more):
    return word_count("wc", style, lines=LINES, rounds=1, core=core.NAME, **more)


@pytest.mark.parametrize("style", ["tuple", "readme", "columns"])
def test_every_style_counts_alike(style):
    assert run(small(style)).cpu_secs > 0


@pytest.mark.parametrize(
    "wrong",
    [
        {"words_of": (LINES, 2)},
        {"words_of": (LINES - 1, 1)},
        {"messages": LINES - 1},
        {"executed": {"count": WORDS + 1}},
    ],
)
def test_a_wrong_count_is_not_a_result(wrong):
    with pytest.raises(WrongCountError):
        run(dataclasses.replace(small(), **wrong))


def test_a_run_that_does_not_end_is_killed_and_gives_no_result():
    endless = Case("endless", "shapes.waiting", {"total": 1, "secs": 60}, 1, core=core.NAME)
    with pytest.raises(RunError, match="endless"):
        run(endless, life_secs=1.0)


def test_workers_of_two_runs_do_not_meet(monkeypatch):
    ids = []

    def popen(command, **_):
        ids.append(json.loads(command[-1])["topology_id"])
        raise OSError("no process")

    monkeypatch.setattr(subprocess, "Popen", popen)
    for _ in range(2):
        with pytest.raises(RunError, match="no process"):
            run(small(workers=2))
    assert len(set(ids)) == 2


@pytest.mark.parametrize("kind", ["all", "direct", "custom"])
def test_every_route_delivers_all_tuples(kind):
    case = dataclasses.replace(route(kind, kind, "", total=100), core=core.NAME)
    assert case.executed["sink"] == (400 if kind == "all" else 100)
    run(case)


def test_two_workers_are_measured_beside_the_plain_loop():
    report = measure([small(workers=2)], 1, LINES, 1)
    assert report["cases"]["wc"]["ratio_to_plain"] > 0
    assert report["cases"]["wc"]["tuples_checked"] == 2 * WORDS


def bench(monkeypatch, folder, cases, *arguments):
    monkeypatch.setattr(headline, "cases", lambda: cases)
    monkeypatch.setattr(
        sys, "argv", ["bench", "headline", "--pairs", "1", "--output", str(folder), *arguments]
    )
    return command.main()


def test_the_command_writes_what_it_measured(monkeypatch, tmp_path, capsys):
    case = numbers("few", acked=True, total=1000, core=core.NAME, goal_millions=1e-9)
    assert bench(monkeypatch, tmp_path, [case], "--json") == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown == json.loads((tmp_path / "headline.json").read_text())
    assert shown["cases"]["few"]["tuples_checked"] == 1000
    assert [row[-1] for row in headline.tables(shown)[0].rows] == ["yes"]


def test_a_wrong_count_ends_the_command_with_status_1(monkeypatch, tmp_path, capsys):
    case = numbers("few", acked=True, total=1000, core=core.NAME)
    wrong = dataclasses.replace(case, executed={"sink": 1001})
    assert bench(monkeypatch, tmp_path, [wrong]) == 1
    assert "sink executed 1000 tuples, not 1001" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())
