"""State that is stored: it is found again, and nothing that was acked is missing from it."""

from __future__ import annotations

import asyncio
import collections
import contextlib
import dataclasses
import math
import time
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from squall import Bolt, Spout, StatefulBolt, TopologyBuilder, WindowedBolt
from squall.windows import tumbling
from squall_common.component.metrics.instruments import Gauge
from squall_common.config.load import default_conf, normalize_topology_conf
from squall_common.errors import ConfigError, InvalidTopologyError
from squall_common.state.checkpoint_store import CheckpointStore
from squall_common.state.disk.table import DiskTable
from squall_common.state.errors import StateStoreError, StateTableLostError
from squall_common.state.task_store import read_chain
from squall_common.telemetry.samples import WORKER_FAMILIES
from squall_common.topology.model import WorkerSlot
from squall_common.topology.prepared import prepare
from squall_engine.embed import EmbeddedEngine, EngineCallbacks, EngineEndedError, EngineSettings
from squall_engine.loading import ComponentStartError
from squall_engine.state.keys import key_finder

FAST = {"topology.state.checkpoint.interval.ms": 10}
DISK = {"topology.state.backend": "disk", "topology.state.backend.write.entries": 1}


class Words(Spout):
    outputs = ["word"]

    def __init__(self, words: list[str]) -> None:
        self.words = words

    def open(self, conf: Any, context: Any) -> None:
        self.at = 0
        self.acked: list[int] = []
        self.failed: list[int] = []

    def next_tuple(self) -> None:
        if self.at < len(self.words):
            self.emit([self.words[self.at]], message_id=self.at)
            self.at += 1

    def ack(self, msg_id: int) -> None:
        self.acked.append(msg_id)

    def fail(self, msg_id: int) -> None:
        self.failed.append(msg_id)


class Count(StatefulBolt):
    def execute(self, tup: Any) -> None:
        self.state.put(tup["word"], self.state.get(tup["word"], 0) + 1)


class CountByHand(Count):
    auto_ack = False

    def execute(self, tup: Any) -> None:
        super().execute(tup)
        self.ack(tup)


class CountInBatches(StatefulBolt):
    def execute_batch(self, tuples: list[Any]) -> None:
        for tup in tuples:
            self.state.put(tup["word"], self.state.get(tup["word"], 0) + 1)


class CountAsync(StatefulBolt):
    async def execute(self, tup: Any) -> None:
        self.state.put(tup["word"], self.state.get(tup["word"], 0) + 1)
        await asyncio.sleep(0)
        assert self.state.current == tup["word"]  # type: ignore[attr-defined]


class CountAsyncBatches(StatefulBolt):
    async def execute_batch(self, tuples: list[Any]) -> None:
        await asyncio.sleep(0)
        for tup in tuples:
            self.state.put(tup["word"], self.state.get(tup["word"], 0) + 1)


class CountOnThread(Count):
    blocking = True


class CountBatchesOnThread(CountInBatches):
    blocking = True


class CountInWindows(WindowedBolt, StatefulBolt):
    def execute_window(self, window: Any) -> None:
        for tup in window:
            self.state.put(tup["word"], self.state.get(tup["word"], 0) + 1)


class CountColumns(StatefulBolt):
    def execute_columns(self, columns: Any) -> None:
        pass


KINDS = [
    Count,
    CountByHand,
    CountInBatches,
    CountAsync,
    CountAsyncBatches,
    CountOnThread,
    CountBatchesOnThread,
]


