"""A benchmark counts only when its result is right."""

import dataclasses

import pytest
from bench import topologies
from bench.runs import Case, WrongCountError, measure, run

from squall_worker.engine import core

LINES = 500
WORDS = LINES * topologies.WORDS_A_LINE


def case(style="tuple", **changes):
    arguments = {"style": style, "lines": LINES, "rounds": 1, "acked": True}
    made = Case("wc", "word_count", arguments, WORDS, core=core.NAME)
    return dataclasses.replace(made, **changes)


@pytest.mark.parametrize("style", ["tuple", "readme", "columns"])
def test_every_style_counts_alike(style):
    expected = topologies.plain_loop(topologies.make_lines(LINES), 1)
    assert run(case(style), expected).cpu_secs > 0


def test_a_wrong_count_is_no_result():
    expected = topologies.plain_loop(topologies.make_lines(LINES), 1)
    word = next(iter(expected))
    with pytest.raises(WrongCountError):
        run(case(), {**expected, word: expected[word] + 1})
    with pytest.raises(WrongCountError):
        run(case(tuples=WORDS + 1), expected)


def test_two_workers_are_measured_beside_the_plain_loop():
    arguments = {**case().arguments, "tasks": 2, "spouts": 2}
    two = case(workers=2, arguments=arguments, tuples=2 * WORDS)
    report = measure([two], 1, LINES, 1)
    assert report["cases"]["wc"]["ratio_to_plain"] > 0
    assert report["cases"]["wc"]["tuples_checked"] == 2 * WORDS
