"""Late tuples that no stream takes, in the log."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from squall.windows.left_out import LeftOut
from squall_common.state.errors import StateStoreError

ADVICE = "; late_stream keeps them, lag_secs waits for them"


class Late:
    """A tuple."""

    source_component, source_task, source_stream = "clicks", 7, "default"

    def __init__(self, shown: str | Exception = "late") -> None:
        self._shown = shown

    def __repr__(self) -> str:
        if isinstance(self._shown, Exception):
            raise self._shown
        return self._shown


def played(*steps: tuple[int, Any], end: bool = False) -> None:
    """Leave tuples out, each at a time in milliseconds."""
    left_out = LeftOut(logging.getLogger("bolt"))
    for now_ms, tup in steps:
        left_out.add(tup, now_ms)
    if end:
        left_out.end()


def test_the_first_tuple_is_logged_at_once(caplog: pytest.LogCaptureFixture) -> None:
    played((5, Late("clicks:7 [1]")))
    assert caplog.messages == [f"1 late tuple(s) left out, the last one clicks:7 [1]{ADVICE}"]


def test_a_line_a_minute_counts_those_since_the_last(caplog: pytest.LogCaptureFixture) -> None:
    at = [0, 1, 2, 59_999, 60_000, 119_999, 200_000]
    played(*((now_ms, Late(f"at {now_ms}")) for now_ms in at))
    assert [line.removesuffix(ADVICE) for line in caplog.messages] == [
        "1 late tuple(s) left out, the last one at 0",
        "4 late tuple(s) left out, the last one at 60000",
        "2 late tuple(s) left out, the last one at 200000",
    ]


def test_the_end_logs_those_that_no_line_has_counted(caplog: pytest.LogCaptureFixture) -> None:
    played((0, Late()), (1, Late()), (2, Late()), end=True)
    assert caplog.messages[1:] == [f"2 late tuple(s) left out{ADVICE}"]


def test_the_end_logs_nothing_if_all_are_counted(caplog: pytest.LogCaptureFixture) -> None:
    played(end=True)
    assert caplog.messages == []
    played((0, Late()), end=True)
    assert len(caplog.messages) == 1


@pytest.mark.parametrize("error", [ValueError("no repr"), StateStoreError("cannot be read")])
def test_a_tuple_that_cannot_be_shown_is_named_by_its_source(
    error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    played((0, Late(error)))
    (line,) = caplog.messages
    assert "the last one from clicks:7 default (its values cannot be shown: " in line
    assert str(error) in line
