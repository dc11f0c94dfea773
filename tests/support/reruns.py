"""Which tests may be run again, and which passed only then.

Neighbours on a shared machine can slow anything down, so `tests/run_all.py` runs a test that failed
once more. Not so where chance decides what is tested: chaos, the simulation, and what Hypothesis
draws. There a failure is a finding.
"""

from __future__ import annotations

import contextlib
import os
import socket
from pathlib import Path

import pytest

_TESTS = Path(__file__).resolve().parent.parent
_NEVER_AGAIN = (_TESTS / "chaos", _TESTS / "simulation")

# Tests whose first run failed, by their id, with the reason.
_failed_first: dict[str, str] = {}
_failed: set[str] = set()


@pytest.hookimpl(trylast=True)
def pytest_configure(config: pytest.Config) -> None:
    """Send what pytest-rerunfailures asks for at once. Its processes exchange two small messages a
    test, and TCP would hold the second one back until the first is acknowledged: 40 ms a test."""
    database = getattr(config, "failures_db", None)
    with contextlib.suppress(AttributeError):  # it has no socket without xdist
        database.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # type: ignore[union-attr]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Have tests fail for good, whatever the command line says, where chance is in them."""
    for item in items:
        function = getattr(item, "obj", None)
        drawn = bool(getattr(function, "is_hypothesis_test", False))
        if drawn or any(folder in item.path.parents for folder in _NEVER_AGAIN):
            item.add_marker(pytest.mark.flaky(reruns=0), append=False)


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Remember which tests failed the first time, and which then failed for good."""
    if report.outcome == "rerun":
        _failed_first.setdefault(report.nodeid, cause(report))
    elif report.outcome == "failed":
        _failed.add(report.nodeid)


def pytest_sessionfinish() -> None:
    """Write what passed only the second time to the file that run_all.py names."""
    path = os.environ.get("SQUALL_TEST_RERUNS")
    # With xdist the controller sees every report too: only it writes.
    if path is None or "PYTEST_XDIST_WORKER" in os.environ:
        return
    with open(path, "a", encoding="utf-8") as file:
        for test, reason in _failed_first.items():
            if test not in _failed:
                file.write(f"{test}: {reason}\n")


def cause(report: pytest.TestReport) -> str:
    """Where and why a test failed, in a line, with the servers that had ended by themselves."""
    ended = "".join(f"; {title}" for title, _ in report.sections if "ended with" in title)
    crash = getattr(report.longrepr, "reprcrash", None)
    if crash is None:
        lines = report.longreprtext.strip().splitlines()
        return f"{report.when}: {lines[-1] if lines else 'no reason given'}{ended}"
    message = next((line for line in crash.message.splitlines() if line), "")
    return f"{message} ({os.path.relpath(crash.path, _TESTS.parent)}:{crash.lineno}){ended}"
