"""Savepoints of a running topology, and topologies that begin with one."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from squall_common.cluster.stores.memory import MemoryEnsemble, MemoryStore
from squall_common.cluster.values import SavepointRequest
from squall_common.config.options.typed import TopologyOptions
from squall_common.daemon.folders import Folder
from squall_common.errors import SquallError
from squall_common.state.checkpoint_store import CheckpointStore
from squall_common.state.errors import StateError, StateStoreError
from squall_common.state.manifest import ComponentPart, Manifest, TaskPart, decode_manifest
from squall_common.state.savepoint import find_savepoint, open_savepoint
from squall_common.topology.serialization import Registry
from squall_engine.core.codec import ValueCodec
from squall_engine.epochs import savepoints
from squall_engine.epochs.background import Background
from squall_engine.epochs.messages import Name, Record
from squall_engine.epochs.parts import PartStore
from squall_engine.epochs.record import RecordZnode
from squall_engine.epochs.savepoints import Savepoints, Taking, begin_with

MANIFEST = Manifest("words", 3, 7, {"lines": ComponentPart(0, (TaskPart(positions=b"x"),))})


class Running:
    """The savepoints of a topology whose epochs a test begins and completes."""

    def __init__(self, folder: Path) -> None:
        self.begins = 0
        self.changes = 0
        self.faults: list[SquallError] = []
        self.background = Background(
            "words", on_failure=lambda _: None, on_fault=self.faults.append
        )
        self.folder = folder
        self.savepoints = Savepoints(
            "words",
            str(folder),
            background=self.background,
            store=CheckpointStore(str(folder)),
            begin_epoch=self._begin,
            changed=self._changed,
        )

    def _begin(self) -> None:
        self.begins += 1

    def _changed(self) -> None:
        self.changes += 1

    async def until(self, condition: Callable[[], bool]) -> None:
        for _ in range(6000):
            if condition():
                return
            await asyncio.sleep(0.005)
        raise AssertionError(f"still {self.savepoints.state}")

    async def ask(self, name: str = "one", **options: object) -> SavepointRequest:
        request = SavepointRequest(name, int(time.time() * 1000), **options)  # type: ignore[arg-type]
        self.savepoints.follow(request)
        await self.until(lambda: self.savepoints.state is not Taking.LOOKING)
        return request

    async def complete(self, epoch: int) -> None:
        """Begin an epoch, and complete it."""
        self.savepoints.begun(epoch)
        manifest = Manifest("words", 3, epoch, MANIFEST.components)
        self.savepoints.completed(Record(9, 3, 1, epoch, history="words@1"), manifest)
        await self.until(lambda: self.savepoints.state is not Taking.COPYING)


async def test_no_epoch_begins_before_the_status_is_known(tmp_path: Path) -> None:
    running = Running(tmp_path)
    assert not running.savepoints.may_begin
    running.savepoints.follow(None)
    assert running.savepoints.may_begin
    assert not running.savepoints.wants_full


async def test_the_next_epoch_is_the_savepoint(tmp_path: Path) -> None:
    running = Running(tmp_path)
    request = await running.ask()
    assert (running.begins, running.savepoints.wants_full) == (1, True)
    await running.complete(8)
    result = running.savepoints.result
    assert result is not None
    assert (result.epoch, result.error, result.asked_ms) == (8, None, request.asked_ms)
    assert open_savepoint(result.place, "words").manifest.epoch == 8
    assert (running.changes, running.savepoints.may_begin) == (1, True)
    await running.complete(9)
    assert running.savepoints.result == result


async def test_an_epoch_that_was_given_up_is_taken_again(tmp_path: Path) -> None:
    running = Running(tmp_path)
    await running.ask()
    running.savepoints.begun(8)  # and nothing comes of it
    assert running.savepoints.wants_full
    await running.complete(9)
    assert running.savepoints.result is not None
    assert running.savepoints.result.epoch == 9


async def test_nothing_begins_after_a_savepoint_that_stops(tmp_path: Path) -> None:
    running = Running(tmp_path)
    request = await running.ask(stop=True)
    await running.complete(8)
    assert not running.savepoints.may_begin
    # A worker that takes this one's place finds it done.
    other = Running(tmp_path)
    other.savepoints.follow(request)
    assert not other.savepoints.may_begin
    await other.until(lambda: other.savepoints.state is not Taking.LOOKING)
    assert (other.savepoints.may_begin, other.begins) == (False, 0)
    assert other.savepoints.result == running.savepoints.result
    # Another request lets it go on.
    await running.ask("two")
    assert running.savepoints.may_begin


async def test_a_request_that_is_withdrawn_stops_nothing(tmp_path: Path) -> None:
    running = Running(tmp_path)
    await running.ask(stop=True)
    running.savepoints.follow(None)  # before its epoch
    assert (running.savepoints.may_begin, running.savepoints.wants_full) == (True, False)
    await running.complete(8)
    assert running.savepoints.result is None
    await running.ask("two", stop=True)
    await running.complete(9)
    assert not running.savepoints.may_begin
    running.savepoints.follow(None)  # after it
    assert running.savepoints.may_begin


async def test_a_copy_whose_request_is_withdrawn_is_finished_and_stops_nothing(
    tmp_path: Path,
) -> None:
    running = Running(tmp_path)
    await running.ask(stop=True)
    running.savepoints.begun(8)
    manifest = Manifest("words", 3, 8, MANIFEST.components)
    running.savepoints.completed(Record(9, 3, 1, 8, history="words@1"), manifest)
    assert running.savepoints.state is Taking.COPYING
    running.savepoints.follow(None)
    assert running.savepoints.may_begin
    await running.until(lambda: running.savepoints.state is not Taking.COPYING)
    assert running.savepoints.may_begin
    assert open_savepoint(str(tmp_path / "words" / "savepoints" / "one"), "words") is not None


async def test_a_request_that_is_withdrawn_while_it_is_looked_for_is_dropped(
    tmp_path: Path,
) -> None:
    running = Running(tmp_path)
    running.savepoints.follow(SavepointRequest("one", int(time.time() * 1000), stop=True))
    assert running.savepoints.state is Taking.LOOKING
    running.savepoints.follow(None)
    await running.until(lambda: running.savepoints.state is not Taking.LOOKING)
    assert (running.savepoints.may_begin, running.begins) == (True, 0)


async def test_a_place_that_cannot_be_written_is_an_error_and_stops_nothing(tmp_path: Path) -> None:
    running = Running(tmp_path)
    running.savepoints.follow(None)
    (tmp_path / "file").write_text("")
    await running.ask(folder=str(tmp_path / "file" / "folder"), stop=True)
    if running.savepoints.state is Taking.WANTED:
        await running.complete(8)
    assert running.savepoints.result is not None
    assert running.savepoints.result.error
    assert running.savepoints.may_begin


async def test_a_name_that_is_in_use_is_refused(tmp_path: Path) -> None:
    running = Running(tmp_path)
    await running.ask()
    await running.complete(8)
    await asyncio.sleep(0.002)  # asked at another millisecond
    await running.ask()
    assert running.savepoints.result is not None
    assert "there is a savepoint in" in (running.savepoints.result.error or "")


@pytest.mark.parametrize("stop", [False, True])
async def test_a_request_that_nobody_waits_for_any_more_is_dropped(
    tmp_path: Path, stop: bool
) -> None:
    """Also one that stops, and has failed: hours later it would halt a topology for good."""
    running = Running(tmp_path)
    running.savepoints.follow(SavepointRequest("one", 1000, stop=stop))
    await running.until(lambda: running.savepoints.state is not Taking.LOOKING)
    assert running.savepoints.state is Taking.IDLE
    assert running.savepoints.may_begin
    assert running.savepoints.result is not None
    assert "asked for more than 600 s ago" in (running.savepoints.result.error or "")


async def test_a_savepoint_that_stops_holds_whenever_the_worker_is_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    running = Running(tmp_path)
    request = await running.ask(stop=True)
    await running.complete(8)
    monkeypatch.setattr(savepoints, "_REQUEST_SECS_MAX", 0.0)
    other = Running(tmp_path)
    other.savepoints.follow(request)
    await other.until(lambda: other.savepoints.state is not Taking.LOOKING)
    assert other.savepoints.state is Taking.HALTED


async def test_nothing_begins_while_it_is_not_known_whether_it_was_to_stop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The store is away just when a worker takes another's place."""
    running = Running(tmp_path)
    request = await running.ask(stop=True)
    await running.complete(8)
    find, away = find_savepoint, True
    looks = 0

    def find_later(store: CheckpointStore) -> Any:
        nonlocal looks
        looks += 1
        if away:
            raise StateStoreError("the store is away")
        return find(store)

    monkeypatch.setattr(savepoints, "find_savepoint", find_later)
    monkeypatch.setattr(savepoints, "_LOOK_SECS", 0.001)
    other = Running(tmp_path)
    other.savepoints.follow(request)
    await other.until(lambda: looks > 3)
    assert not other.savepoints.may_begin
    away = False
    await other.until(lambda: other.savepoints.state is Taking.HALTED)
    # Another request is heard also while it is away.
    away, third, before = True, Running(tmp_path), looks
    third.savepoints.follow(request)
    await third.until(lambda: looks > before + 3)
    two = SavepointRequest("two", int(time.time() * 1000))
    third.savepoints.follow(two)
    await third.until(lambda: third.savepoints.state is Taking.IDLE)
    away = False
    third.savepoints.follow(two)
    await third.until(lambda: third.savepoints.state is Taking.WANTED)