def engine_of(
    words: list[str],
    bolt: StatefulBolt,
    conf: dict[str, Any],
    *,
    tasks: int = 2,
    by: str = "fields",
    spout: Words | None = None,
) -> tuple[EmbeddedEngine, list[BaseException]]:
    builder = TopologyBuilder()
    builder.spout("words", spout or Words(words))
    declarer = builder.bolt("count", bolt, parallelism=tasks)
    if isinstance(bolt, WindowedBolt):
        declarer.windowed(tumbling(count=1))
    if by == "fields":
        declarer.fields("words", "word")
    elif by == "partial_key":
        declarer.partial_key("words", "word")
    else:
        getattr(declarer, by)("words")
    stored = normalize_topology_conf({"topology.workers": 1, **conf}, default_conf(), name="words")
    prepared = prepare(builder.build(), stored)
    settings = EngineSettings(
        prepared=prepared,
        topology_id="words-1-1",
        slot=WorkerSlot("test", 1),
        executors=prepared.executors,
        daemon_conf=default_conf(),
        seed=1,
    )
    errors: list[BaseException] = []
    callbacks = EngineCallbacks(
        on_reported=lambda _component, _task, error: errors.append(error),
        on_fatal=errors.append,
    )
    return EmbeddedEngine(settings, callbacks), errors


def spout_of(engine: EmbeddedEngine) -> Words:
    return next(one.task.user for one in engine.built if isinstance(one.task.user, Words))


def counts_of(engine: EmbeddedEngine) -> dict[str, int]:
    assert engine.states is not None
    found: dict[str, int] = {}
    for stored in engine.states.tasks.values():
        for key, value in stored.state.items():
            assert key not in found, "a word is counted by one task"
            found[key] = value
    return found


def stored_counts(url: str, tasks: int = 2) -> dict[str, int]:
    from squall_common.state.keyed import KeyedState
    from squall_engine.core.codec import ValueCodec

    store, found = CheckpointStore(url), {}
    for index in range(tasks):
        folder = f"words/count/{index:05}"
        state = KeyedState(128, ValueCodec())
        names = [name for name in store.names(folder) if name.endswith(".segment")]
        if names:
            state.restore([read_chain(store, folder, names)], range(128), bound=True)
        found.update(dict(state.items()))
    return found


@pytest.mark.parametrize(
    ("kind", "backend"), [*((kind, {}) for kind in KINDS), (Count, DISK), (CountOnThread, DISK)]
)
async def test_a_worker_that_dies_finds_its_last_flushed_state_and_nothing_acked_is_missing(
    kind: type[StatefulBolt], backend: dict[str, Any], tmp_path: Path
) -> None:
    words = [f"word {n % 50}" for n in range(2_000)]
    conf = {"topology.state.provider": "store", "topology.state.url": str(tmp_path), **FAST}
    conf |= backend
    engine, errors = engine_of(words, kind(), conf)
    await engine.start()
    engine.set_active(True)
    spout = spout_of(engine)
    await engine.run_until(lambda: len(spout.acked) > 100)
    engine.die(RuntimeError("killed"))  # no flush, no cleanup
    acked = collections.Counter(words[id_] for id_ in spout.acked)
    found = stored_counts(str(tmp_path))
    assert all(found[word] >= count for word, count in acked.items())

    again, errors = engine_of(words, kind(), conf)
    await again.start()
    restored = counts_of(again)
    assert all(restored[word] >= count for word, count in acked.items())
    again.set_active(True)
    spout = spout_of(again)
    async with asyncio.timeout(60):
        await again.run_until(lambda: len(spout.acked) == len(words))
    expected = {word: restored.get(word, 0) + 40 for word in words}
    assert counts_of(again) == expected
    await again.stop(drain_secs=5)
    assert errors == []
    assert stored_counts(str(tmp_path)) == expected


class Replaying(Words):
    """Emits what has failed again. A word that names a bad key stands for it."""

    def next_tuple(self) -> None:
        if self.at < len(self.words):
            self._send(self.at)
            self.at += 1

    def fail(self, msg_id: int) -> None:
        super().fail(msg_id)
        self._send(msg_id)

    def _send(self, at: int) -> None:
        word = self.words[at]
        self.emit([BAD_KEYS[word][0] if word in BAD_KEYS else word], message_id=at)


def local() -> Any:
    @dataclasses.dataclass(frozen=True)
    class Local:
        """Of no module, so it has no encoding."""

    return Local()


