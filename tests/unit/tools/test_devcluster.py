"""How tests wait for a condition."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.support.devcluster import wait_for


def test_what_is_empty_or_zero_is_not_there_yet() -> None:
    results: Iterator[object] = iter([None, False, 0, "", [], {}, ["found"], ["later"]])
    assert wait_for("something", lambda: next(results), poll_secs=0.0) == ["found"]


def test_what_was_there_last_is_named_after_the_timeout() -> None:
    with pytest.raises(AssertionError, match=r"waited 0 s for something; last: \[\]"):
        wait_for("something", list, timeout_secs=0.0, poll_secs=0.0)
