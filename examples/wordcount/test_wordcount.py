import json
import sys
from collections import Counter

import pytest
import report
from sample_text import make_text, topics
from squall import TopologyBuilder
from squall.testing import BoltTest, TopologyTest
from wordcount import Lines, Split, build, words

TEXT = "The cow jumped\n\nover the moon: the MOON, l'été!\nIt's 2 o'clock\n"
COUNTS = {
    "the": 3, "cow": 1, "jumped": 1, "over": 1, "moon": 2, "l'été": 1, "it's": 1, "2": 1,
    "o'clock": 1,
}  # fmt: skip


class Moody(Split):
    """Fails the first attempt of each line that names the moon."""

    def prepare(self, conf, context):
        self.failed = set()

    def execute(self, tup):
        line = tup["line"]
        if "moon" in line and line not in self.failed:
            self.failed.add(line)
            raise ValueError("not now")
        super().execute(tup)


@pytest.fixture
def text(tmp_path):
    path = tmp_path / "text.txt"
    path.write_text(TEXT, encoding="utf-8")
    return path


@pytest.fixture
def output(tmp_path):
    return tmp_path / "output"


def run(text, output, parallelism=1, lines_acked=4, **objects):
    """The whole topology on a virtual clock, until each line is acked."""
    with TopologyTest(build(str(text), str(output), parallelism), objects=objects) as test:
        test.run_until(lambda: len(test.acked("lines")) == lines_acked)
        # Longer than a tick: counts and progress are written.
        test.run_for(3)
        return test


def shown(text, output, monkeypatch, capsys):
    """The exit status and the output of the report."""
    monkeypatch.setattr(sys, "argv", ["report", "--text", str(text), "--output", str(output)])
    return report.main(), capsys.readouterr().out


@pytest.mark.parametrize("parallelism", [1, 2])
def test_the_counts_are_those_of_a_plain_count(text, output, parallelism, monkeypatch, capsys):
    run(text, output, parallelism)
    assert report.read_counts(output) == COUNTS
    status, printed = shown(text, output, monkeypatch, capsys)
    assert status == 0
    assert "lines 4, acked 4, failed 0" in printed
    assert "the counts are exact" in printed


def test_a_line_that_fails_is_emitted_again(text, output):
    test = run(text, output, split=Moody())
    assert len(test.failed("lines")) == 1
    assert report.read_counts(output) == COUNTS
    assert report.read_progress(output) == {"lines": 4, "acked": 4, "failed": 1}


def test_several_tasks_of_the_source_share_the_lines(text, output):
    builder = TopologyBuilder()
    builder.spout("lines", Lines(str(text), str(output)), parallelism=2)
    builder.bolt("split", Split()).shuffle("lines")
    with TopologyTest(builder) as test:
        test.run_until(lambda: len(test.acked("lines")) == 4)
        assert sorted(lines.total for lines in test.instances("lines")) == [2, 2]


def test_an_empty_line_has_no_words():
    with BoltTest(Split(), {"lines": ["line"]}) as test:
        assert test.execute([""]).emitted == []
        assert [e.values for e in test.execute(["It's late"]).emitted] == [["it's"], ["late"]]


def test_the_report_says_how_many_counts_differ(text, output, monkeypatch, capsys):
    run(text, output)
    (counts,) = output.glob("count-*.json")
    counts.write_text(json.dumps({**COUNTS, "moon": 3}))
    status, printed = shown(text, output, monkeypatch, capsys)
    assert status == 1
    assert "the counts differ in 1 words" in printed


def test_the_report_fails_before_anything_ran(text, output, monkeypatch, capsys):
    status, printed = shown(text, output, monkeypatch, capsys)
    assert status == 1
    assert "lines 0, acked 0, failed 0" in printed


def test_the_sample_text_is_long_the_same_each_time_and_credited():
    lines = make_text(20_000)
    assert lines == make_text(20_000)
    assert "Python Software Foundation" in lines[0]
    assert sum(len(words(line)) for line in lines) >= 20_000
    assert all(line == line.strip() and line for line in lines)


def test_docstrings_of_the_standard_library_follow_pythons_own_topics():
    topics_only = sum(len(topic.split()) for topic in topics.values())
    lines = make_text(topics_only + 1_000)
    assert Counter(word for line in lines for word in words(line)).total() > topics_only
    assert sum(len(line.split()) for line in lines) >= topics_only + 1_000