# Keys that are of no use, and what their error says.
BAD_KEYS = {
    "none is found": ("no key", "IndexError"),
    "not encodable": (local(), "(field 'word') cannot be stored"),
    "NaN": (math.nan, "(field 'word') would not be found again"),
    "unhashable": (["a"], "unhashable"),
}


_WITH_BAD_KEYS = [
    (kind, backend, key)
    for kind, backend in [*((kind, {}) for kind in KINDS), (Count, DISK), (CountOnThread, DISK)]
    for key in BAD_KEYS
    if key != "none is found" or kind.execute_batch is Bolt.execute_batch  # which looks for none
]


@pytest.mark.parametrize(("kind", "backend", "key"), _WITH_BAD_KEYS)
async def test_a_tuple_whose_key_is_of_no_use_is_a_dead_letter_and_the_worker_goes_on(
    kind: type[StatefulBolt],
    backend: dict[str, Any],
    key: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    told = BAD_KEYS[key][1]
    if backend and key in ("not encodable", "unhashable"):
        told = "(field 'word') cannot be stored: ValueError: a key of type"
    in_batches = kind.execute_batch is not Bolt.execute_batch

    def finder(*given: Any) -> Any:
        find = key_finder(*given)

        def key_of(tup: Any) -> Any:
            if tup.values[0] == "no key":
                raise IndexError("tuple index out of range")  # as if it was shortened
            return find(tup)

        return key_of

    monkeypatch.setattr("squall_engine.state.task_states.key_finder", finder)
    words = [f"word {n % 10}" for n in range(200)]
    bads = (0, 57, 199)
    for at in bads:
        words[at] = key
    conf = {"topology.state.provider": "store", "topology.state.url": str(tmp_path), **FAST}
    conf |= {**backend, "topology.max.replays": 1}
    engine, errors = engine_of(words, kind(), conf, spout=Replaying(words))
    await engine.start()
    engine.set_active(True)
    spout = spout_of(engine)
    async with asyncio.timeout(60):
        await engine.run_until(lambda: len(set(spout.acked)) == len(words))  # or dead letters
    await engine.stop(drain_secs=5)
    assert set(bads) <= set(spout.failed)
    if not in_batches:  # others of a batch fail with it
        assert sorted(spout.failed) == sorted(bads)
    assert errors
    found = stored_counts(str(tmp_path))
    good = collections.Counter(word for at, word in enumerate(words) if at not in bads)
    if in_batches:
        assert all(found[word] >= count for word, count in good.items())
    else:
        assert found == good
    assert all(told in f"{type(error).__name__}: {error}" or in_batches for error in errors)


@pytest.mark.parametrize("kind", [Count, CountInBatches, CountInWindows])
async def test_a_tuple_is_acked_only_after_a_flush(
    kind: type[StatefulBolt], tmp_path: Path
) -> None:
    conf = {
        "topology.state.provider": "store",
        "topology.state.url": str(tmp_path),
        "topology.state.checkpoint.interval.ms": 3_600_000,
    }
    engine, _ = engine_of(["a", "b", "a"], kind(), conf)
    await engine.start()
    engine.set_active(True)
    async with asyncio.timeout(30):
        await engine.run_until(lambda: counts_of(engine) == {"a": 2, "b": 1})
    spout = spout_of(engine)
    assert spout.acked == []
    assert stored_counts(str(tmp_path)) == {}
    async with asyncio.timeout(30):  # a worker that ends flushes at once
        assert await engine.stop(drain_secs=20)
    assert sorted(spout.acked) == [0, 1, 2]
    assert stored_counts(str(tmp_path)) == {"a": 2, "b": 1}


async def test_metrics_show_how_large_the_state_is(tmp_path: Path) -> None:
    conf = {"topology.state.provider": "store", "topology.state.url": str(tmp_path), **FAST}
    engine, _ = engine_of(["a", "b", "a"], Count(), conf, tasks=1)
    await engine.start()
    engine.set_active(True)
    spout = spout_of(engine)
    async with asyncio.timeout(30):
        await engine.run_until(lambda: len(spout.acked) == 3)
    (folder,) = tmp_path.glob("words/count/00000")
    size = sum(file.stat().st_size for file in folder.glob("*.segment"))
    found = {
        name: gauge.value
        for component, _, name, gauge in engine.instruments()
        if component == "count" and isinstance(gauge, Gauge)
    }
    assert (found.pop("state.flush-secs") or 0) > 0
    assert found == {
        "state.keys": 2,
        "state.bytes": size,
        "state.bound-keys": 0,
        "state.held-tuples": 0,
    }
    samples = {one.family: one for one in engine.samples().read(0.0, 0.0)}
    shown = [samples["squall_state_keys"], samples["squall_state_bytes"]]
    assert [one.value for one in shown] == [2, size]
    assert [one.labels for one in shown] == [{"component": "count"}] * 2
    assert samples.keys() <= WORKER_FAMILIES.keys()
    await engine.stop(drain_secs=1)


async def test_while_the_store_is_away_tuples_wait_and_nothing_is_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    conf = {"topology.state.provider": "store", "topology.state.url": str(tmp_path), **FAST}
    engine, errors = engine_of(["a", "b", "a"], Count(), conf)
    put, away = CheckpointStore.put, [True]

    def failing(self: CheckpointStore, name: str, data: Any) -> None:
        if away[0] and name.endswith(".segment"):
            raise StateStoreError("the store is away")
        put(self, name, data)

    monkeypatch.setattr(CheckpointStore, "put", failing)
    await engine.start()
    engine.set_active(True)
    spout = spout_of(engine)
    async with asyncio.timeout(30):
        await engine.run_until(lambda: len(errors) >= 3 and sum(counts_of(engine).values()) == 3)
    assert spout.acked == []
    assert all(isinstance(error, StateStoreError) for error in errors)
    away[0] = False
    async with asyncio.timeout(30):
        await engine.run_until(lambda: len(spout.acked) == 3)
    assert stored_counts(str(tmp_path)) == {"a": 2, "b": 1}
    await engine.stop(drain_secs=1)


async def test_a_snapshot_waits_until_the_one_before_is_noted_as_completed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise a bolt's own thread adds its changes to those that are being dropped."""
    conf = {"topology.state.provider": "store", "topology.state.url": str(tmp_path), **FAST}
    engine, _ = engine_of(["a", "b", "a"], CountOnThread(), conf, tasks=1)
    await engine.start()
    assert engine.states is not None
    (stored,) = engine.states.tasks.values()
    completed = stored.state.completed
    taken: list[bool] = []

    def completing(epoch: int) -> None:
        before = stored._last_epoch
        stored.flush()  # as the thread may now
        taken.append(stored._last_epoch != before)
        completed(epoch)

    monkeypatch.setattr(stored.state, "completed", completing)
    engine.set_active(True)
    spout = spout_of(engine)
    async with asyncio.timeout(30):
        await engine.run_until(lambda: len(spout.acked) == 3)
    assert not any(taken)
    await engine.stop(drain_secs=1)
    assert stored_counts(str(tmp_path), tasks=1) == {"a": 2, "b": 1}


async def test_a_task_that_was_replaced_acks_nothing_more_and_ends(tmp_path: Path) -> None:
    conf = {"topology.state.provider": "store", "topology.state.url": str(tmp_path), **FAST}
    old, _ = engine_of(["a"] * 5, Count(), conf, tasks=1)
    await old.start()
    old.set_active(True)
    spout = spout_of(old)
    async with asyncio.timeout(30):
        await old.run_until(lambda: len(spout.acked) == 5)
    new, _ = engine_of([], Count(), conf, tasks=1)
    await new.start()
    assert counts_of(new) == {"a": 5}
    spout.words = ["a"] * 9
    async with asyncio.timeout(30):
        with contextlib.suppress(EngineEndedError):
            await old.run_until(lambda: old.fatal is not None)
    assert "another worker has taken over" in str(old.fatal)
    assert len(spout.acked) == 5
    await new.stop(drain_secs=1)
    again, _ = engine_of([], Count(), conf, tasks=1)
    await again.start()
    assert counts_of(again)["a"] >= 5, "what was not acked may be there, too"
    await again.stop(drain_secs=1)


@pytest.mark.parametrize(
    ("bolt", "by", "tasks", "message"),
    [
        (Count(), "shuffle", 1, r"it subscribes to 'words' by a grouping \(shuffle\)"),
        (Count(), "all", 1, r"by a grouping \(all\)"),
        (Count(), "partial_key", 1, r"by a grouping \(custom or partial_key\)"),
        (CountColumns(), "fields", 2, "cannot define execute_columns"),
        (CountInBatches(), "fields", 3, "state that belongs to its tasks .* 2 of them, not 3"),
    ],
)
async def test_what_cannot_be_stored_is_refused_at_the_start(
    bolt: StatefulBolt, by: str, tasks: int, message: str, tmp_path: Path
) -> None:
    conf = {"topology.state.provider": "store", "topology.state.url": str(tmp_path), **FAST}
    kind = CountInBatches if isinstance(bolt, CountInBatches) else Count
    first, _ = engine_of(["a"], kind(), conf)
    await first.start()
    first.set_active(True)
    spout = spout_of(first)
    async with asyncio.timeout(30):
        await first.run_until(lambda: len(spout.acked) == 1)
    await first.stop(drain_secs=1)
    for index in range(2):  # each task has stored something
        folder = tmp_path / "words" / "count" / f"{index:05}"
        assert folder.is_dir()
    engine, reported = engine_of(["a"], bolt, conf, tasks=tasks, by=by)
    with pytest.raises(ComponentStartError, match=message) as caught:
        await engine.start()
    assert reported == [caught.value]  # it names the component and has a hint


@pytest.mark.parametrize(
    ("conf", "message"),
    [
        ({"topology.state.provider": "store"}, "topology.state.url is not set"),
        (
            {"topology.state.provider": "redis", "topology.state.provider.config": "{"},
            "not the JSON text of a map",
        ),
        (
            {
                "topology.state.provider": "redis",
                "topology.state.provider.config": {"jedisClusterConfig": {}},
            },
            "has jedisClusterConfig",
        ),
        (
            {
                "topology.state.provider": "redis",
                "topology.state.provider.config": {"jedisPoolConfig": {"password": 1234}},
            },
            r"password is int\nexpected str",  # not the password
        ),
        ({"topology.state.provider.config": {"x": 1}}, "has x, which the provider 'memory'"),
        ({"topology.state.backend": "disk"}, "'disk', and its state is not stored"),
        (
            {"topology.state.backend": "disk", "topology.state.provider": "redis"},
            "'disk', and topology.state.provider is 'redis'",
        ),
    ],
)
def test_a_provider_that_is_not_fully_configured_is_refused(
    conf: dict[str, Any], message: str
) -> None:
    with pytest.raises((ConfigError, InvalidTopologyError), match=message):
        engine_of([], Count(), conf)


async def test_state_of_coroutines_on_disk_is_refused_without_checkpoints(tmp_path: Path) -> None:
    conf = {"topology.state.provider": "store", "topology.state.url": str(tmp_path), **DISK}
    engine, _ = engine_of(["a"], CountAsync(), conf)
    with pytest.raises(ComponentStartError, match="coroutines, whose state cannot be on disk"):
        await engine.start()


async def test_a_full_disk_of_the_worker_delays_acks_until_it_is_free(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write, tries = DiskTable.write, []

    def full(table: DiskTable, *arguments: Any) -> None:
        tries.append(arguments)
        if len(tries) <= 2:
            raise StateStoreError("no space left on the worker's disk")
        write(table, *arguments)

    monkeypatch.setattr(DiskTable, "write", full)
    conf = {"topology.state.provider": "store", "topology.state.url": str(tmp_path), **DISK}
    engine, _ = engine_of(["a", "b", "a"], Count(), conf | FAST)
    await engine.start()
    engine.set_active(True)
    spout = spout_of(engine)
    async with asyncio.timeout(30):
        await engine.run_until(lambda: len(spout.acked) == 3)
    assert len(tries) > 2
    assert counts_of(engine) == {"a": 2, "b": 1}
    await engine.stop(drain_secs=1)


async def test_a_worker_whose_table_takes_no_more_writes_dies_with_nothing_acked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lost(*_: Any) -> None:
        raise StateTableLostError("the table is lost")

    conf = {"topology.state.provider": "store", "topology.state.url": str(tmp_path), **DISK}
    engine, _ = engine_of(["a", "b", "a"], Count(), conf | FAST)
    await engine.start()
    monkeypatch.setattr(DiskTable, "write", lost)
    engine.set_active(True)
    spout = spout_of(engine)
    async with asyncio.timeout(30):
        with pytest.raises(EngineEndedError):
            await engine.run_until(lambda: bool(spout.acked))
    assert isinstance(engine.fatal, StateTableLostError)
    assert spout.acked == []


async def test_state_in_memory_costs_no_flush_and_acks_at_once() -> None:
    engine, _ = engine_of(["a"], Count(), {})
    await engine.start()
    assert engine.states is None
    engine.set_active(True)
    spout = spout_of(engine)
    start = time.monotonic()
    async with asyncio.timeout(30):
        await engine.run_until(lambda: spout.acked == [0])
    assert time.monotonic() - start < 10
    await engine.stop(drain_secs=1)


class AppendAfterSnapshot(StatefulBolt):
    folder: Path  # of the store

    async def execute(self, tup: Any) -> None:
        words = self.state.get("all")
        if words is None:
            words = []
            self.state.put("all", words)
        before = self.segments()
        # A snapshot with the value as it was is written.
        while self.segments() == before:  # noqa: ASYNC110
            await asyncio.sleep(0.002)
        words.append(tup["word"])

    def segments(self) -> set[Path]:
        return set(self.folder.glob("**/*.segment"))


async def test_a_change_in_place_after_an_await_is_stored_before_the_ack(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(AppendAfterSnapshot, "folder", tmp_path, raising=False)
    conf = {"topology.state.provider": "store", "topology.state.url": str(tmp_path), **FAST}
    engine, _ = engine_of(["a"], AppendAfterSnapshot(), conf, tasks=1)
    await engine.start()
    engine.set_active(True)
    spout = spout_of(engine)
    async with asyncio.timeout(30):
        await engine.run_until(lambda: spout.acked == [0])
    engine.die(RuntimeError("killed"))  # no flush, no cleanup
    stored: Any = stored_counts(str(tmp_path), tasks=1)
    assert stored == {"all": ["a"]}


def has_acked(spout: Words, count: int) -> bool:
    return len(spout.acked) == count


@pytest.mark.parametrize("kind", [Count, CountAsync, CountOnThread])
async def test_state_moves_to_another_number_of_tasks_and_back(
    kind: type[StatefulBolt], tmp_path: Path
) -> None:
    """As when a topology was killed, and is submitted with another number of tasks."""
    words = [f"word {n % 97}" for n in range(970)]
    conf = {"topology.state.provider": "store", "topology.state.url": str(tmp_path), **FAST}
    for times, tasks in enumerate((2, 5, 3, 2), start=1):
        engine, _ = engine_of(words, kind(), conf, tasks=tasks)
        await engine.start()
        assert sum(counts_of(engine).values()) == (times - 1) * len(words)
        engine.set_active(True)
        spout = spout_of(engine)
        async with asyncio.timeout(60):
            await engine.run_until(partial(has_acked, spout, len(words)))
        engine.die(RuntimeError("killed"))  # no flush, no cleanup
        assert counts_of(engine) == dict.fromkeys(words, 10 * times)
    (newest,) = {file.parent.parent.name for file in tmp_path.glob("**/*.segment")}
    assert newest == "layout-000003-00002"  # the segments of the others are deleted
