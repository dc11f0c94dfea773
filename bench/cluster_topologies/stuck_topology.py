"""A bolt that stops taking tuples, and takes them again.

    storm jar bench/cluster_topologies stuck_topology '{"folder": ..., "size": ..., ...}'

While FOLDER/stuck exists the bolt takes nothing: it waits in coroutines, or, with `blocks`, holds
the loop of its worker. Once there is FOLDER/stop the spouts emit nothing. Every task of either
writes what it has done to FOLDER/COMPONENT-TASK.json. There is no `topology.max.spout.pending`.
"""

import asyncio
import json
import sys
import time
from pathlib import Path

from squall import Bolt, Spout, TopologyBuilder, submit_topology

WRITE_SECS = 0.3


def write(folder, context, counts):
    path = Path(folder) / f"{context.this_component_id}-{context.this_task_id}.json"
    fresh = path.with_suffix(".new")
    fresh.write_text(json.dumps(counts))
    fresh.replace(path)


class Source(Spout):
    outputs = ["payload"]

    def __init__(self, folder, size, acked):
        self.folder = folder
        self.size = size
        self.acked = acked

    def open(self, conf, context):
        self.payload = "x" * self.size
        self.counts = {"sent": 0, "acked": 0, "failed": 0}
        self.stopped = False
        self.look_at = 0.0

    def next_tuple(self):
        now = time.monotonic()
        if now >= self.look_at:
            self.look_at = now + WRITE_SECS
            self.stopped = (Path(self.folder) / "stop").exists()
            write(self.folder, self.context, self.counts)
        if not self.stopped:
            self.counts["sent"] += 1
            number = self.counts["sent"]
            self.emit([self.payload], message_id=number if self.acked else None)

    def ack(self, message_id):
        self.counts["acked"] += 1

    def fail(self, message_id):
        self.counts["failed"] += 1


class Pass(Bolt):
    outputs = ["payload"]

    def __init__(self, fan):
        self.fan = fan

    def execute(self, tup):
        for _ in range(self.fan):
            self.emit([tup[0]])


class Stuck(Bolt):
    def __init__(self, folder):
        self.folder = folder

    def prepare(self, conf, context):
        self.counts = {"taken": 0}
        self.stuck = False
        self.watcher = None

    async def watch(self):
        while True:
            self.stuck = (Path(self.folder) / "stuck").exists()
            write(self.folder, self.context, self.counts)
            await asyncio.sleep(WRITE_SECS)

    async def execute(self, tup):
        if self.watcher is None:
            self.watcher = asyncio.create_task(self.watch())
        while self.stuck:  # noqa: ASYNC110
            await asyncio.sleep(WRITE_SECS)
        self.counts["taken"] += 1

    def cleanup(self):
        if self.watcher is not None:
            self.watcher.cancel()


class Blocks(Bolt):
    def __init__(self, folder):
        self.folder = folder

    def prepare(self, conf, context):
        self.counts = {"taken": 0}
        self.look_at = 0.0

    def execute(self, tup):
        now = time.monotonic()
        if now >= self.look_at:
            self.look_at = now + WRITE_SECS
            while (Path(self.folder) / "stuck").exists():
                time.sleep(0.1)
            write(self.folder, self.context, self.counts)
        if tup.is_tick:
            write(self.folder, self.context, self.counts)
        else:
            self.counts["taken"] += 1


def main():
    options = json.loads(sys.argv[1])
    folder = options["folder"]
    stuck = Blocks(folder) if options["blocks"] else Stuck(folder)
    builder = TopologyBuilder()
    builder.spout("source", Source(folder, options["size"], options["acked"]), parallelism=2)
    builder.bolt("pass", Pass(options["fan"]), parallelism=2).shuffle("source")
    # Ticks let it write its last counts when nothing arrives any more.
    ticks = {"topology.tick.tuple.freq.secs": 1} if options["blocks"] else {}
    builder.bolt("stuck", stuck, parallelism=2, conf=ticks).shuffle("pass")
    # A tuple that waits for a stuck bolt is not to time out here: replays would hide a loss.
    conf = {"topology.workers": 2, "topology.message.timeout.secs": 900}
    submit_topology("stuck", conf, builder.build())


if __name__ == "__main__":
    main()
