"""What Storm's documentation shows for its distributed cache: a Python interpreter that came as an
archive, and a script beside it, run by a shell bolt in the worker's folder.

storm jar PACKAGE shipped.py NAME OUTPUT BLOBSTORE_MAP_JSON
"""

from __future__ import annotations

import json
import sys

from squall import ShellBolt, Spout, TopologyBuilder, submit_topology


class Numbers(Spout):
    outputs = ["number"]

    def open(self, conf, context):
        self.number = 0

    def next_tuple(self):
        self.number += 1
        self.emit([self.number], message_id=self.number)


def main() -> None:
    name, output, blobs = sys.argv[1], sys.argv[2], json.loads(sys.argv[3])
    builder = TopologyBuilder()
    builder.spout("numbers", Numbers())
    tell = ShellBolt(
        "./newPython/bin/python",
        "./tell.py",
        outputs=[],
        environment={"OUTPUT": output},
        change_child_cwd=False,
    )
    builder.bolt("tell", tell).shuffle("numbers")
    conf = {"topology.max.spout.pending": 1, "topology.blobstore.map": blobs}
    submit_topology(name, conf, builder.build())


if __name__ == "__main__":
    main()
