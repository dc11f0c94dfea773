"""Tests with real servers take longer than others, and in `make soak` much longer."""

from __future__ import annotations

import gc
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest
from tests.support.effort import SOAK
from tests.support.servers import Server

from squall.testing.connectors import SinkContract, SourceContract

if SOAK:
    SourceContract.outage_secs = SinkContract.outage_secs = 30.0
_SECS_MAX = 3_600 if SOAK else 450


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.timeout(_SECS_MAX))


@pytest.fixture(scope="module", autouse=True)
def _leaks_show_in_their_file() -> Iterator[None]:
    """What a file leaves open is found now, not in the middle of the next one."""
    yield
    gc.collect()


#: Servers that were in use when a test failed.
_suspects: set[Server] = set()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup() -> None:
    """Start a broken server again, so that one failure does not bring all others of its file."""
    while _suspects:
        server = _suspects.pop()
        if server in Server.in_use:
            server.require_up()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Show the end of the log of each server that is in use when a test fails."""
    report = yield
    if report.failed:
        for server in Server.in_use:
            report.sections.append((f"log of {server}", server.log_tail()))
        _suspects.update(Server.in_use)
    return report
