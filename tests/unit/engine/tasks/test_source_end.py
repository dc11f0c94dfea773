"""A spout is asked whether its source has ended, and what it answers is reported."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from squall import Bolt, ReplayingSpout, Spout, TopologyBuilder
from squall_common.component.methods import mode_problem
from squall_common.config.load import default_conf, normalize_topology_conf
from squall_common.topology.model import WorkerSlot
from squall_common.topology.prepared import prepare
from squall_engine.embed import EmbeddedEngine, EngineCallbacks, EngineSettings
from squall_engine.tasks.source_end import ASK_SECS, SourceEnd


class Numbers(Spout):
    """Emits as many numbers, and answers what a test has it answer."""

    outputs = ["n"]

    def __init__(self, count: int = 0) -> None:
        self.count = count

    def open(self, conf: Any, context: Any) -> None:
        self.left, self.asked, self.answer = self.count, 0, None
        self.thread = 0

    def next_tuple(self) -> Any:
        if self.left:
            self.left -= 1
            self.emit([self.left], message_id=self.left)

    def exhausted(self) -> Any:
        self.asked += 1
        self.thread = threading.get_ident()
        if isinstance(self.answer, Exception):
            raise self.answer
        return not self.left if self.answer is None else self.answer


class OnThread(Numbers):
    blocking = True


class Coroutines(Numbers):
    async def next_tuple(self) -> None:
        super().next_tuple()


class Endless(Numbers):
    def exhausted(self) -> None:
        self.asked += 1


class Silent(Numbers):
    """Does not say whether it ends."""

    exhausted = Spout.exhausted


class Replays(ReplayingSpout):
    """Says that it has ended while a message waits to be emitted again."""

    outputs = ["n"]

    def open(self, conf: Any, context: Any) -> None:
        self.left = 1

    def next_message(self) -> Any:
        self.left, left = 0, self.left
        return [1] if left else None

    def exhausted(self) -> bool:
        return not self.left


class Ends(Bolt):
    def prepare(self, conf: Any, context: Any) -> None:
        self.fails = True

    def execute(self, tup: Any) -> None:
        if self.fails:
            raise ValueError("no")


class Takes(Bolt):
    def execute(self, tup: Any) -> None:
        pass


@asynccontextmanager
async def running(
    spout: Any, bolt: Bolt | None = None, **conf: Any
) -> AsyncIterator[tuple[EmbeddedEngine, Any, list[str]]]:
    builder = TopologyBuilder()
    builder.spout("source", spout)
    builder.bolt("end", bolt or Takes()).shuffle("source")
    stored = normalize_topology_conf({"topology.workers": 1, **conf}, default_conf(), name="test")
    prepared = prepare(builder.build(), stored)
    errors: list[str] = []
    engine = EmbeddedEngine(
        EngineSettings(
            prepared=prepared,
            topology_id="test-1-1",
            slot=WorkerSlot("test", 1),
            executors=prepared.executors,
            daemon_conf=default_conf(),
        ),
        EngineCallbacks(on_reported=lambda *args: errors.append(str(args))),
    )
    await engine.start()
    engine.set_active(True)
    try:
        (user,) = engine.users("source")
        yield engine, user, errors
    finally:
        await engine.stop(0)


async def until(engine: EmbeddedEngine, condition: Callable[[], object]) -> None:
    async with asyncio.timeout(60):
        await engine.run_until(condition)


def exhausted(engine: EmbeddedEngine) -> int | None:
    """What the heartbeat says of the spout."""
    (found,) = [
        stats.exhausted_tasks
        for executor, stats in engine.stats().items()
        if engine.plan.is_spout(executor.task_start)
    ]
    return found


@pytest.mark.parametrize("kind", [Numbers, OnThread, Coroutines])
async def test_a_spout_is_asked_where_it_is_called_and_only_when_it_is_idle(kind: Any) -> None:
    async with running(kind(100)) as (engine, spout, _):
        assert exhausted(engine) == 0  # not asked yet
        await until(engine, lambda: exhausted(engine) == 1)
        assert spout.left == 0
        assert spout.asked == 1
        assert (spout.thread == threading.get_ident()) == (kind is not OnThread)
        await until(engine, lambda: engine.work_when_drained(at_end=True) is not None)
        assert engine.work_when_drained() is None  # its spout is not off


@pytest.mark.parametrize("kind", [Numbers, OnThread, Coroutines])
async def test_a_source_that_goes_on_has_not_ended(kind: Any) -> None:
    async with running(kind(1)) as (engine, spout, _):
        await until(engine, lambda: exhausted(engine) == 1)
        spout.answer = False  # whenever it is asked again
        spout.left = 5
        await until(engine, lambda: exhausted(engine) == 0)
        assert engine.work_when_drained(at_end=True) is None
        spout.answer = None
        await until(engine, lambda: exhausted(engine) == 1)


async def test_a_spout_is_asked_once_a_second_at_most() -> None:
    async with running(Numbers()) as (engine, spout, _):
        spout.answer = False
        began = engine.now()
        await until(engine, lambda: spout.asked == 3)
        assert engine.now() - began >= 2 * ASK_SECS


@pytest.mark.parametrize("kind", [Numbers, OnThread, Coroutines])
async def test_an_error_is_reported_and_the_source_has_not_ended(kind: Any) -> None:
    async with running(kind()) as (engine, spout, errors):
        spout.answer = RuntimeError("the table is away")
        await until(engine, lambda: any("the table is away" in one for one in errors))
        assert exhausted(engine) == 0
        spout.answer = True
        await until(engine, lambda: exhausted(engine) == 1)


async def test_an_answer_that_has_no_truth_is_an_error() -> None:
    class Odd:
        def __bool__(self) -> bool:
            raise ValueError("ambiguous")

    async with running(Numbers()) as (engine, spout, errors):
        spout.answer = Odd()
        await until(engine, lambda: any("ambiguous" in one for one in errors))
        assert exhausted(engine) == 0


async def test_a_spout_may_say_that_it_has_no_end() -> None:
    async with running(Endless()) as (engine, spout, _):
        await until(engine, lambda: spout.asked)
        assert exhausted(engine) is None
    async with running(Silent(1)) as (engine, spout, _):
        await until(engine, lambda: not spout.left and engine.is_drained())
        assert exhausted(engine) is None
        assert engine.work_when_drained(at_end=True) is None


async def test_a_message_that_waits_for_its_replay_is_part_of_the_source() -> None:
    async with running(Replays(), Ends()) as (engine, spout, _):
        (bolt,) = engine.users("end")
        await until(engine, lambda: spout._later)  # it has failed three times
        for _ in range(3):  # and more than one question
            assert exhausted(engine) == 0
            await asyncio.sleep(0.4)
        bolt.fails = False
        await until(engine, lambda: exhausted(engine) == 1)
        assert not spout.has_replays


def test_an_answer_holds_until_the_source_may_go_on() -> None:
    end = SourceEnd()
    assert (end.has_ended, end.is_known) == (False, True)
    end.answered(True, 10.0, has_replays=True)
    assert (end.has_ended, end.ask_at) == (False, 10.0 + ASK_SECS)
    end.answered(1, 11.0, has_replays=False)
    assert end.has_ended
    end.goes_on()
    assert not end.has_ended
    end.answered(None, 12.0, has_replays=False)
    assert (end.has_ended, end.is_known) == (False, False)


def test_a_coroutine_cannot_answer() -> None:
    class Late(Numbers):
        async def exhausted(self) -> bool:
            return True

    problem = mode_problem(Late())
    assert problem is not None
    assert "async exhausted()" in problem[0]
