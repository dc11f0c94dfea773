"""`storm jar --wait`: when it returns, and what it says when a topology does not run."""

from __future__ import annotations

import pytest

from squall_common.client.waiting import NotRunningError, Reported, Seen, reason_of, verdict
from squall_thrift.storm import ErrorInfo


def test_every_task_runs() -> None:
    assert verdict("words", Seen("ACTIVE", "ok"), 0.0, 10.0)


@pytest.mark.parametrize("word", ["starting", "no free slot", "waiting for blobs"])
def test_what_may_pass_is_waited_for_until_the_limit(word: str) -> None:
    assert not verdict("words", Seen("ACTIVE", word), 9.9, 10.0)
    with pytest.raises(NotRunningError, match=f"does not run after 10 s: {word}"):
        verdict("words", Seen("ACTIVE", word), 10.0, 10.0)


@pytest.mark.parametrize("word", ["crash loop", "package refused", "launch failed"])
def test_what_does_not_pass_is_reported_at_once(word: str) -> None:
    with pytest.raises(NotRunningError, match=f"topology 'words' does not run: {word}"):
        verdict("words", Seen("ACTIVE", word), 0.0, 10.0)


def test_a_topology_that_is_killed_meanwhile_will_never_run() -> None:
    with pytest.raises(NotRunningError, match="was killed"):
        verdict("words", Seen("KILLED", ""), 0.0, 10.0)


def test_a_nimbus_that_does_not_know_is_not_asked_again() -> None:
    with pytest.raises(NotRunningError, match="does not say"):
        verdict("words", Seen("ACTIVE", None), 0.0, 10.0)


def test_the_reason_is_what_a_component_raised_rather_than_the_end_of_its_worker() -> None:
    raised = Reported(100, "db", "ValueError: no database here")
    ended = Reported(101, "__system", "worker ended unexpectedly")
    damaged = Reported(100, "__system", "StateDamagedError: a manifest is missing")
    assert reason_of([raised, ended, damaged]) is raised
    assert reason_of([damaged, ended]) is damaged
    assert reason_of([ended]) is ended
    assert reason_of([]) is None


def test_an_error_of_long_before_is_not_the_reason() -> None:
    raised = Reported(100, "db", "ValueError: no database here")
    ended = Reported(500, "__system", "worker ended unexpectedly")
    assert reason_of([raised, ended]) is ended


def test_an_error_is_shown_by_the_line_that_names_it_and_its_place() -> None:
    traceback = "Traceback (most recent call last):\n  x = 1\nValueError: x\n\n"
    error = ErrorInfo(traceback, 7, host="a", port=6700)
    assert Reported.of("db", error).text == "db on a:6700: ValueError: x"
    hinted = ErrorInfo("StateDamagedError: it is missing\nrestore it from a copy", 7)
    assert Reported.of("db", hinted).line == "StateDamagedError: it is missing"
    assert Reported.of("db", ErrorInfo("", 7)).text == "db: unknown error"
