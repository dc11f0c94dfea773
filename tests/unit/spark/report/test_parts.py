"""The pure parts of a report: which history, what the sums mean, what is recommended, and pages
that no name of a topology's can break."""

from __future__ import annotations

import json
import math
from html.parser import HTMLParser
from io import StringIO
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as some

from squall_common.errors import SquallError
from squall_common.history.histogram import bucket_of
from squall_common.history.writer import file_name
from squall_common.names import encode_znode
from squall_spark.report.advise import HIGH, TARGET, advise_bolt, advise_workers, percentile_of
from squall_spark.report.analyse import advice_of, analyse, recoveries
from squall_spark.report.choose import HistoryNotFoundError, choose, choose_id, parse_since
from squall_spark.report.main import VARIABLE, main
from squall_spark.report.page import page
from squall_spark.report.plots import bar_plot, line_plot, nice_ceiling, number, text_of
from squall_spark.report.sums import (
    ErrorSums,
    Event,
    KeySums,
    MetricSums,
    StepSums,
    Sums,
    TaskSums,
    WorkerStep,
    step_ms,
)
from squall_spark.report.terminal import show

EVIL = "</svg><script>alert(1)</script>&\"'<!-- \x1b[31m\u202e\x00]]>"


# ---- which history ----


def test_a_time_is_an_age_or_a_date() -> None:
    now = 1_800_000_000.0
    assert parse_since("90s", now) == now - 90
    assert parse_since(" 1.5h ", now) == now - 5400
    assert parse_since("2d", now) == now - 172_800
    assert parse_since("2026-11-21T09:30", now) == 1_795_253_400
    assert parse_since("2026-11-21T10:30+01:00", now) == 1_795_253_400
    for long_ago in ("9" * 400 + "d", "99999999d", "0001-01-01"):
        assert parse_since(long_ago, now) == 0.0
    for wrong in ("", "soon", "5 weeks", "-3h", "2026-13-01"):
        with pytest.raises(SquallError, match="not a time"):
            parse_since(wrong, now)


def test_a_name_chooses_the_topology_that_was_submitted_last() -> None:
    ids = ["a-1-100", "a-9-50", "a-2-100", "a-b-1-300", "junk", "b-1-1"]
    assert choose_id(ids, "a", "u") == ("a-2-100", ("a-1-100", "a-9-50"))
    assert choose_id(ids, "a-9-50", "u") == ("a-9-50", ("a-2-100", "a-1-100"))
    assert choose_id(ids, "a-b", "u") == ("a-b-1-300", ())
    with pytest.raises(HistoryNotFoundError, match=r"no history of a topology 'c' in u.*a, a-b, b"):
        choose_id(ids, "c", "u")
    with pytest.raises(HistoryNotFoundError, match="none at all"):
        choose_id([], "c", "u")


def test_only_complete_files_since_the_time_are_read(tmp_path: Path) -> None:
    with pytest.raises(HistoryNotFoundError, match="there is no history folder"):
        choose(str(tmp_path / "nowhere"), "top", None)
    odd = "a*{b}[c]?#%-1-100"
    place = tmp_path / encode_znode(odd)
    place.mkdir()
    with pytest.raises(HistoryNotFoundError, match="has no file in"):
        choose(str(tmp_path), odd, None)
    old, new = file_name(1_000_000, "w-1", 1), file_name(9_000_000, "w-1", 2)
    for name in (old, new, f".{new}.half", "_SUCCESS", f"{new}.tmp"):
        (place / name).write_bytes(b"")
    assert choose(str(tmp_path), "a*{b}[c]?#%", None).names == (old, new)
    assert choose(str(tmp_path), odd, 5_000).names == (new,)
    with pytest.raises(HistoryNotFoundError, match="nothing since 1970-01-01 02:46:40 UTC"):
        choose(str(tmp_path), odd, 10_000)
    with pytest.raises(HistoryNotFoundError, match="nothing since 9999-12-31"):
        choose(str(tmp_path), odd, parse_since("9999-12-31T23:59:59-14:00", 0.0))


