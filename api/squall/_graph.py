"""The child process of `storm graph`: runs an entry point, and draws each topology that it submits
instead of running it.

    python -P -m squall._graph ENTRY ARGS...

Its environment is that of `squall._entry`, with SQUALL_MODE=graph and

    SQUALL_GRAPH              mermaid | svg | json
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from typing import Any

from squall import _entry
from squall._submit import Session
from squall_common.config.options.typed import TopologyOptions
from squall_common.topology.model import Topology
from squall_common.topology.plan import plan_as_json
from squall_common.topology.system import task_count

FORMAT_VARIABLE = "SQUALL_GRAPH"


def drawn(name: str, conf: Mapping[str, Any], topology: Topology, form: str) -> str:
    """A topology in one of the three formats."""
    if form == "svg":
        return topology.to_svg()
    if form == "mermaid":
        return topology.to_mermaid()
    return json.dumps(described(name, conf, topology), indent=2) + "\n"


def described(name: str, conf: Mapping[str, Any], topology: Topology) -> dict[str, Any]:
    """What `storm graph --json` prints; docs/json.md has its schema."""
    options = TopologyOptions.read(conf)
    return {
        "topology": name,
        "components": [
            {
                "id": component.id,
                "kind": component.kind.value,
                "runs": str(component.object),
                "executors": component.parallelism or 1,
                "tasks": task_count(component, options),
                "streams": {
                    stream: list(info.fields) for stream, info in component.streams.items()
                },
                "plan": plan_as_json(component.plan),
            }
            for component in topology.components.values()
        ],
        "edges": [
            {
                "from": source.component,
                "stream": source.stream,
                "to": component.id,
                "grouping": grouping.kind.value,
                "fields": list(grouping.fields),
            }
            for component in topology.components.values()
            for source, grouping in component.inputs.items()
        ],
    }


def _draw(session: Session, name: str, conf: Mapping[str, Any], topology: Topology) -> None:
    sys.stdout.write(drawn(name, conf, topology, os.environ.get(FORMAT_VARIABLE, "mermaid")))
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(_entry.main(sys.argv[1:], runner=_draw, mode="graph"))
