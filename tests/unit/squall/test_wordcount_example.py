"""The word count example: a line is kept until its ack, counts are written whole, and the report
tells exact counts from others."""

import importlib
import json
import sys
from collections import Counter, deque
from pathlib import Path
from types import SimpleNamespace

import pytest

from squall_common.topology.arguments import instantiate
from squall_common.topology.model import GroupingKind

EXAMPLE = Path(__file__).parents[3] / "examples" / "wordcount"
TEXT = "The cow jumped\n\nover the moon: the MOON, l'été!\nIt's 2 o'clock\n"
COUNTS = {
    "the": 3, "cow": 1, "jumped": 1, "over": 1, "moon": 2, "l'été": 1, "it's": 1, "2": 1,
    "o'clock": 1,
}  # fmt: skip


@pytest.fixture
def example(monkeypatch):
    """The example's modules, imported as from its package, and forgotten afterwards."""
    monkeypatch.syspath_prepend(str(EXAMPLE))
    names = ("wordcount", "report", "sample_text")
    yield SimpleNamespace(**{name: importlib.import_module(name) for name in names})
    for name in names:
        sys.modules.pop(name, None)


@pytest.fixture
def text(tmp_path):
    path = tmp_path / "text.txt"
    path.write_text(TEXT, encoding="utf-8")
    return path


class Collector:
    """Keeps what was emitted."""

    def __init__(self):
        self.emitted = deque()

    def emit(self, values, *, message_id=None, anchors=None, stream="default"):
        self.emitted.append((message_id, values))
        return ()

    def __getattr__(self, name):
        return lambda *args: None


class Word:
    """A tuple with one value."""

    def __init__(self, name, value):
        self._values, self.is_tick = {name: value}, name == "tick"

    def __getitem__(self, name):
        return self._values[name]


def start(component, task, tasks):
    """The component, bound and started as one of `tasks`."""
    context = SimpleNamespace(
        this_component_id="c",
        this_task_id=task,
        this_task_index=tasks.index(task),
        component_tasks=lambda component_id: tasks,
    )
    collector = Collector()
    component._bind(collector, context)
    begin = component.open if hasattr(component, "open") else component.prepare
    begin({}, context)
    return component, collector


def run(example, text, output, fail=()):
    """The whole topology by hand, one count task; lines in `fail` fail the first time, before any
    of their words is counted."""
    lines, out = start(example.wordcount.Lines(str(text), str(output)), 3, [3])
    split, words = start(example.wordcount.Split(), 2, [2])
    count, _ = start(example.wordcount.Count(str(output)), 1, [1])
    failing = set(fail)
    for _ in range(20):
        lines.next_tuple()
        while out.emitted:
            number, (line,) = out.emitted.popleft()
            if number in failing:
                failing.remove(number)
                lines.fail(number)
                continue
            split.execute(Word("line", line))
            while words.emitted:
                count.execute(Word("word", words.emitted.popleft()[1][0]))
            lines.ack(number)
    return lines, count


def test_the_counts_are_those_of_a_plain_count(example, text, tmp_path, capsys, monkeypatch):
    _, count = run(example, text, tmp_path / "out")
    count.execute(Word("tick", 1))
    assert json.loads((tmp_path / "out" / "count-1.json").read_text()) == COUNTS
    assert example.report.read_progress(tmp_path / "out") == {"lines": 4, "acked": 4, "failed": 0}
    monkeypatch.setattr(
        sys, "argv", ["report", "--text", str(text), "--output", str(tmp_path / "out")]
    )
    assert example.report.main() == 0
    printed = capsys.readouterr().out
    assert "the counts are exact" in printed
    assert "lines 4, acked 4, failed 0" in printed


def test_a_line_that_fails_is_emitted_again(example, text, tmp_path):
    _, count = run(example, text, tmp_path / "out", fail=[0, 2])
    count.cleanup()
    assert example.report.read_counts(tmp_path / "out") == COUNTS
    assert example.report.read_progress(tmp_path / "out") == {"lines": 4, "acked": 4, "failed": 2}


def test_an_ack_or_fail_of_an_unknown_line_counts_nothing(example, text, tmp_path):
    lines, _ = run(example, text, tmp_path / "out")
    lines.ack(0)
    lines.fail(0)
    assert (lines.acked, lines.failed, len(lines.unsent)) == (4, 0, 0)


def test_several_source_tasks_share_the_lines(example, text, tmp_path):
    one, _ = start(example.wordcount.Lines(str(text), str(tmp_path)), 5, [5, 6])
    two, _ = start(example.wordcount.Lines(str(text), str(tmp_path)), 6, [5, 6])
    assert [number for number, _ in one.unsent] == [0, 2]
    assert [number for number, _ in two.unsent] == [1, 3]
    assert example.report.read_progress(tmp_path)["lines"] == 4


def test_the_report_lists_counts_that_differ(example, text, tmp_path, capsys, monkeypatch):
    _, count = run(example, text, tmp_path / "out")
    count.execute(Word("word", "moon"))
    count.cleanup()
    monkeypatch.setattr(
        sys, "argv", ["report", "--text", str(text), "--output", str(tmp_path / "out")]
    )
    assert example.report.main() == 1
    assert "the counts differ in 1 words" in capsys.readouterr().out


def test_the_report_fails_before_anything_ran(example, text, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["report", "--text", str(text), "--output", str(tmp_path)])
    assert example.report.main() == 1
    assert "lines 0, acked 0, failed 0" in capsys.readouterr().out


def test_the_topology_is_valid_and_its_components_can_be_made_again(example, tmp_path):
    topology = example.wordcount.build("text", str(tmp_path), 2)
    (grouping,) = topology.components["count"].inputs.values()
    assert (grouping.kind, grouping.fields) == (GroupingKind.FIELDS, ("word",))
    lines = instantiate(topology.components["lines"].object)
    assert (type(lines).__module__, lines.text) == ("wordcount", "text")


def test_the_sample_text_is_long_the_same_each_time_and_credited(example):
    lines = example.sample_text.make_text(20_000)
    assert lines == example.sample_text.make_text(20_000)
    assert "Python Software Foundation" in lines[0]
    assert sum(len(example.wordcount.words(line)) for line in lines) >= 20_000
    assert all(line == line.strip() and line for line in lines)


def test_the_standard_librarys_docstrings_follow_python_own_topics(example):
    topics_only = sum(len(t.split()) for t in example.sample_text.topics.values())
    lines = example.sample_text.make_text(topics_only + 1_000)
    words = Counter(word for line in lines for word in example.wordcount.words(line))
    assert words.total() > topics_only
    assert sum(len(line.split()) for line in lines) >= topics_only + 1_000
