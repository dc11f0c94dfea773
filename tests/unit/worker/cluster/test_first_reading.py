"""What a worker begins with when ZooKeeper answers, answers late, or not at all."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest

from squall_common.cluster.state import ClusterState
from squall_common.cluster.stores.memory import MemoryEnsemble, MemoryStore
from squall_common.cluster.values import Assignment, StormBase, TopologyStatus
from squall_common.topology.model import Executor, WorkerSlot
from squall_common.worker_files.last_known import LastKnown
from squall_worker.cluster import first_reading
from squall_worker.cluster.first_reading import FirstReader, FirstReading
from squall_worker.cluster.placement import place
from squall_worker.cluster.view import ClusterView

ID = "words-1-17"
HERE, THERE = WorkerSlot("here", 6700), WorkerSlot("there", 6700)
BASE = StormBase("words", TopologyStatus.ACTIVE, num_workers=2)
OLD = Assignment("/code", {"here": "h"}, {Executor(1, 1): HERE})
NEW = Assignment(
    "/code", {"here": "h", "there": "t"}, {Executor(1, 1): HERE, Executor(2, 2): THERE}
)
MOVED = Assignment("/code", {"there": "t"}, {Executor(1, 1): THERE})


class Worker:
    """A first reader and its ZooKeeper."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(first_reading, "_WITHOUT_ZOOKEEPER_SECS", 0.05)
        self.ensemble = MemoryEnsemble()
        self.state = ClusterState(MemoryStore(self.ensemble))
        self.file = folder / "last-known.json"
        self.reads_file = True
        changed = asyncio.Event()
        view = ClusterView(self.state, ID, HERE, changed.set)
        self.reader = FirstReader(view, HERE, changed=changed, now=time.monotonic)
        self.connected = asyncio.Event()

    async def read(self) -> FirstReading:
        async def connect() -> None:
            await self.connected.wait()
            await self.state.start()

        file = self.file if self.reads_file else None
        return await asyncio.wait_for(self.reader.read(connect(), file), 10)

    def supervisor_knows(self, base: StormBase | None = BASE) -> None:
        self.file.write_bytes(LastKnown(OLD, base).serialize())


@pytest.fixture
def worker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Worker:
    return Worker(tmp_path, monkeypatch)


async def assign(worker: Worker, assignment: Assignment) -> None:
    other = ClusterState(MemoryStore(worker.ensemble))
    await other.start()
    await other.put_assignment(ID, assignment)
    await other.close()


def same_place(reading: FirstReading, assignment: Assignment) -> bool:
    """Whether it is ZooKeeper's reading of this assignment."""
    assert reading.placement.zxid is not None
    placed = place(assignment, HERE, reading.placement.zxid)
    return reading == FirstReading(placed)


async def test_zookeeper_takes_precedence_over_the_supervisor(worker: Worker) -> None:
    await assign(worker, NEW)
    worker.supervisor_knows()
    worker.connected.set()
    assert same_place(await worker.read(), NEW)


async def test_without_zookeeper_the_supervisors_copy_is_used(worker: Worker) -> None:
    worker.supervisor_knows()
    assert await worker.read() == FirstReading(place(OLD, HERE), BASE)


async def test_a_worker_whose_work_has_moved_does_not_start(
    worker: Worker,
) -> None:
    await assign(worker, MOVED)
    worker.supervisor_knows()
    worker.connected.set()
    reading = asyncio.create_task(worker.read())
    await asyncio.sleep(0.2)  # well over the time that ZooKeeper has
    assert not reading.done()
    await assign(worker, NEW)
    assert same_place(await reading, NEW)


async def test_a_topology_with_checkpoints_waits_for_zookeeper(worker: Worker) -> None:
    worker.supervisor_knows()
    worker.reads_file = False
    reading = asyncio.create_task(worker.read())
    await asyncio.sleep(0.2)  # well over the time that ZooKeeper has
    assert not reading.done()
    await assign(worker, NEW)
    worker.connected.set()
    assert same_place(await reading, NEW)


@pytest.mark.parametrize("known", ["nothing", "no status", "spoiled"])
async def test_without_enough_from_the_supervisor_zookeeper_is_awaited(
    worker: Worker, known: str
) -> None:
    if known == "no status":
        worker.supervisor_knows(base=None)
    elif known == "spoiled":
        worker.file.write_bytes(b"{")
    await assign(worker, NEW)
    reading = asyncio.create_task(worker.read())
    await asyncio.sleep(0.2)
    assert not reading.done()
    worker.connected.set()
    assert same_place(await reading, NEW)
