"""No call blocks Nimbus' loop, however large its answer is: a topology of 10,000 executors that all
report, and a server whose clients do not share its loop."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import struct
import subprocess
import sys
import tempfile
import tracemalloc
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.support.held_loops import held_loops
from tests.support.nimbus_service import LocalNimbus

from squall_common.cluster.values import BoltStats, ExecutorStats, WorkerHeartbeat
from squall_common.daemon.loop.watched_loop import WatchedLoop
from squall_common.daemon.run import watch_loop
from squall_nimbus.service.limits import LIMITS
from squall_thrift import codec, storm
from squall_thrift.protocol import messages
from squall_thrift.protocol.messages import MessageType
from squall_thrift.serving.server import ThriftServer

ROOT = Path(__file__).parents[4]
EXECUTORS = 10_000
WORKERS = 20
NODE = "a-supervisor"
MEMORY_BYTES_MAX = 32_000_000
# Objects of Python 3.13 have room for their attributes in themselves: a sixth more than in 3.11.
FRAME_BYTES_MAX = MEMORY_BYTES_MAX if sys.version_info < (3, 13) else 34_000_000


def _stats(count: int, windows: Sequence[str] = (":all-time",)) -> ExecutorStats:
    received = {window: {("words", "default"): count} for window in windows}
    bolt = BoltStats(
        acked=received, failed={}, executed=received, process_ms_avg={}, execute_ms_avg={}
    )
    return ExecutorStats(bolt, {window: {"default": count} for window in windows}, {}, 1.0)


def _call(port: int, method: str, *args: Any) -> messages.Message:
    """One call from another thread. Its answer is read, piece by piece, and not kept."""
    body = codec.to_bytes(storm.Nimbus.methods[method].args.cls(*args))
    message = messages.serialize(MessageType.CALL, method, 1, body)
    with socket.create_connection(("127.0.0.1", port), timeout=120) as connection:
        connection.sendall(struct.pack(">i", len(message)) + message)
        [length] = struct.unpack(">i", connection.recv(4, socket.MSG_WAITALL))
        begin = connection.recv(min(length, 4096), socket.MSG_WAITALL)
        piece = bytearray(65_536)
        left = length - len(begin)
        while left and (got := connection.recv_into(piece)):
            left -= got
        return messages.parse(begin)


def _heartbeat(topology_id: str, executors: int) -> storm.SupervisorWorkerHeartbeats:
    infos = [storm.ExecutorInfo(task, task) for task in range(1, executors + 1)]
    beat = storm.SupervisorWorkerHeartbeat(topology_id, infos, 5)
    return storm.SupervisorWorkerHeartbeats(NODE, [beat])


def _costly_topology(inputs_count: int) -> storm.StormTopology:
    """The content with the most objects and time for its bytes: inputs with very short names."""
    inputs = {
        storm.GlobalStreamId(f"{number:04x}", ""): storm.Grouping(shuffle=storm.NullStruct())
        for number in range(inputs_count)
    }
    bolt = storm.Bolt(
        storm.ComponentObject(shell=storm.ShellComponent("p", "q")),
        storm.ComponentCommon(inputs, {}),
    )
    return storm.StormTopology({}, {"b": bolt}, {})


async def _large_topology(
    nimbus: LocalNimbus, workers: int = WORKERS, windows: Sequence[str] = (":all-time",)
) -> str:
    """Submit it, or this many of its workers, have all executors report, and return its id."""
    await nimbus.leads()
    await nimbus.supervisor(NODE, ports=range(6700, 6700 + WORKERS))
    topology_id = await nimbus.submit(
        "big",
        {"topology.workers": workers, "topology.acker.executors": 0},
        executors=EXECUTORS // WORKERS * workers,
    )
    found = await nimbus.state.assignment(topology_id)
    assert found is not None
    for slot, executors in found[0].slots().items():
        beat = {executor: _stats(executor.task_start, windows) for executor in executors}
        nimbus.state.put_worker_beat_nowait(slot, WorkerHeartbeat(topology_id, beat, 1, 60))
    return topology_id


async def _run(folder: Path) -> None:
    async with LocalNimbus(folder) as nimbus:
        topology_id = await _large_topology(nimbus)
        server = ThriftServer(storm.Nimbus, nimbus.service, limits=LIMITS)
        await server.start()

        async def call(method: str, *args: Any) -> MessageType:
            return (await asyncio.to_thread(_call, server.port, method, *args)).type

        honest: tuple[tuple[Any, ...], ...] = (
            ("getTopologyInfo", topology_id),
            ("getComponentPageInfo", topology_id, "count", ":all-time", True),
            ("getSupervisorAssignments", NODE),
            ("getClusterInfo",),
            ("sendSupervisorWorkerHeartbeats", _heartbeat(topology_id, EXECUTORS)),
        )
        refused: tuple[tuple[Any, ...], ...] = (
            ("sendSupervisorWorkerHeartbeats", _heartbeat(topology_id, EXECUTORS + 2)),
            ("sendSupervisorWorkerHeartbeats", _heartbeat(topology_id, 60_000)),
        )
        costly = _costly_topology(43_000)
        await asyncio.sleep(0)
        watch_loop()
        try:
            await nimbus.nimbus.assigner.judge(nimbus.nimbus.leader_elector.leadership())
            for method, *args in honest:
                assert await call(method, *args) is MessageType.REPLY, method
            for method, *args in refused:
                assert await call(method, *args) is MessageType.EXCEPTION, method
            await call("submitTopology", "costly", "no upload", "{}", costly)
        finally:
            await server.stop()


def test_neither_a_call_nor_a_round_blocks_the_loop(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Blocking means more than 50 ms of its own CPU time. Neighbours on the same core may add to
    one of three runs; code that is too slow by itself is so in all of them."""
    found = []
    for number in range(3):
        caplog.clear()
        with caplog.at_level(logging.WARNING), asyncio.Runner(loop_factory=WatchedLoop) as runner:
            runner.run(_run(tmp_path / str(number)))
        found = held_loops(record.getMessage() for record in caplog.records)
        if not found:
            break
    assert found == []