# ---- steps ----


@given(some.integers(0, 10**12), some.integers(0, 100_000))
def test_steps_are_few_and_no_shorter_than_the_interval(span: int, interval: int) -> None:
    step = step_ms(span, interval)
    assert step >= interval
    assert span / step <= 120


# ---- advice ----


def bolt(busy: list[float], executors: int = 4, tasks: int = 8, **more: Any) -> Any:
    more = {"secs": 600.0, **more}
    return advise_bolt("b", executors=executors, tasks=tasks, busy=busy, **more)


def test_a_bolt_near_its_capacity_gets_executors_until_it_is_at_the_target() -> None:
    advice = bolt([3.6] * 20)
    assert advice.recommended == 6
    assert "capacity 0.90" in advice.why
    assert bolt([3.0] * 20).recommended == 4, "in between nothing changes"
    assert bolt([0.5] * 20).recommended == 1
    assert bolt([0.9] * 20).recommended == 2


def test_a_limit_of_calls_asks_for_no_executors() -> None:
    calm = bolt([1.5] * 20, executors=1, calls_max=800)
    assert (calm.changes, calm.why) == (False, "1.5 of 800 calls under way")
    full = bolt([801.0] * 20, executors=1, calls_max=800)
    assert not full.changes
    assert full.why.startswith("800.0 of 800 calls under way: its limit")
    assert "raise its topology.bolt.async.concurrency (100 for each task)" in full.why
    assert not bolt([0.1] * 20, calls_max=800).changes, "nor for fewer"
    threads = bolt([7.9] * 20, executors=1, calls_max=8)
    assert not threads.changes
    assert "submit it with more tasks" in threads.why
    assert "its keys are hot" in bolt([100.0] * 20, calls_max=800, hottest=0.9).why


def test_a_quiet_night_does_not_hide_the_day() -> None:
    assert bolt([0.0] * 80 + [3.9] * 20).recommended == 7
    assert bolt([0.0] * 99 + [3.9]).recommended == 1, "one step in a hundred is no load"


def test_executors_never_outnumber_tasks() -> None:
    assert bolt([8.0] * 20, tasks=8).recommended == 8
    assert "14 would be needed" in bolt([8.0] * 20, tasks=8).why
    full = bolt([8.0] * 20, executors=8, tasks=8)
    assert not full.changes
    assert "submit it with more tasks" in full.why


def test_too_little_data_is_reported_and_changes_nothing() -> None:
    for advice in (bolt([9.0] * 2), bolt([9.0] * 20, secs=5.0), bolt([])):
        assert not advice.changes
        assert not advice.enough
        assert "too little" in advice.why
    assert not advise_workers(2, [1.9] * 2, 10).enough
    assert bolt([0.9] * 20).enough


def test_a_hot_key_is_not_cured_by_executors() -> None:
    advice = bolt([1.1] * 20, hottest=0.95)
    assert not advice.changes
    assert "keys are hot" in advice.why


@given(
    some.lists(some.floats(0, 100), min_size=3),
    some.integers(1, 20),
    some.integers(0, 20),
)
def test_advice_is_within_bounds_and_stable_once_followed(
    busy: list[float], executors: int, more: int
) -> None:
    tasks = executors + more
    first = bolt(busy, executors, tasks)
    assert 1 <= first.recommended <= tasks
    second = bolt(busy, first.recommended, tasks)
    if first.recommended < tasks:
        peak = percentile_of(busy, 0.95)
        assert second.recommended == first.recommended or peak / first.recommended > HIGH
        assert peak / first.recommended <= max(HIGH, TARGET) + 1e-9 or not first.changes


