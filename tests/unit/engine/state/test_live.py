"""The state of running tasks is read between two tuples, and reading changes nothing."""

from __future__ import annotations

import asyncio
import math
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from squall import CounterState, Spout, StatefulBolt, TopologyBuilder
from squall.windows import WindowedBolt, tumbling
from squall_common.component.state import MemoryState
from squall_common.config.load import default_conf, normalize_topology_conf
from squall_common.state.keyed import KeyedState
from squall_common.telemetry.live_state import Answer, Question, TaskAnswer, merged
from squall_common.topology.model import WorkerSlot
from squall_common.topology.prepared import prepare
from squall_engine.atomic.undo import UndoableState, hot
from squall_engine.core import HotState
from squall_engine.core.codec import ValueCodec
from squall_engine.embed import EmbeddedEngine, EngineSettings
from squall_engine.state import live

WORDS = [f"word {n % 50:02}" for n in range(200)]


class Words(Spout):
    outputs = ["word"]

    def __init__(self, words: list[str]) -> None:
        self.words = words

    def open(self, conf: Any, context: Any) -> None:
        self.at = 0

    def next_tuple(self) -> None:
        if self.at < len(self.words):
            self.emit([self.words[self.at]])
            self.at += 1


class Count(StatefulBolt):
    def execute(self, tup: Any) -> None:
        self.state.put(tup["word"], self.state.get(tup["word"], 0) + 1)


class CountOnThread(Count):
    blocking = True


class CountAsync(StatefulBolt):
    async def execute(self, tup: Any) -> None:
        await asyncio.sleep(0)
        self.state.put(tup["word"], self.state.get(tup["word"], 0) + 1)


class Lists(StatefulBolt):
    def prepare(self, conf: Any, context: Any) -> None:
        self.number = CounterState(self.state, "number")

    def execute(self, tup: Any) -> None:
        self.number.inc(tup["word"])
        if tup["word"] not in dict(self.state.items()):
            self.state.put(tup["word"], {"list": []})
        self.state.get(tup["word"])["list"].append(1)


class Expiring(Count):
    state_ttl_secs = 0.001


class LongExpiring(Count):
    state_ttl_secs = 1_000.0


class Large(StatefulBolt):
    def execute(self, tup: Any) -> None:
        self.state.put(tup["word"], "x" * 10_000)


class Windows(WindowedBolt):
    windows = tumbling(count=1_000)

    def execute_window(self, window: Any) -> None:
        pass


class Own(StatefulBolt):
    def prepare(self, conf: Any, context: Any) -> None:
        self.state = "text"  # type: ignore[assignment]

    def execute(self, tup: Any) -> None: ...


GATE = threading.Event()


class Half(StatefulBolt):
    """Puts twice in one call."""

    async def execute(self, tup: Any) -> None:
        self.state.put("half", 1)
        while not GATE.is_set():  # noqa: ASYNC110  # of another thread
            await asyncio.sleep(0.001)
        self.state.put("half", 2)


class Stuck(StatefulBolt):
    def execute(self, tup: Any) -> None:
        GATE.wait(60)


def engine_of(bolt: Any, tasks: int = 2, words: Any = WORDS, **conf: Any) -> EmbeddedEngine:
    builder = TopologyBuilder()
    builder.spout("words", Words(words))
    builder.bolt("count", bolt, parallelism=tasks).fields("words", "word")
    changes = {key.replace("_", "."): value for key, value in conf.items()}
    stored = normalize_topology_conf(
        {"topology.workers": 1, **changes}, default_conf(), name="words"
    )
    prepared = prepare(builder.build(), stored)
    settings = EngineSettings(
        prepared=prepared,
        topology_id="words-1-1",
        slot=WorkerSlot("test", 1),
        executors=prepared.executors,
        daemon_conf=default_conf(),
        seed=1,
    )
    return EmbeddedEngine(settings)


async def run(engine: EmbeddedEngine, words: int = len(WORDS)) -> None:
    """Until so many tuples were executed."""
    await engine.start()
    engine.set_active(True)
    await engine.run_until(lambda: engine.totals()["count"]["executed"] >= words)


