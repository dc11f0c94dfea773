"""The epochs of a topology on a cluster, in the worker that coordinates them."""

from __future__ import annotations

from pathlib import Path

from squall import TopologyBuilder
from squall.testing import ReplayableSpout
from squall_common.cluster.stores.memory import MemoryEnsemble, MemoryStore
from squall_common.config.options.typed import TopologyOptions
from squall_common.errors import SquallError
from squall_common.topology.model import WorkerSlot
from squall_common.topology.prepared import prepare
from squall_engine.epochs.cluster import ClusterEpochs, Image, incarnation_of

SLOT = WorkerSlot("a", 6700)


class Words(ReplayableSpout):
    outputs = ["word"]


class OneWorker:
    """The only worker of a topology."""

    def __init__(self, folder: Path, store: MemoryStore) -> None:
        builder = TopologyBuilder()
        builder.spout("words", Words([["the"]]))
        conf = {
            "topology.checkpoint.interval.secs": 60,
            "topology.state.url": str(folder),
            "topology.acker.executors": 0,
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
            await worker.epochs.close()
        worker.epochs.placement_changed()
        assert len(worker.images) == (0 if ends else 1)
        await worker.epochs.close()