def test_workers_are_added_for_cpu_and_never_removed() -> None:
    assert advise_workers(2, [1.9] * 10, 10).recommended == 4
    assert advise_workers(2, [1.9] * 10, 3).recommended == 3, "a worker without executors is none"
    assert advise_workers(2, [1.9] * 10, 2).recommended == 2
    assert advise_workers(4, [0.1] * 10, 10).recommended == 4
    assert advise_workers(0, [], 0).recommended == 0


def test_the_cpu_of_workers_that_poll_busily_adds_none() -> None:
    """Each more of them would take a core as well, and the next report would want more again."""
    kept = advise_workers(2, [1.9] * 10, 10, polls=True)
    assert (kept.recommended, kept.changes, kept.enough) == (2, False, False)
    assert "topology.worker.busy.poll.ms" in kept.why
    # One alone has no others to ask, and does not poll.
    assert advise_workers(1, [0.95] * 10, 10, polls=True).recommended == 2
    assert advise_workers(2, [0.5] * 10, 10, polls=True).enough


# ---- analysis ----


def event(at: int, name: str, place: str = "", text: str = "") -> Event:
    return Event(at, name, text, place, "t")


def test_a_recovery_is_the_next_start_of_a_worker_on_the_slot_or_elsewhere() -> None:
    killed = "killed by SIGKILL"
    found = recoveries(
        [
            event(0, "worker running", "a:1"),
            event(10_000, "worker exited", "a:1", killed),
            event(11_000, "worker exited", "b:1", killed),
            event(12_500, "worker running", "a:1"),
            event(20_000, "worker running", "c:1"),
            event(
                30_000,
                "worker exited",
                "c:1",
                "exited with status 0, for new code or configuration",
            ),
            event(31_000, "worker exited", "c:1", "exited with status 1"),
            event(40_000, "worker restart asked for", "d:1"),
            event(41_000, "worker exited", "d:1", "exited with status 0, ended by its supervisor"),
            event(42_000, "worker exited", "d:1", killed),
            event(50_000, "worker restart asked for", "d:1"),
            event(50_500, "worker killed", "d:1", "it used 900 MiB, more than its limit"),
            event(51_000, "worker exited", "d:1", killed),
        ]
    )
    assert [(one["place"], one["secs"], one["running_on"]) for one in found] == [
        ("a:1", 2.5, "a:1"),
        ("b:1", 9.0, "c:1"),
        ("c:1", None, None),
        ("d:1", None, None),
        ("d:1", None, None),
    ]


def sums(name: str = "work") -> Sums:
    """Ten steps of ten seconds: a spout, and a bolt of four tasks on two executors, one of which
    has seven tenths of the work."""
    made = Sums(from_ms=0, to_ms=100_000, step_ms=10_000)
    made.tasks.append(
        TaskSums("src", 1, 1, True, 100.0, 100_000, emitted=1000, acked=900, failed=100)
    )
    for task, n in ((2, 700), (3, 100), (4, 100), (5, 100)):
        made.tasks.append(
            TaskSums(name, task, 2 if task < 4 else 4, False, 100.0, 100_000, executed=n,
                     acked=n, busy_secs=n * 0.17)
        )  # fmt: skip
    for t in range(0, 100_000, 10_000):
        made.steps["src", t] = StepSums(
            emitted=100, acked=90, failed=10, secs=10.0, emitted_per_sec=10.0, waiting_max=5
        )
        made.steps[name, t] = StepSums(executed=100, acked=100, busy_secs=17.0, secs=40.0)
        made.latencies["src", "complete", t] = {bucket_of(0.02): 95, bucket_of(2.0): 5}
        made.latencies[name, "execute", t] = {bucket_of(0.17): 100}
        made.workers["h:1", t] = WorkerStep(9.5, 10.0, 1e8)
    made.keys.append(
        KeySums("src", "default", f"{name} by k", 0.1, 100, 0, [(EVIL, 60, 2), ("x", 5, 3)])
    )
    made.events = [event(5_000, "worker exited", "h:1", "killed"), event(9_000, "killed")]
    made.errors.append(ErrorSums(name, EVIL, 7, 1_000, 2_000))
    made.metrics.append(MetricSums(name, "odd", 3, math.nan))
    made.lost = {"queue full": 3}
    return made


