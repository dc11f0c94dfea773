"""A transport without sequence numbers: frames are neither counted, kept nor acknowledged, and one
that a broken connection loses stays lost. To see what that costs in the real one; for the
benchmark alone. The same sockets, the same limits, one frame a peer a turn.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import msgspec
import zmq

from squall_common.topology.model import WorkerSlot
from squall_engine.transport import Arrival, Grant, Listener

_FRAMES_MAX = 1000
_pack = msgspec.msgpack.Encoder().encode
_unpack = msgspec.msgpack.Decoder(list[bytes]).decode


class BareTransport:
    """Takes the place of `ZmqTransport` where the benchmark's worker makes one."""

    def __init__(self, topology_id: str, slot: WorkerSlot, *_: Any, **__: Any) -> None:
        self._slot = slot
        self._loop = asyncio.get_running_loop()
        self._context = zmq.Context(io_threads=1)
        self._pull: zmq.Socket[bytes] = self._context.socket(zmq.PULL)
        self._pushes: dict[WorkerSlot, zmq.Socket[bytes]] = {}
        self._waiting: dict[WorkerSlot, deque[bytes]] = {}
        self._inbox: deque[bytes] = deque()
        self._wakeup: Callable[[], None] | None = None

    def bind(self, host: str, port: int) -> int:
        self._pull.setsockopt(zmq.LINGER, 0)
        self._pull.setsockopt(zmq.RCVHWM, _FRAMES_MAX)
        chosen = self._pull.bind_to_random_port(f"tcp://{host}")
        self._loop.add_reader(self._pull.fileno(), self._on_readable)
        return int(chosen)

    def set_peers(self, peers: Mapping[WorkerSlot, tuple[str, int]]) -> None:
        for slot, (host, port) in peers.items():
            push: zmq.Socket[bytes] = self._context.socket(zmq.PUSH)
            push.setsockopt(zmq.LINGER, 1000)
            push.setsockopt(zmq.IMMEDIATE, 1)
            push.setsockopt(zmq.SNDHWM, 32)
            push.connect(f"tcp://{host}:{port}")
            self._pushes[slot] = push
            self._waiting[slot] = deque()
            self._loop.add_reader(push.fileno(), self._pump, slot)

    def greeted(self) -> frozenset[WorkerSlot]:
        return frozenset(
            slot
            for slot, push in self._pushes.items()
            if int(push.getsockopt(zmq.EVENTS)) & zmq.POLLOUT
        )

    def send(self, peer: WorkerSlot, sections: Sequence[bytes], credited: int = 0) -> None:
        data = _pack(sections)
        self._waiting[peer].append(data)
        self._pump(peer)

    def _pump(self, peer: WorkerSlot) -> None:
        waiting, push = self._waiting[peer], self._pushes[peer]
        while waiting:
            try:
                push.send(waiting[0], zmq.NOBLOCK)
            except zmq.Again:
                if int(push.getsockopt(zmq.EVENTS)) & zmq.POLLOUT:
                    continue
                return
            waiting.popleft()

    def drain(self, limit_bytes: int) -> list[Arrival]:
        self._read()
        arrivals: list[Arrival] = []
        size = 0
        while self._inbox and size < limit_bytes:
            data = self._inbox.popleft()
            size += len(data)
            arrivals.append(Arrival(self._slot, None, _unpack(data)))
        if self._inbox and self._wakeup is not None:
            self._loop.call_soon(self._wakeup)
        return arrivals

    def _read(self) -> None:
        while True:
            try:
                self._inbox.append(self._pull.recv(zmq.NOBLOCK))
            except zmq.Again:
                return

    def _on_readable(self) -> None:
        self._read()
        if self._inbox and self._wakeup is not None:
            self._wakeup()

    def grant(self, peer: WorkerSlot, grants: Iterable[Grant], *, soon: bool) -> None:
        """Does nothing: there is no credit here."""

    def set_wakeup(self, wakeup: Callable[[], None], listener: Listener) -> None:
        self._wakeup = wakeup

    async def close(self, drain_secs: float = 0.0) -> bool:
        for push in self._pushes.values():
            self._loop.remove_reader(push.fileno())
            push.close(1000)
        self._loop.remove_reader(self._pull.fileno())
        self._pull.close(0)
        await self._loop.run_in_executor(None, self._context.term)
        return True