async def test_a_place_that_vanishes_is_an_error_and_ends_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A bucket that does not exist, say: reading finds nothing in it, and writing fails."""
    running = Running(tmp_path)
    await running.ask()

    def write(folder: Folder, name: str, data: bytes) -> None:
        raise FileNotFoundError(2, "the specified bucket does not exist")

    monkeypatch.setattr(Folder, "write", write)
    running.savepoints.begun(8)
    running.savepoints.completed(Record(9, 3, 1, 8, history="words@1"), MANIFEST)
    await running.until(lambda: bool(running.savepoints.result or running.faults))
    assert running.faults == []
    assert running.savepoints.result is not None
    assert "does not exist" in (running.savepoints.result.error or "")


async def begun(folder: Path, place: str, record: RecordZnode, start: str = "words-2-2") -> None:
    store = CheckpointStore(str(folder))
    codec = ValueCodec(Registry.of(TopologyOptions()), allow_pickle=False, modules={})
    background = Background("words", on_failure=lambda _: None, on_fault=lambda _: None)
    await begin_with(
        place,
        topology="words",
        start=start,
        record=record,
        parts=PartStore(store, "words", {"lines": 1}, codec),
        store=store,
        background=background,
    )


async def record_of(folder: Path) -> RecordZnode:
    store = MemoryStore(MemoryEnsemble())
    await store.start()
    return RecordZnode(store, "/checkpoints/words", "words")


async def test_a_savepoint_becomes_the_last_epoch_once_for_a_start(tmp_path: Path) -> None:
    running, record = Running(tmp_path), await record_of(tmp_path)
    await running.ask()
    await running.complete(8)
    assert running.savepoints.result is not None
    place = running.savepoints.result.place
    assert await record.replace(
        Record(1, 5, 4, 30, Name(5, 30, "manifest"), "words@1", "words-1-1")
    )
    await begun(tmp_path, place, record)
    first = await record.read()
    assert (first.generation, first.epoch, first.start) == (6, 30, "words-2-2")
    assert first.history != "words@1"
    name = "words/manifests/00000006-000000000030"
    manifest = decode_manifest(CheckpointStore(str(tmp_path)).get(name), name)
    assert manifest.components == MANIFEST.components
    complete = replace(first, version=first.version + 1, epoch=31)
    assert await record.replace(complete)
    await begun(tmp_path, place, record)  # after a fault
    assert await record.read() == complete
    await begun(tmp_path, place, record, "words-3-3")
    assert (await record.read()).start == "words-3-3"


async def test_a_place_without_a_savepoint_changes_nothing(tmp_path: Path) -> None:
    record = await record_of(tmp_path)
    with pytest.raises(StateError, match="there is no savepoint"):
        await begun(tmp_path, str(tmp_path / "none"), record)
    assert (await record.read()).epoch == 0
