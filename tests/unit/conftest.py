"""Unit tests start no process, no server and open no socket (tests/support/plain_tests.py), and
leave no engine that runs (tests/support/left_engines.py)."""

from __future__ import annotations

import sys
from collections.abc import Generator

import pytest
from tests.support.left_engines import LeftEngines
from tests.support.plain_tests import PlainTests

HOOK = PlainTests()
sys.addaudithook(HOOK)
ENGINES = LeftEngines()


# A conftest's hooks are called for the tests below its folder only.
@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup(item: pytest.Item) -> Generator[None, None, None]:
    yield from _held(item)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, None, None]:
    yield from _held(item)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item) -> Generator[None, None, None]:
    yield
    left = ENGINES.end()
    if left:
        pytest.fail(f"{item.nodeid} has left {left} that it did not stop", pytrace=False)


def _held(item: pytest.Item) -> Generator[None, None, None]:
    HOOK.begin(item.nodeid)
    try:
        yield
    finally:
        refused = HOOK.end()
    if refused:
        pytest.fail("\n".join(refused), pytrace=False)
