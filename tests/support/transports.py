"""Transports of tests, and waiting for what they do."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from squall_common.security.curve import CurveKey
from squall_common.topology.model import WorkerSlot
from squall_common.worker_files.launch_spec import Incarnation
from squall_worker.transport.link_table import Event
from squall_worker.transport.zmq import ZmqTransport


class TransportEnd:
    """A worker's transport, and what arrives at it."""

    def __init__(
        self,
        topology: str,
        slot: WorkerSlot,
        *,
        launch: int = 1,
        zxid: int = 1,
        backlog: int = 1 << 28,
        key: CurveKey | None = None,
        ring_bytes: int = 0,
        busy_poll_secs: float = 0.0,
    ) -> None:
        self.events: list[Event] = []
        self.strangers: list[WorkerSlot] = []
        self.dropped: list[bytes] = []
        self.received: list[bytes] = []
        self.reading = True
        self.transport = ZmqTransport(
            topology, slot, Incarnation(zxid, launch), backlog_bytes_max=backlog,
            on_event=self.events.append, on_stranger=self.strangers.append,
            on_dropped=self.dropped.extend, key=key, ring_bytes=ring_bytes,
            busy_poll_secs=busy_poll_secs,
        )  # fmt: skip
        self.transport.set_wakeup(self.drain)
        self.port = 0

    def start(self, port: int = 0) -> None:
        self.port = self.transport.bind("127.0.0.1", port)

    def drain(self) -> None:
        if self.reading:
            for arrival in self.transport.drain(1024 * 1024):
                self.received += arrival.sections


async def wait_until(condition: Callable[[], object], secs: float = 60.0) -> None:
    deadline = time.monotonic() + secs
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError("the condition did not come true")
        await asyncio.sleep(0.005)
