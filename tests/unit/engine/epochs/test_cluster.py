"""The epochs of a topology on a cluster, in the worker that coordinates them."""

from __future__ import annotations

import asyncio
import re
import threading
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from squall import TopologyBuilder
from squall.testing import ReplayableSpout
from squall_common.cluster.stores.memory import MemoryEnsemble, MemoryStore
from squall_common.cluster.values import SavepointRequest, StormBase, TopologyStatus
from squall_common.config.options.typed import TopologyOptions
from squall_common.errors import SquallError
from squall_common.state.checkpoint_store import CheckpointStore
from squall_common.state.errors import StateDamagedError, StateStoreError
from squall_common.topology.model import WorkerSlot
from squall_common.topology.prepared import prepare
from squall_engine.epochs import cluster
from squall_engine.epochs.cluster import ClusterEpochs, Image, incarnation_of
from squall_engine.epochs.driver import EpochDriver
from squall_engine.epochs.messages import Name, Restore

SLOT = WorkerSlot("a", 6700)


class Words(ReplayableSpout):
    outputs = ["word"]


class OneWorker:
    """The only worker of a topology."""

    def __init__(
        self, folder: Path, store: MemoryStore, more: dict[str, Any] | None = None
    ) -> None:
        builder = TopologyBuilder()
        builder.spout("words", Words([["the"]]))
        conf = {
            "topology.checkpoint.interval.secs": 60,
            "topology.state.url": str(folder),
            "topology.acker.executors": 0,
            **(more or {}),
        }
        prepared = prepare(builder.build(), conf)
        self.images: list[Image] = []
        self.failures: list[str] = []
        self.faults: list[SquallError] = []
        self.epochs = ClusterEpochs(
            prepared,
            TopologyOptions.read(conf),
            name="words",
            topology_id="words-1-1",
            own=SLOT,
            routes=dict.fromkeys(prepared.task_to_component, SLOT),
            incarnation=incarnation_of(1, 1, Image()),
            image=Image(),
            store=store,
            send=lambda *_: None,
            renew=self.images.append,
            on_failure=lambda component, task, error: self.failures.append(str(error)),
            on_fault=self.faults.append,
        )


async def one_worker(folder: Path) -> OneWorker:
    store = MemoryStore(MemoryEnsemble())
    await store.start()
    return OneWorker(folder, store)


async def test_a_worker_that_ends_begins_no_image(tmp_path: Path) -> None:
    for ends in (True, False):
        worker = await one_worker(tmp_path / str(ends))
        await worker.epochs.restore()
        if ends:
            await worker.epochs.close(1.0)
        worker.epochs.placement_changed()
        assert len(worker.images) == (0 if ends else 1)
        await worker.epochs.close(1.0)


async def test_a_store_that_is_away_is_not_taken_for_a_folder_that_is_not_mounted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster, "_MARK_TRIES", 3)
    monkeypatch.setattr(cluster, "_MARK_SECS", 0.0)
    get, left = CheckpointStore.get, list(range(5))

    def away(store: CheckpointStore, name: str) -> bytes:
        if left:
            left.pop()
            raise StateStoreError("the store does not answer")
        return get(store, name)

    worker = await one_worker(tmp_path)
    monkeypatch.setattr(CheckpointStore, "get", away)
    await worker.epochs.restore()
    assert worker.failures == ["the store does not answer"] * 5
    assert worker.epochs.report is not None
    assert worker.epochs.report.failure == "the store does not answer"
    await worker.epochs.close(1.0)


async def test_whoever_coordinates_reports_the_stores_failure_with_the_checkpoints(
    tmp_path: Path,
) -> None:
    """Any other worker says it in its own heartbeat, briefly."""
    worker = await one_worker(tmp_path)
    error = StateStoreError("the disk is full: " + "x" * 10_000)
    worker.epochs._background.failed(error)
    assert worker.epochs.report is None
    assert worker.epochs.store_failure == error.message[:500]
    await worker.epochs.restore()
    worker.epochs._background.failed(error)
    assert worker.epochs.report is not None
    assert worker.epochs.report.failure == error.message
    assert worker.epochs.store_failure is None
    await worker.epochs.close(1.0)


async def test_a_folder_that_is_not_mounted_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster, "_MARK_TRIES", 3)
    monkeypatch.setattr(cluster, "_MARK_SECS", 0.0)

    def empty(store: CheckpointStore, name: str) -> bytes:
        raise FileNotFoundError(name)

    worker = await one_worker(tmp_path)
    monkeypatch.setattr(CheckpointStore, "get", empty)
    with pytest.raises(SquallError, match="this node does not see what another node"):
        await worker.epochs.restore()
    await worker.epochs.close(1.0)


