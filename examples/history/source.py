"""A source of records: JSON lines in files, each kept until its ack."""

import glob
import json
import os
import socket
from collections import deque
from pathlib import Path

from squall import Bolt, Spout


class Records(Spout):
    """Emits the named fields of each line of the files that match a pattern. The pattern is
    absolute, because each worker has its own working directory.

    Under `storm spark run`, --input replaces this spout, and none of its methods is called.
    """

    def __init__(self, pattern, fields):
        self.pattern = pattern
        self.outputs = fields

    def open(self, conf, context):
        tasks = len(context.component_tasks(context.this_component_id))
        paths = sorted(glob.glob(self.pattern or ""))
        if not paths:
            raise FileNotFoundError(f"no file matches {self.pattern} on {socket.gethostname()}")
        records = [
            json.loads(line)
            for path in paths
            for line in Path(path).read_text(encoding="utf-8").splitlines()
        ]
        mine = range(context.this_task_index, len(records), tasks)
        self.unsent = deque((n, [records[n][f] for f in self.outputs]) for n in mine)
        self.pending = {}

    def next_tuple(self):
        if self.unsent:
            number, values = self.unsent.popleft()
            self.pending[number] = values
            self.emit(values, message_id=number)

    def ack(self, number):
        self.pending.pop(number, None)

    def fail(self, number):
        self.unsent.append((number, self.pending.pop(number)))


class Write(Bolt):
    """Appends what it gets to FOLDER/COMPONENT-TASK.jsonl, a line a tuple; the folder is an
    absolute path. Where Spark runs the topology, --output does that."""

    def __init__(self, folder):
        self.folder = folder

    def prepare(self, conf, context):
        os.makedirs(self.folder, exist_ok=True)
        self.files = {}

    def execute(self, tup):
        name = f"{self.folder}/{tup.source_component}-{self.context.this_task_id}.jsonl"
        if name not in self.files:
            self.files[name] = open(name, "a", encoding="utf-8", buffering=1)  # noqa: SIM115
        self.files[name].write(json.dumps(dict(zip(tup.fields, tup.values, strict=True))) + "\n")

    def cleanup(self):
        for file in self.files.values():
            file.close()


def writes(builder, source, folder):
    """Add the bolt that writes a stream, unless Spark does it (no folder)."""
    if folder:
        builder.bolt("write", Write(folder)).global_(source)