def report(name: str = "work") -> dict[str, Any]:
    return analyse(sums(name), topology_id="top-1-1", earlier=["top-0-1"], url="u", made_at_ms=7)


def test_the_report_interprets_the_sums() -> None:
    made = report()
    spout, work = made["components"]["src"], made["components"]["work"]
    assert list(made["components"]) == ["src", "work"], "spouts first"
    assert (spout["emitted"], spout["acked"], spout["failed"]) == (1000, 900, 100)
    assert spout["over_time"]["per_sec"][:10] == [10.0] * 10
    assert spout["latency_ms"]["complete"]["p50"] == pytest.approx(20, rel=0.05)
    assert spout["latency_ms"]["complete"]["p95"] == pytest.approx(20, rel=0.05)
    assert spout["latency_ms"]["complete"]["p99"] == pytest.approx(2000, rel=0.05)
    assert (work["tasks"], work["executors"], work["executed"]) == (4, 2, 1000)
    # 170 s in execute, two executors, 100 s.
    assert work["capacity"] == pytest.approx(0.85)
    assert work["capacity_peak"] == pytest.approx(0.85)
    assert work["skew"]["ratio"] == pytest.approx(2.8)
    assert work["skew"]["top_task"] == 2
    assert made["hot_keys"][0]["top"][0]["share"] == 0.6
    advice = {one.component: one for one in advice_of(made)}
    assert advice["work"].recommended == 3
    assert advice["src"].recommended == 1
    assert advice[""].recommended == 2
    assert made["recoveries"][0]["secs"] is None
    assert any("queue full" in note for note in made["notes"])
    assert any("top-0-1" in note for note in made["notes"])
    json.dumps(made, allow_nan=False)


# ---- pages ----


class Tags(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))


def test_a_page_has_no_script_and_loads_nothing_whatever_the_names_contain() -> None:
    made = page(report(EVIL))
    parser = Tags()
    parser.feed(made)
    names = {tag for tag, _ in parser.tags}
    assert not names & {"script", "img", "link", "iframe", "object", "a", "image", "use"}
    for tag, attributes in parser.tags:
        assert not any(name.startswith("on") or name in ("src", "href") for name in attributes), tag
    assert "default-src 'none'" in made
    assert "\x1b" not in made
    assert "\u202e" not in made
    assert text_of(EVIL) in made
    svgs = made.split("<svg")[1:]
    assert len(svgs) >= 9
    for svg in svgs:
        ElementTree.fromstring("<svg" + svg.partition("</svg>")[0] + "</svg>")


def test_the_terminal_shows_control_characters_in_names_without_obeying_them() -> None:
    out = StringIO()
    show(report("[red]x[/red]" + EVIL), out)
    text = out.getvalue()
    assert "\x1b[31m" not in text
    assert "\u202e" not in text
    assert "[red]x" in text
    assert "Recommended parallelism" in text
    assert "60.0 %" in text


def test_the_terminal_folds_names_but_not_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    made = report("a-component-with-a-name-of-some-length")
    work = made["components"]["a-component-with-a-name-of-some-length"]
    work["capacity"], work["executed"] = 1.51e-05, 123_456
    work["latency_ms"]["execute"] = {"p50": 0.001483, "p95": 0.00295, "p99": 12345.6}
    out = StringIO()
    show(made, out)
    text = out.getvalue()
    for word in ("123k", "0.00148", "0.00295", "12.3k", " 0.00 ", "capacity", "p99 ms"):
        assert word in text


