"""Writes down the tests that were run again, for the summary of tests/run_all.py."""

from __future__ import annotations

import os

import pytest


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    path = os.environ.get("SQUALL_TEST_RERUNS")
    # With xdist the controller sees every report too: only it writes.
    if path is None or report.outcome != "rerun" or "PYTEST_XDIST_WORKER" in os.environ:
        return
    crash = getattr(report.longrepr, "reprcrash", None)
    why = crash.message.splitlines()[0] if crash else ""
    with open(path, "a", encoding="utf-8") as file:
        file.write(f"{report.nodeid}: {why}\n")