async def test_a_store_that_hangs_holds_up_the_end_for_as_long_as_it_may(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hangs, goes_on = threading.Event(), threading.Event()
    put = CheckpointStore.put

    def hang(store: CheckpointStore, name: str, data: bytes) -> None:
        hangs.set()
        assert goes_on.wait(60.0)
        put(store, name, data)

    worker = await one_worker(tmp_path)
    monkeypatch.setattr(CheckpointStore, "put", hang)
    restoring = asyncio.ensure_future(worker.epochs.restore())
    try:
        assert await asyncio.to_thread(hangs.wait, 60.0)
        async with asyncio.timeout(5.0):
            await worker.epochs.close(0.1)
        assert not goes_on.is_set()
    finally:
        goes_on.set()
    with pytest.raises(asyncio.CancelledError):
        await restoring


async def test_a_savepoint_that_has_failed_to_stop_a_topology_does_not_cut_its_kill_short(
    tmp_path: Path,
) -> None:
    """The request stays in the status: what came last would be in no checkpoint and no sink."""
    worker = await one_worker(tmp_path)
    await worker.epochs.restore()
    (tmp_path / "file").write_text("")
    base = StormBase("words", TopologyStatus.ACTIVE, 1, {"words": 1}, 1)
    failing = SavepointRequest("one", int(time.time() * 1000), str(tmp_path / "file"), stop=True)
    worker.epochs.follow(base)
    worker.epochs.follow(replace(base, savepoint=failing))
    driver = SimpleNamespace(begun=3, confirmed=3, has_batches=False, has_unconfirmed=False)
    worker.epochs._taking_part.driver = cast(EpochDriver, driver)
    assert not worker.epochs.has_drained(7)
    driver.begun = driver.confirmed = 4
    assert worker.epochs.has_drained(7)
    driver.stop_commits = lambda secs: asyncio.sleep(0)
    await worker.epochs.close(1.0)


async def test_what_was_done_since_an_epoch_began_waits_for_the_next_one(tmp_path: Path) -> None:
    worker = await one_worker(tmp_path)
    await worker.epochs.restore()
    driver = SimpleNamespace(begun=3, confirmed=3, has_batches=False, has_unconfirmed=False)
    driver.stop_commits = lambda secs: asyncio.sleep(0)
    worker.epochs._taking_part.driver = cast(EpochDriver, driver)
    assert not worker.epochs.has_drained(7)
    driver.begun = driver.confirmed = 4
    assert not worker.epochs.has_drained(None)  # busy, and what it does then is work
    assert not worker.epochs.has_drained(9)
    driver.begun, driver.has_unconfirmed = 5, True
    assert not worker.epochs.has_drained(9)
    driver.confirmed = 5
    assert not worker.epochs.has_drained(9)
    driver.has_unconfirmed = False
    assert worker.epochs.has_drained(9)
    await worker.epochs.close(1.0)


async def test_a_rescaled_topology_has_another_name_for_its_placement(tmp_path: Path) -> None:
    worker = await one_worker(tmp_path)
    store = MemoryStore(MemoryEnsemble())
    await store.start()
    rescaled = OneWorker(tmp_path, store, {"topology.component.tasks": {"words": 1}})
    assert worker.epochs.placement != rescaled.epochs.placement
    await worker.epochs.close(1.0)
    await rescaled.epochs.close(1.0)


async def test_a_worker_that_cannot_read_the_last_checkpoint_ends_with_its_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its error is what `storm get-errors` shows."""
    worker = await one_worker(tmp_path)
    epochs = worker.epochs
    monkeypatch.setattr(epochs, "_chief", None)  # another worker coordinates
    monkeypatch.setattr(epochs, "_check_mark", lambda: asyncio.sleep(0))
    name = Name(2, 7, "manifest")
    manifest = tmp_path / epochs._parts.manifest_path(name)
    manifest.parent.mkdir(parents=True)
    manifest.write_bytes(b"damaged by a disk, or cut short")
    restore = Restore(3, 7, {}, {}, name, "words-1-1")
    epochs._restore.set_result(restore)
    with pytest.raises(StateDamagedError) as caught:
        await epochs.restore()
    assert re.fullmatch(
        rf"'words' cannot start from checkpoint 7: the manifest words/manifests/\S+ in "
        rf"{re.escape(str(tmp_path))} is damaged: .*",
        caught.value.message,
    )
    assert "start from a savepoint" in str(caught.value.hint)
    await epochs.close(1.0)
