"""The list of weakened builds is in order, and who tries them is not fooled."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path

import pytest
from tests.mutations import listed
from tests.mutations.listed import DECISIONS, GROUPS, Weakened
from tests.mutations.trial import Copy, verdict_of
from tests.run_all import Journal
from tests.unit.tools.test_vulnerabilities import ROWS

ENTRIES = listed.read()
ONE = Weakened(("S01",), "why", "f.py", "return a", "return b", "t.py::test_x")


def test_each_line_is_there_and_each_test_exists() -> None:
    assert listed.problems(ENTRIES) == []


def test_no_group_no_decision_and_no_vulnerability_is_left_out() -> None:
    wanted = (*GROUPS, *DECISIONS, *(cve for cve, _, _ in ROWS))
    assert listed.uncovered(ENTRIES, wanted) == []


def test_no_check_is_there_twice() -> None:
    places = [(one.file, one.below, one.line, one.becomes, one.test) for one in ENTRIES]
    assert len(places) == len(set(places))


def test_a_line_is_replaced_with_its_indentation() -> None:
    text = "def f():\n    return a\n"
    assert ONE.applied(text) == "def f():\n    return b\n"
    several = dataclasses.replace(ONE, becomes="x = 1\nreturn x")
    assert several.applied(text) == "def f():\n    x = 1\n    return x\n"
    assert dataclasses.replace(ONE, becomes="").applied(text) == "def f():\n"


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("def f():\n    return c\n", "its line is gone: return a"),
        ("def f():\n    return a\n\ndef g():\n    return a\n", "its line is there 2 times"),
    ],
)
def test_a_line_that_is_gone_or_not_the_only_one_is_a_failure(text: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        ONE.applied(text)


def test_of_several_lines_the_one_below_another_is_meant() -> None:
    text = "def f():\n    return a\ndef g():\n    return a\n"
    below = dataclasses.replace(ONE, below="def g(")
    assert below.applied(text) == "def f():\n    return a\ndef g():\n    return b\n"
    with pytest.raises(ValueError, match=r"'def h\(' is in 0 lines"):
        dataclasses.replace(ONE, below="def h(").applied(text)


def test_each_commit_tries_others_and_the_same_again() -> None:
    first = listed.sample(ENTRIES, 10, "one")
    assert len(first) == 10
    assert first == listed.sample(ENTRIES, 10, "one")
    assert first != listed.sample(ENTRIES, 10, "two")
    assert listed.sample(ENTRIES, len(ENTRIES), "one") == ENTRIES


@pytest.mark.parametrize(
    ("journal", "verdict"),
    [
        (Journal(outcomes={"t": "failed"}, causes={"t": "assert 1 == 2 (t.py:1)"}), "red"),
        (
            Journal(outcomes={"t": "failed"}, causes={"t": "NameError: name 'x' (t.py:1)"}),
            "its build is broken: NameError: name 'x' (t.py:1)",
        ),
        (Journal(broken=["t.py"]), "its build is broken: t.py cannot be collected"),
        (
            Journal(outcomes={"t": "skipped"}, causes={"t": "no root"}),
            "its test was skipped: no root",
        ),
        (Journal(outcomes={"t": "passed"}), "its test is green, although the check is gone"),
        (Journal(), "its test did not run"),
    ],
)  # fmt: skip
def test_only_a_test_that_ran_and_failed_is_red(journal: Journal, verdict: str) -> None:
    assert verdict_of(journal) == verdict


def test_before_anything_is_changed_a_test_that_fails_has_a_second_try(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = Journal(
        collected=["ok", "slow", "wrong", "died", "lost"],
        outcomes={"ok": "passed", "slow": "failed", "wrong": "failed", "lost": "failed"},
        ended={"ok", "slow", "wrong", "lost"},
        final={"lost": "tuples were lost or invented"},
        broken=["b.py"],
    )
    runs: list[list[str]] = []

    def run(copy: Copy, tests: Sequence[str]) -> Journal:
        runs.append([*tests])
        verdicts = {"slow": "passed", "wrong": "failed"}
        alone = {test: verdicts[test] for test in tests if test in verdicts}
        return first if len(runs) == 1 else Journal(outcomes=alone)

    monkeypatch.setattr(Copy, "run", run)
    assert Copy(tmp_path).red(first.collected) == ["b.py", "wrong", "lost", "died"]
    assert runs[1:] == [["slow"], ["wrong"], ["died"]]
