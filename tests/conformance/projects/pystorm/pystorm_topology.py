"""The same components with our own builder: storm jar FOLDER pystorm_topology.py NAME PYTHON
SERIALIZER CONF_JSON"""

from __future__ import annotations

import json
import sys

from squall import ShellBolt, ShellSpout, TopologyBuilder, submit_topology


def main() -> None:
    name, python, serializer, conf = sys.argv[1:5]

    def how(component: str) -> dict:
        environment = {"COMPONENT": component, "SERIALIZER": serializer}
        return {"environment": environment, "serializer": serializer}

    script = "numbers_components.py"
    builder = TopologyBuilder()
    builder.spout("numbers", ShellSpout(python, script, outputs=["n"], **how("Numbers")))
    split = ShellBolt(python, script, outputs=["n", "word"], **how("Split"))
    builder.bolt("split", split, 2).fields("numbers", "n")
    batches = ShellBolt(python, script, outputs=["word", "size"], **how("Batches"))
    ticks = {"topology.tick.tuple.freq.secs": 1}
    builder.bolt("batches", batches, 2, conf=ticks).fields("split", "word")
    sizes = ShellBolt(python, script, outputs=[], **how("Sizes"))
    builder.bolt("sizes", sizes).shuffle("batches")
    submit_topology(name, json.loads(conf), builder.build())


if __name__ == "__main__":
    main()
