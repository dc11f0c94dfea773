"""Reporters that cannot begin, or are behind."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest

from squall_common.component.metrics.consumers import ConsumerContext
from squall_common.config.options.typed import TopologyOptions
from squall_common.daemon.clock import SystemClock
from squall_common.reporters.base import MetricsReporter, MetricValue
from squall_engine.reporting.reporters import Reporters

HERE = __name__


class Failing(MetricsReporter):
    def prepare(self, options: Mapping[str, Any], context: ConsumerContext) -> None:
        raise TimeoutError

    def report(self, values: Sequence[MetricValue]) -> None:
        raise AssertionError("it was not prepared")


class Slow(MetricsReporter):
    released = threading.Event()
    closed = threading.Event()

    def report(self, values: Sequence[MetricValue]) -> None:
        assert self.released.wait(30)

    def close(self) -> None:
        self.closed.set()


@pytest.fixture(autouse=True)
def _short_periods(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("squall_common.reporters.entries._PERIOD_SECS_MIN", 0.001)


def reporters_of(name: str, errors: list[str]) -> Reporters:
    entry = {
        "class": f"{HERE}.{name}",
        "report.period": 10,
        "report.period.units": "MILLISECONDS",
    }
    reporters = Reporters(
        [],
        TopologyOptions.read({"topology.metrics.reporters": [entry]}),
        ConsumerContext("metered-1-1", "host", 6700, None),
        clock=SystemClock(),
        report=lambda component, task, error: errors.append(str(error)),
    )
    reporters.start()
    return reporters


async def wait_until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(30):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.005)


async def test_a_reporter_that_cannot_be_prepared_is_reported_once_and_gets_nothing() -> None:
    errors: list[str] = []
    reporters = reporters_of("Failing", errors)
    await wait_until(lambda: not reporters._threads)
    await reporters.close()
    assert errors == [f"topology.metrics.reporters: {HERE}.Failing: TimeoutError"]


async def test_a_reporter_that_is_behind_is_closed_all_the_same() -> None:
    errors: list[str] = []
    reporters = reporters_of("Slow", errors)
    (thread,) = reporters._threads
    await wait_until(lambda: thread.dropped)
    closing = asyncio.create_task(reporters.close())
    await asyncio.sleep(0)
    Slow.released.set()
    await closing
    assert Slow.closed.is_set()
    assert not errors
