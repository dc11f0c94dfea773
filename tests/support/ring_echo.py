"""`python -m tests.support.ring_echo TOPOLOGY LAUNCH PORT`: worker b of a topology, which sends
back whatever worker a, at that port, sends it. Prints its own port, and ends when it is killed."""

from __future__ import annotations

import asyncio
import sys

import uvloop

from squall_common.topology.model import WorkerSlot
from squall_common.worker_files.launch_spec import Incarnation
from squall_worker.transport.zmq import ZmqTransport

A = WorkerSlot("a", 1)
B = WorkerSlot("b", 2)


async def main() -> None:
    topology, launch, port = sys.argv[1:]
    transport = ZmqTransport(
        topology, B, Incarnation(1, int(launch)), backlog_bytes_max=1 << 28, ring_bytes=512 * 1024
    )

    def echo() -> None:
        for arrival in transport.drain(1 << 20):
            transport.send(A, arrival.sections)

    transport.set_wakeup(echo)
    print(transport.bind("127.0.0.1", 0), flush=True)
    transport.set_peers({A: ("127.0.0.1", int(port))})
    await asyncio.Event().wait()


if __name__ == "__main__":
    uvloop.run(main())