@given(some.text(), some.lists(some.none() | some.floats(0, 1e12), max_size=6))
def test_a_plot_is_well_formed_xml_whatever_its_values(
    name: str, values: list[float | None]
) -> None:
    steps = [1_000 * i for i in range(len(values))]
    made = line_plot(name, steps, [(name, values)], unit="x", marks=[(1_000, name)])
    ElementTree.fromstring(f"<div>{made}</div>")
    bars = {name: 1.0, name + "2": 0.0}
    ElementTree.fromstring(f"<div>{bar_plot(name, bars, unit='%', mean=0.5)}</div>")


def test_points_are_where_their_values_are() -> None:
    made = line_plot("t", [0, 10_000, 20_000], [("a", [0.0, 10.0, None])], unit="x")
    (line,) = ElementTree.fromstring(f"<div>{made}</div>").findall(".//{*}polyline")
    (x0, y0), (x1, y1) = (map(float, p.split(",")) for p in line.attrib["points"].split())
    assert (x0, y0) == (64.0, 194.0), "zero is at the bottom, the first step at the left"
    assert (x1, y1) == (456.0, 16.0), "the greatest at the top, the second step in the middle"


def test_numbers_are_short() -> None:
    assert [number(v) for v in (0, 3, 0.1234, 12.345, 1234, 12_345, 3.6e6, None, math.inf)] == [
        "0", "3", "0.123", "12.3", "1234", "12.3k", "3.6M", "-", "-",
    ]  # fmt: skip
    assert [nice_ceiling(v) for v in (0, 0.3, 1, 2.2, 37, 1e6)] == [1, 0.5, 1, 2.5, 50, 1e6]
    assert nice_ceiling(5e-324) == 1


# ---- the process ----


def ordered(**changes: Any) -> dict[str, str]:
    return {VARIABLE: json.dumps({"topology": "top", "history": "u", "spark_conf": [], **changes})}


def test_a_report_that_cannot_be_written_is_refused_before_the_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("squall_spark.report.main.check_requirements", lambda env: None)
    monkeypatch.setattr("squall_spark.report.main.make", lambda order, now: pytest.fail("made"))
    for name in ("json_file", "html_file"):
        assert main(ordered(**{name: str(tmp_path / "nowhere" / "r")})) == 1
        assert "nowhere/r cannot be written" in capsys.readouterr().err


def test_a_report_is_shown_even_if_its_file_cannot_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("squall_spark.report.main.check_requirements", lambda env: None)
    monkeypatch.setattr("squall_spark.report.main.make", lambda order, now: report())
    (tmp_path / "folder").mkdir()
    assert main(ordered(json_file=str(tmp_path / "folder"))) == 1
    said = capsys.readouterr()
    assert "folder cannot be written" in said.err
    assert "Recommended parallelism" in said.out
    assert main(ordered(json_file=str(tmp_path / "r.json"))) == 0
    assert json.loads((tmp_path / "r.json").read_text())["format"] == 1


def test_a_page_opens_with_a_verdict_and_its_plots_can_be_read() -> None:
    made = page(report())
    opening = made[made.index("<h1>") : made.index("<h2>")]
    assert opening.count("<p>") == 3
    plot = made[made.index("tuples/s") : made.index("Complete latency")]
    for part in ("tuples/s</text>", "time (UTC)", "src: 10 tuples/s", 'class="legend"'):
        assert part in plot, part
    assert "red, dotted: an event" in plot


def test_keys_that_may_be_noise_are_not_shown() -> None:
    made = sums()
    made.keys = [KeySums("src", "default", "work by k", 0.1, 11, 0, [("noise", 1, 2)])]
    few = analyse(made, topology_id="top-1-1")
    assert few["hot_keys"][0]["top"][0]["share_high"] > 0.3
    assert not few["hot_keys"][0]["top"][0]["hot"]
    out = StringIO()
    show(few, out)
    for text in (out.getvalue(), page(few)):
        assert "noise" not in text
    assert "No key is known to have 1 % of the tuples or more" in page(few)
