"""Printed text as lines of the log."""

from __future__ import annotations

import io
import logging
from typing import Any

import pytest

from squall_worker.report.logged_output import LoggedOutput


@pytest.fixture
def output(caplog: pytest.LogCaptureFixture) -> Any:
    caplog.set_level(logging.INFO, "stdout")
    return LoggedOutput(io.TextIOWrapper(io.BytesIO(), "utf-8"), logging.getLogger("stdout"))


def test_each_line_is_logged_once_it_ends(
    output: LoggedOutput, caplog: pytest.LogCaptureFixture
) -> None:
    print("one", 2, file=output)
    print("thr", end="", file=output, flush=True)
    assert caplog.messages == ["one 2"]
    print("ee\nfour\n\n%s five", file=output)
    assert caplog.messages == ["one 2", "three", "four", "%s five"]


def test_a_line_without_end_is_cut(output: LoggedOutput, caplog: pytest.LogCaptureFixture) -> None:
    for _ in range(100):
        output.write("x" * 1000)
    assert [len(line) for line in caplog.messages] == [16_384] * 6


def test_bytes_go_below(output: LoggedOutput) -> None:
    output.buffer.write(b"raw")
    assert output.encoding == "utf-8"
    assert output.writable()
