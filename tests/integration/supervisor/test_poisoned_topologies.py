"""Topologies that something is wrong with, on one node with a healthy one: it is started, replaced,
updated and removed as if it were alone."""

import asyncio
import json
import os
import signal
from pathlib import Path

from tests.integration.supervisor.standin import TestNode, wait_until

from squall_common.names import code_blob_key, conf_blob_key, jar_blob_key
from squall_supervisor.slots.table import State

HEALTHY = "healthy-1-1700000000"
DEEP = b"[" * 100_000


def poison(node: TestNode, topology_id: str, key: str, data: bytes | None) -> None:
    node.blobs.put(topology_id)
    if data is None:
        del node.blobs.blobs[key]
    else:
        node.blobs.blobs[key] = (1, data)


async def test_poisoned_topologies_do_not_disturb_a_healthy_one(tmp_path: Path) -> None:
    ids = [f"poisoned-{n}-1700000000" for n in range(1, 11)]
    ports = range(6701, 6701 + len(ids))
    node = TestNode(tmp_path, **{"supervisor.slots.ports": [6700, *ports]})
    try:
        node.blobs.put(HEALTHY)
        for topology_id, (key_of, data) in zip(
            ids,
            [
                (jar_blob_key, b"no archive"),
                (code_blob_key, b"no topology"),
                (code_blob_key, None),
                (conf_blob_key, b"{"),
                (conf_blob_key, b"[]"),
                (conf_blob_key, DEEP),
                (conf_blob_key, b'{"topology.environment": {"A": "\\ud800"}}'),
                (conf_blob_key, b'{"topology.worker.timeout.secs": 1' + b"0" * 400 + b"}"),
                (conf_blob_key, b'{"topology.blobstore.map": [1]}'),
                (
                    conf_blob_key,
                    json.dumps({"topology.component.cpu.pcore.percent": 10**400}).encode(),
                ),
            ],
            strict=True,
        ):
            poison(node, topology_id, key_of(topology_id), data)
        supervisor = await node.start()
        for port, topology_id in zip(ports, ids, strict=True):
            await node.assign(topology_id, {port: 1})
        cluster = await node.cluster()
        await cluster.store.create("/assignments/damaged-1-1700000000", b"\x1f\x8bno gzip")
        await node.assign(HEALTHY, {6700: 1})
        pid = await node.wait_running()

        # All have been tried, and those that nothing can be done with wait for another try.
        def tried() -> bool:
            slots = [node.runner(port).slot for port in ports]
            return all(
                slot.localize_failures or slot.relaunches or slot.state is State.RUNNING
                for slot in slots
            )

        await wait_until("all were tried", tried)
        assert supervisor._crashes.error is None

        os.kill(pid, signal.SIGKILL)
        await wait_until("it is replaced", lambda: node.runner().process is not None
                         and node.runner().process.pid != pid)  # fmt: skip
        second = await node.wait_running()

        # What damages the disk later is met by the loops that read it.
        for topology_id in ids[6:8]:
            folder = supervisor._localizer.path_of(topology_id)
            await wait_until("it is there", (folder / "stormconf.ser").exists)
            (folder / "stormconf.ser").write_bytes(b"[]")
        await supervisor._localizer.clean_up()
        del node.blobs.blobs[jar_blob_key(ids[8])]  # asking for its version is an error
        node.blobs.put(HEALTHY, {"new": 1}, version=2)
        await supervisor.slots.update_blobs()
        await wait_until("it is updated", lambda: node.runner().process is not None
                         and node.runner().process.pid != second)  # fmt: skip
        await node.wait_running()
        assert json.loads(
            (supervisor._localizer.path_of(HEALTHY) / "stormconf.ser").read_bytes()
        ) == {"new": 1}

        await node.unassign(HEALTHY)
        await node.wait_empty()
        await wait_until(
            "it is removed", lambda: not supervisor._localizer.path_of(HEALTHY).exists()
        )
        assert supervisor._crashes.error is None
        for topology_id in ids:
            await node.unassign(topology_id)
        await asyncio.gather(*(node.wait_empty(port) for port in ports))
    finally:
        await node.close()
