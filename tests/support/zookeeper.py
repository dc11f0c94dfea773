"""A real ZooKeeper server for a test session.

from tests.support.zookeeper import zookeeper  # noqa: F401  (a fixture)
"""

import asyncio
import itertools
from collections.abc import Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from squall_cli.cluster.zookeeper import DevZooKeeper

# Short, so that sessions can be had from 0.4 s to 4 s and their end be waited for.
TICK_MS = 200
# A Java program takes most of a minute to start where many others run.
START_SECS = 120.0

_roots = itertools.count(1)


@pytest.fixture(scope="session")
def zookeeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DevZooKeeper]:
    """A server that all tests share: nobody stops it, and each takes a `fresh_root`."""
    server = DevZooKeeper(tmp_path_factory.mktemp("zookeeper"), tick_ms=TICK_MS)
    _run(server.start(START_SECS))
    yield server
    _run(server.stop())


@pytest.fixture
def own_zookeeper(tmp_path: Path) -> Iterator[DevZooKeeper]:
    """A server of one test's own, to be killed, paused and started again."""
    server = DevZooKeeper(tmp_path / "zookeeper", tick_ms=TICK_MS)
    _run(server.start(START_SECS))
    yield server
    _run(server.stop())


def _run(coroutine: Coroutine[Any, Any, None]) -> None:
    """On a loop of its own: a test's may be running when the fixture is made."""
    with ThreadPoolExecutor(1) as thread:
        thread.submit(asyncio.run, coroutine).result()


def fresh_root() -> str:
    """A root that no other test of this session uses."""
    return f"/test-{next(_roots)}/storm"
