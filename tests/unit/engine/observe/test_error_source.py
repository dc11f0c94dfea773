"""What a component was given when it raised."""

from __future__ import annotations

import asyncio
import re
import threading
from collections.abc import Callable
from typing import Any

import pytest

from squall import Bolt, Spout, TopologyBuilder
from squall_common.config.load import default_conf, normalize_topology_conf
from squall_common.topology.model import WorkerSlot
from squall_common.topology.prepared import prepare
from squall_engine.embed import EmbeddedEngine, EngineCallbacks, EngineSettings


class Words(Spout):
    outputs = ["word"]

    def open(self, conf: Any, context: Any) -> None:
        self.left = 3

    def next_tuple(self) -> None:
        if self.left:
            self.left -= 1
            self.emit(["w"], message_id=f"line {self.left}")


class Raises(Bolt):
    def execute(self, tup: Any) -> None:
        self.work(tup.values)

    def work(self, values: Any) -> None:
        raise ValueError("no")


class RaisesOnThread(Raises):
    blocking = True


class RaisesLater(Bolt):
    async def execute(self, tup: Any) -> None:
        await asyncio.sleep(0)
        raise ValueError("no")


class RaisesOnBatch(Bolt):
    def execute_batch(self, tuples: list[Any]) -> None:
        raise ValueError("no")


class RaisesOnColumns(Bolt):
    def execute_columns(self, columns: Any) -> None:
        raise ValueError("no")


class Reports(Bolt):
    """Reports an error that it never raised, and one that it caught."""

    def execute(self, tup: Any) -> None:
        self.collector.report_error(ValueError("never raised"))


class ReportsCaught(Bolt):
    def execute(self, tup: Any) -> None:
        try:
            int("x")
        except ValueError as error:
            self.collector.report_error(error)


class RaisesInNextTuple(Spout):
    outputs = ["word"]

    def next_tuple(self) -> None:
        raise OSError("no such file")


ONE = r"a tuple of words \(task \d+\), stream default, message id 'line 2'"
SOME = r"\d+ tuple\(s\) of words, stream default"


async def first_source(
    spout: Spout, bolt: Bolt, before: Callable[[], object] = lambda: None
) -> str:
    """What the engine says of the first error that it reports, and logs with it. `before()` is
    called before it is asked."""
    builder = TopologyBuilder()
    builder.spout("words", spout)
    builder.bolt("end", bolt, parallelism=1).shuffle("words")
    stored = normalize_topology_conf({"topology.workers": 1}, default_conf(), name="test")
    prepared = prepare(builder.build(), stored)
    settings = EngineSettings(
        prepared=prepared,
        topology_id="test-1-1",
        slot=WorkerSlot("test", 1),
        executors=prepared.executors,
        daemon_conf=default_conf(),
    )
    found: list[str] = []

    def report(component: str, task: int, error: BaseException) -> None:
        before()
        found.append(engine.source_of(error))

    engine = EmbeddedEngine(settings, EngineCallbacks(on_reported=report, on_fatal=lambda e: None))
    await engine.start()
    engine.set_active(True)
    try:
        async with asyncio.timeout(30):
            await engine.run_until(lambda: bool(found))
    finally:
        await engine.stop(0)
    return found[0]


@pytest.mark.parametrize(
    ("bolt", "expected"),
    [
        (Raises, ONE),
        (RaisesOnThread, ONE),
        (RaisesLater, ONE),
        (Reports, ONE),
        (ReportsCaught, ONE),
        (RaisesOnBatch, f"{SOME}, message id 'line .'.*"),
        (RaisesOnColumns, SOME),
    ],
)
async def test_the_source_of_an_error_is_what_its_component_was_given(
    bolt: Callable[[], Bolt], expected: str, caplog: pytest.LogCaptureFixture
) -> None:
    source = await first_source(Words(), bolt())
    assert re.fullmatch(expected, source)
    assert f'given="{source}"' in caplog.text


class WordsThatSettle(Words):
    settled = threading.Event()

    def fail(self, msg_id: Any) -> None:
        self.settled.set()


class RaisesInBatchOnThread(RaisesOnBatch):
    blocking = True


@pytest.mark.parametrize("bolt", [RaisesOnThread, RaisesInBatchOnThread])
async def test_the_message_of_a_blocking_bolt_is_named_when_its_tree_has_ended(
    bolt: Callable[[], Bolt],
) -> None:
    """The loop ends it while the error is reported on the bolt's thread."""
    WordsThatSettle.settled.clear()
    ended: list[bool] = []
    source = await first_source(
        WordsThatSettle(), bolt(), lambda: ended.append(WordsThatSettle.settled.wait(30))
    )
    assert ended[0]
    assert "message id 'line 2'" in source


async def test_an_error_of_a_spout_that_was_given_nothing_has_no_source(
    caplog: pytest.LogCaptureFixture,
) -> None:
    assert await first_source(RaisesInNextTuple(), Raises()) == ""
    assert "given=" not in caplog.text
