"""A tenant's topology whose spout tries in its worker what `attacks.py` knows, once.

    storm jar tests/compose/intruder intruder_topology.py PLAN_JSON

It says what came of it in `outcomes.json` in /tmp.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import threading
from pathlib import Path
from typing import Any

import attacks

from squall import Spout, TopologyBuilder, submit_topology


class Intruder(Spout):
    """Attacks, once it is open."""

    outputs = ["nothing"]

    def __init__(self, plan: dict[str, Any]) -> None:
        self.plan = plan

    def open(self, conf: Any, context: Any) -> None:
        self.id = context.topology_id
        # What is the victim's has the same name for the attacker's own topology.
        asked = self.plan["zookeeper"]
        own = {one.replace(self.plan["victim"], self.id) for one in asked["paths"]}
        asked["paths"] = sorted(own | set(asked["paths"]))
        # Not here, where a loop runs, and waits.
        threading.Thread(target=self.attack, daemon=True).start()

    def attack(self) -> None:
        outcomes = attacks.inside()
        outcomes |= asyncio.run(attacks.Intruder(self.plan).run())
        outcomes["id"] = self.id
        outcomes["uid"] = str(os.getuid())
        partial = Path("/tmp/outcomes.part")
        partial.write_text(json.dumps(outcomes))
        partial.rename("/tmp/outcomes.json")

    def next_tuple(self) -> None:
        pass


if __name__ == "__main__":
    builder = TopologyBuilder()
    builder.spout("intruder", Intruder(json.loads(sys.argv[1])))
    # To name another user chooses nothing.
    conf = {"topology.workers": 1, "topology.submitter.user": "storm"}
    submit_topology("intruder", conf, builder.build())
