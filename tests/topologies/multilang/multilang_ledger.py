"""The ledger's word count (tests/topologies/ledger) with a shell bolt in the middle.

storm jar PACKAGE multilang_ledger.py NAME PORT WORKERS PYTHON [CONF_JSON]
"""

from __future__ import annotations

import json
import sys

from ledger_topology import Lines, Record

from squall import ShellBolt, TopologyBuilder, submit_topology


def main() -> None:
    name, port, workers, python = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
    conf = json.loads(sys.argv[5]) if len(sys.argv) > 5 else {}
    builder = TopologyBuilder()
    builder.spout("lines", Lines(port))
    split = ShellBolt(
        python,
        "ledger_split.py",
        outputs=["number", "place", "word"],
        environment={"STUBBORN": "yes"},
    )
    builder.bolt("split", split, parallelism=2).shuffle("lines")
    builder.bolt("record", Record(port), parallelism=2).fields("split", "word")
    submit_topology(
        name,
        {"topology.workers": workers, "topology.max.spout.pending": 200, **conf},
        builder.build(),
    )


if __name__ == "__main__":
    main()
