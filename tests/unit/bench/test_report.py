"""Figures get into the documentation, and only right ones."""

import json
import sys

import pytest
from bench import __main__ as command
from bench import peers, report
from bench.peers import compare, running
from bench.report import ReportError, replace
from bench.runs import WrongCountError
from bench.topologies import make_lines, plain_loop

PAGE = "# P\n\n<!-- bench:idle -->\nold\n<!-- /bench:idle -->\n\nafter\n"
IDLE = {
    "benchmark": "idle",
    "cores": 2,
    "processor": "a processor",
    "machine": "x86_64",
    "python": "3.11.1",
    "taken": {"secs": 30, "load_before": 0.1, "load_after": 0.2, "others_percent": 1.0},
    "pairs": 3,
    "window_secs": 10.0,
    "cases": {
        "Nimbus": {
            "title": "Nimbus",
            "rss_mb": 37.0,
            "uss_mb": 24.0,
            "cpu_percent": 0.1,
            "goal_rss_mb": 100.0,
            "goal_cpu_percent": 1.0,
        }
    },
}


def test_a_block_is_filled_anew_and_the_rest_stays():
    page = replace(PAGE, "idle", "new")
    assert page == PAGE.replace("old", "new")
    assert replace(page, "idle", "old") == PAGE


@pytest.mark.parametrize("page", ["", PAGE + PAGE, "<!-- /bench:idle -->\n<!-- bench:idle -->"])
def test_a_page_without_one_block_is_left_alone(page):
    with pytest.raises(ReportError, match="bench:idle"):
        replace(page, "idle", "new")


def write(monkeypatch, folder, *arguments):
    (folder / "page.md").write_text(PAGE)
    monkeypatch.setattr(
        sys,
        "argv",
        ["report", "--output", str(folder), "--page", str(folder / "page.md"), *arguments],
    )
    return report.main()


def test_measurements_are_written_with_the_machine(monkeypatch, tmp_path):
    (tmp_path / "idle.json").write_text(json.dumps(IDLE))
    assert write(monkeypatch, tmp_path) == 0
    page = (tmp_path / "page.md").read_text()
    assert "| Nimbus | 37.0 | 24.0 | 0.10 % | 100 MB, 1 % | yes | 206 |" in page
    assert "2 cores of a processor" in page
    assert "others used 1 %" in page
    assert "not compiled" not in page


def test_a_report_says_that_modules_were_not_compiled(monkeypatch, tmp_path):
    (tmp_path / "idle.json").write_text(json.dumps(IDLE | {"modules": "python"}))
    assert write(monkeypatch, tmp_path) == 0
    assert "the engine's modules not compiled; " in (tmp_path / "page.md").read_text()


@pytest.mark.parametrize("text", [None, "no JSON", json.dumps(IDLE | {"benchmark": "scale"})])
def test_an_invalid_report_changes_nothing(monkeypatch, tmp_path, capsys, text):
    if text is not None:
        (tmp_path / "idle.json").write_text(text)
    assert write(monkeypatch, tmp_path, "idle") == 1
    assert (tmp_path / "page.md").read_text() == PAGE
    assert capsys.readouterr().err.startswith("error: ")


def test_the_page_has_a_block_for_every_subject():
    for name in report.SUBJECTS:
        replace(report.PAGES.get(name, report.PAGE).read_text(), name, "")


def test_peers_stand_beside_ours_and_what_is_missing_is_named():
    rows = {
        "squall_1": {"title": "Squall", "cpu_us_a_word": 0.25, "cpu_us_all": [0.25]},
        "other": {"title": "Other", "cpu_us_a_word": 2.5, "cpu_us_all": [2.0, 2.5, 3.0]},
        "none": {"title": "None", "skipped": "no wheel"},
    }
    for row in rows.values():
        row |= {"guarantee": "none", "words_sec": 1e6}
    (table,) = compare.tables({"pairs": 3, "cases": rows})
    assert [row[1:4] for row in table.rows] == [
        ["0.250", "0.250-0.250", "1.0x"],
        ["2.50", "2.00-3.00", "10.0x"],
    ]
    assert "None: left out (no wheel)." in table.notes


def take_peers(monkeypatch, folder, error):
    def fails(*_):
        raise error

    peer = compare.Peer("other", "Other", "none", script="with_other")
    monkeypatch.setattr(compare, "environment", lambda _: folder)
    monkeypatch.setattr(compare, "_script", fails)
    monkeypatch.setattr(peers, "cases", lambda: [peer])
    monkeypatch.setattr(compare, "cases", lambda: [peer])
    monkeypatch.setattr(sys, "argv", ["bench", "peers", "--pairs", "2", "--output", str(folder)])
    status = command.main()
    return status, json.loads((folder / "peers.json").read_text())["cases"]["other"]


def test_a_peer_that_does_not_run_is_left_out(monkeypatch, tmp_path):
    status, row = take_peers(monkeypatch, tmp_path, compare.UnavailableError("no wheel"))
    assert (status, row["skipped"]) == (0, "no wheel")
    assert "cpu_us_a_word" not in row


def test_a_peer_that_counts_wrong_is_left_out_and_the_status_is_1(monkeypatch, tmp_path, capsys):
    status, row = take_peers(monkeypatch, tmp_path, WrongCountError("a word too many"))
    assert (status, row["skipped"]) == (1, "a word too many")
    assert "error: peers: a word too many" in capsys.readouterr().err


class Process:
    """Stands in for the worker of a cluster."""

    pid = 0

    def cpu_times(self):
        from types import SimpleNamespace

        return SimpleNamespace(user=1.0, system=0.0)

    def memory_info(self):
        from types import SimpleNamespace

        return SimpleNamespace(rss=50_000_000)


def results(folder, passes, *, lost=0):
    """What a word count has written after its end, with two counters."""
    lines = 10
    sent = passes * lines
    (folder / "lines-1").write_text(f"{sent} {sent} 0 {passes} 1")
    counts = [(word, n * passes) for word, n in plain_loop(make_lines(lines), 1).items()]
    counts[0] = (counts[0][0], counts[0][1] - lost)
    half = len(counts) // 2
    for task, some in ((2, counts[:half]), (3, counts[half:])):
        (folder / f"count-{task}").write_text("".join(f"{word} {n}\n" for word, n in some))


def test_a_cluster_that_lost_a_word_gives_no_figure(monkeypatch, tmp_path):
    monkeypatch.setattr(running, "WARM_SECS", 0)
    monkeypatch.setattr(running, "_COUNT_SECS", 0.1)
    results(tmp_path, 3, lost=1)
    with pytest.raises(WrongCountError, match="the last counts"):
        running.measure("it", running.word_count(10), tmp_path, lambda: [Process()], windows=0)


def test_a_cluster_that_counted_every_word_does(monkeypatch, tmp_path):
    monkeypatch.setattr(running, "WARM_SECS", 0)
    results(tmp_path, 3)
    monkeypatch.setattr(running, "_sample", lambda *_: next(samples))
    samples = iter([((0.0, 0.0), 0.0, 0.0), ((1.0, 2.0), 1e6, 1.0)])
    monkeypatch.setattr(running, "WINDOW_SECS", 0)
    row = running.measure("it", running.word_count(10), tmp_path, lambda: [Process()], windows=1)
    # Half a core for a million words a second.
    assert row["cpu_us_a_word"] == 0.5
    assert row["words_checked"] == 240