def test_no_answer_takes_more_memory_than_a_call_may() -> None:
    """About 10,000 executors that report all windows, the answer's own bytes included. Estimated
    from two workers and from five, since all twenty would take a test too long: heartbeats are
    decoded one by one, and each worker adds only its part of the answer."""
    two, five = _peak_bytes(2), _peak_bytes(5)
    assert two + (five - two) / 3 * (WORKERS - 2) < MEMORY_BYTES_MAX


def _peak_bytes(workers: int) -> int:
    """Return the peak memory that getTopologyInfo of this many workers adds. In a separate process:
    `tracemalloc.stop` may crash a process whose other threads allocate."""
    code = f"from {__name__} import measure\nmeasure({workers})"
    ran = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=100, cwd=ROOT
    )
    assert ran.returncode == 0, ran.stderr
    return int(ran.stdout)


def measure(workers: int) -> None:
    """Print the peak memory, and end the process at once."""
    with tempfile.TemporaryDirectory() as folder:
        print(asyncio.run(_measure(Path(folder), workers)), flush=True)
    os._exit(0)


async def _measure(folder: Path, workers: int) -> int:
    windows = ("600", "10800", "86400", ":all-time")
    async with LocalNimbus(folder) as nimbus:
        topology_id = await _large_topology(nimbus, workers, windows)
        server = ThriftServer(storm.Nimbus, nimbus.service, limits=LIMITS)
        await server.start()
        tracemalloc.start()
        before, _ = tracemalloc.get_traced_memory()
        answer = await asyncio.to_thread(_call, server.port, "getTopologyInfo", topology_id)
        _, peak = tracemalloc.get_traced_memory()
        await server.stop()
    assert answer.type is MessageType.REPLY
    return peak - before


def test_no_frame_takes_more_memory_than_a_call_may() -> None:
    """The largest frame is a submit of 1 MiB. This one is a quarter of that, with the content that
    takes the most memory."""
    args = storm.Nimbus.methods["submitTopology"].args.cls
    data = codec.to_bytes(args("costly", "", "{}", _costly_topology(10_750)))
    assert 250_000 < len(data) < 262_144
    tracemalloc.start()
    try:
        codec.read_struct(args, data, 0)
        assert 4 * tracemalloc.get_traced_memory()[1] < FRAME_BYTES_MAX
    finally:
        tracemalloc.stop()
