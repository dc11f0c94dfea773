"""No assignment blocks a supervisor's loop, however many executors it has."""

import asyncio
import logging
from pathlib import Path

import pytest
from tests.integration.supervisor.standin import TestNode, wait_until
from tests.support.held_loops import held_loops

from squall_common.cluster import codec, paths
from squall_common.cluster.values import Assignment
from squall_common.daemon.loop.watched_loop import WatchedLoop
from squall_common.daemon.run import watch_loop
from squall_common.topology.model import Executor, WorkerSlot

EXECUTORS = 60_000  # near the limit of tasks: what a submit of 300 bytes can ask for
LARGE, SMALL = "large-1-1700000000", "small-2-1700000000"


async def _run(folder: Path, value: bytes) -> None:
    node = TestNode(folder)
    try:
        for topology_id in (LARGE, SMALL):
            node.blobs.put(topology_id)
        supervisor = await node.start()
        cluster = await node.cluster()
        await asyncio.sleep(0)
        watch_loop()
        await cluster.store.create(paths.assignment(LARGE), value)
        await wait_until("the large one", lambda: 6700 in supervisor.slots.wanted)
        await node.wait_running(6700)
        await node.assign(SMALL, {6701: 1})  # all assignments are read again
        await node.wait_running(6701)
        await node.unassign(SMALL)
        await node.wait_empty(6701)
    finally:
        await node.close()


def test_a_large_assignment_does_not_block_the_loop(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """More than 50 ms of CPU time at a stretch, in each of three runs: neighbours on the same core
    may add to one of them."""
    slots = [WorkerSlot("node", 6700), WorkerSlot("elsewhere", 6700)]
    executors = [Executor(n, n) for n in range(1, EXECUTORS + 1)]
    value = codec.encode_assignment(
        Assignment(
            "",
            executor_slot={one: slots[one.task_start % 2] for one in executors},
            executor_start_time_secs=dict.fromkeys(executors, 1700000000),
        )
    )
    found = []
    for number in range(3):
        caplog.clear()
        (folder := tmp_path / str(number)).mkdir()
        with caplog.at_level(logging.WARNING), asyncio.Runner(loop_factory=WatchedLoop) as runner:
            runner.run(_run(folder, value))
        found = held_loops(record.getMessage() for record in caplog.records)
        if not found:
            break
    assert found == []
