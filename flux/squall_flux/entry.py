"""The child process of `storm flux`: reads a definition, and submits its topology, runs it here, or
shows it.

    python -P -m squall_flux.entry FILE

Its environment is that of `squall._entry`, with SQUALL_MODE=graph for a dry run, and

    SQUALL_FLUX               the options, JSON: resource, filter, env_filter, inactive, detail,
                              json
"""

from __future__ import annotations

import functools
import json
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from squall import _entry, submit_topology
from squall._graph import described
from squall._import_check import MODE_VARIABLE
from squall._submit import Session
from squall_common.topology.model import Topology
from squall_flux.building import Built, build
from squall_flux.definition import load_definition
from squall_flux.reading import read_text
from squall_flux.substitution import Filter, parse_properties

OPTIONS_VARIABLE = "SQUALL_FLUX"
DRY_RUN = "graph"  # the mode in which nothing is run, or sent to a cluster


def run(session: Session, arguments: Sequence[str], options: Mapping[str, Any]) -> None:
    """Read the definition that `arguments` name, and submit its topology."""
    properties = options.get("filter")
    values = Filter(
        parse_properties(read_text(Path(properties), "the file of --filter"))
        if properties is not None
        else None,
        os.environ if options.get("env_filter") else None,
    )
    definition = load_definition(
        arguments[0], values, session.code, resource=bool(options.get("resource"))
    )
    built = build(definition)
    if session.runner is not None:
        session.runner = functools.partial(_show, built=built, options=options)
    elif options.get("detail"):
        print("\n".join(details(built)), file=sys.stderr)
    session.made = built.made
    submit_topology(
        built.name,
        built.conf,
        built.topology,
        initial_status="INACTIVE" if options.get("inactive") else "ACTIVE",
    )


def _show(
    name: str,
    conf: Mapping[str, Any],
    topology: Topology,
    *,
    built: Built,
    options: Mapping[str, Any],
) -> None:
    if options.get("json"):
        found = described(name, conf, topology)
        for component in found["components"]:
            component["runs"] = built.classes.get(component["id"], component["runs"])
        print(json.dumps(found, indent=2))
    elif options.get("detail"):
        print("\n".join(details(built)))


def details(built: Built) -> Iterator[str]:
    """The components and streams of a topology, a line each."""
    yield f"topology {built.name}"
    for component in built.topology.components.values():
        runs = built.classes.get(component.id, str(component.object))
        yield f"  {component.kind.value} {component.id} ×{component.parallelism or 1}: {runs}"
    for component in built.topology.components.values():
        for source, grouping in component.inputs.items():
            fields = f" ({', '.join(grouping.fields)})" if grouping.fields else ""
            yield f"  {source} --{grouping.kind.value}{fields}--> {component.id}"


def main(argv: Sequence[str]) -> int:
    """Run in this process, and return the exit status."""
    options = json.loads(os.environ.get(OPTIONS_VARIABLE, "{}"))
    dry = os.environ.get(MODE_VARIABLE) == DRY_RUN
    return _entry.main(
        argv,
        runner=(lambda *_: None) if dry else None,
        mode=DRY_RUN,
        program=functools.partial(run, options=options),
    )


if __name__ == "__main__":
    _entry.exit_process(main(sys.argv[1:]), os.environ.get(MODE_VARIABLE))