async def ask(engine: EmbeddedEngine, secs: float = 30.0, **question: Any) -> list[TaskAnswer]:
    answer: Answer = await asyncio.to_thread(engine.live_state, Question(**question), secs)
    assert answer.trouble is None
    return sorted(answer.tasks, key=lambda one: one.task)


STORE = {"topology_state_provider": "store", "topology_state_checkpoint_interval_ms": 3_600_000}
DISK = {**STORE, "topology_state_backend": "disk", "topology_state_backend_write_entries": 10}


async def test_sizes_look_at_few_keys_however_many_there_are(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """On the loop: a copy of all keys would hold it up for 15 ms for a million."""
    engine = engine_of(Count())
    await run(engine)
    monkeypatch.setattr(MemoryState, "keys", None)
    assert all(one.bytes and one.trouble is None for one in await ask(engine))
    await engine.stop(0.0)


@pytest.mark.parametrize(
    ("bolt", "conf"),
    [
        (Count, {}),
        (Count, STORE),
        (Count, DISK),
        (CountOnThread, {}),
        (CountOnThread, DISK),
        (CountAsync, {}),
        (CountAsync, STORE),
    ],
)
async def test_sizes_keys_and_values_of_every_kind(
    bolt: type[StatefulBolt], conf: dict[str, Any], tmp_path: Path
) -> None:
    if conf:
        conf = {**conf, "topology_state_url": str(tmp_path)}
    engine = engine_of(bolt(), **conf)
    await run(engine)
    sizes = await ask(engine)
    assert [one.component for one in sizes] == ["count"] * 2
    assert sum(one.keys or 0 for one in sizes) == 50
    assert all(one.bytes and one.trouble is None and not one.entries for one in sizes)

    found = [entry for one in await ask(engine, key="word 07") for entry in one.entries]
    assert [(entry.key, entry.value) for entry in found] == [("word 07", 4)]
    assert found[0].stored is (False if conf else None)

    listed: list[str] = []
    for task in range(2):
        after = None
        while True:
            one = (await ask(engine, lists=True, prefix="word 0", limit=2, after=after))[task]
            listed += [entry.key for entry in one.entries]
            if not one.more:
                break
            after = one.entries[-1].order
    assert sorted(listed) == [f"word {n:02}" for n in range(10)]
    await engine.stop(0.0)


def test_what_the_core_puts_with_checkpoints_is_found() -> None:
    codec = ValueCodec()
    inner = KeyedState(16, codec)
    shown = hot(UndoableState(inner, codec))
    assert isinstance(shown, HotState)
    built: Any = SimpleNamespace(task=SimpleNamespace(user=SimpleNamespace(state=shown)))
    assert live._state_of(built) is inner


async def test_what_is_read_is_not_changed(tmp_path: Path) -> None:
    """Neither values that may be changed in place, nor owners, nor what a snapshot will have."""
    engine = engine_of(Lists(), 1, ["a", "b"], topology_state_url=str(tmp_path), **STORE)
    await run(engine, 2)
    (stored,) = engine.states.tasks.values()  # type: ignore[union-attr]
    state = stored.state
    state.snapshot(1)
    state.completed(1)
    (one,) = await ask(engine, lists=True)
    assert {str(entry.key): entry.value for entry in one.entries} == {
        "['number', 'a']": 1,
        "['number', 'b']": 1,
        "a": {"list": [1]},
        "b": {"list": [1]},
    }
    assert all(entry.stored for entry in one.entries)
    assert (one.unstored, one.bound, one.epoch) == (0, 0, 1)
    assert not state.has_changes
    (one,) = await ask(engine, key='["number", "a"]')
    assert [entry.value for entry in one.entries] == [1]
    assert not state.has_changes
    await engine.stop(0.0)


async def test_what_has_expired_is_not_shown() -> None:
    engine = engine_of(Expiring(), 1, ["a"])
    await run(engine, 1)
    await asyncio.sleep(0.01)
    (one,) = await ask(engine, key="a")
    assert one.entries == ()
    await engine.stop(0.0)


async def all_pages(engine: EmbeddedEngine, limit: int) -> list[str]:
    """The keys of all tasks, as the command lists them."""
    listed: list[str] = []
    after = None
    while True:
        found, more = merged(await ask(engine, lists=True, limit=limit, after=after), limit)
        listed += [entry.key for _, entry in found]
        if not more:
            return listed
        after = found[-1][1].order


async def test_a_task_with_large_values_leaves_room_for_the_keys_of_others() -> None:
    words = [f"{n:02}" for n in range(60)]
    engine = engine_of(Large(), 2, words)
    await run(engine, len(words))
    assert await all_pages(engine, 100) == words
    await engine.stop(0.0)


async def test_a_value_that_has_no_room_is_cut_and_its_key_is_there(monkeypatch: Any) -> None:
    monkeypatch.setattr(live, "_ANSWER_BYTES", 1_000)
    engine = engine_of(Large(), 1, ["a", "b"])
    await run(engine, 2)
    (one,) = await ask(engine, lists=True)
    assert [(entry.key, entry.cut) for entry in one.entries] == [("a", True)]
    assert await all_pages(engine, 100) == ["a", "b"]
    await engine.stop(0.0)


async def test_keys_that_have_expired_do_not_end_a_listing() -> None:
    words = [f"{n:02}" for n in range(30)]
    engine = engine_of(LongExpiring(), 1, words)
    await run(engine, len(words))
    state = engine.users("count")[0].state
    for word in words[:20]:  # as nothing calls the bolt, they are not removed
        state._put_at[word] = -math.inf
    assert await all_pages(engine, 5) == words[20:]
    await engine.stop(0.0)


async def test_windows_have_sizes() -> None:
    engine = engine_of(Windows(), 1)
    await run(engine)
    (one,) = await ask(engine)
    assert (one.keys, one.windows) == (None, {"tuples": 200})
    await engine.stop(0.0)


async def test_bolts_without_state_say_so() -> None:
    engine = engine_of(Own(), 1, [])
    await run(engine, 0)
    assert await ask(engine) == []
    (one,) = await ask(engine, component="count")
    assert one.trouble == "it has no state"
    await engine.stop(0.0)


async def test_half_of_a_call_is_not_read() -> None:
    """A coroutine without checkpoints changes the state as it goes."""
    GATE.clear()
    engine = engine_of(Half(), 1, ["a"])
    await engine.start()
    engine.set_active(True)
    await engine.run_until(lambda: engine.users("count")[0].state.get("half") == 1)
    asking = asyncio.create_task(ask(engine, key="half"))
    (one,) = await asking
    assert one.entries == ()
    assert "have been under way all the time" in (one.trouble or "")
    asking = asyncio.create_task(ask(engine, key="half"))
    GATE.set()
    (one,) = await asking
    assert [entry.value for entry in one.entries] == [2]
    await engine.stop(0.0)


async def test_a_run_loop_that_is_stuck_is_said_within_seconds() -> None:
    GATE.clear()
    engine = engine_of(Stuck(), 2, ["a"])
    await engine.start()
    found: list[list[TaskAnswer]] = []

    def look() -> None:
        try:
            answer = engine.live_state(Question(), 1.0)
            found.append(sorted(answer.tasks, key=lambda one: one.task))
        finally:
            GATE.set()

    engine.set_active(True)
    asking = threading.Timer(0.5, look)
    asking.start()
    await engine.run_until_drained()
    await asyncio.to_thread(asking.join)
    assert len(found[0]) == 2
    assert all("run loop has been in Stuck.execute" in (one.trouble or "") for one in found[0])
    await engine.stop(0.0)


async def test_an_engine_that_has_ended_answers() -> None:
    engine = engine_of(Count(), 1, [])
    await run(engine, 0)
    await engine.stop(0.0)
    loop = asyncio.new_event_loop()
    loop.close()
    engine._loop = loop
    (one,) = await ask(engine)
    assert one.trouble == "its worker is ending"
