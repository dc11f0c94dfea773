"""Checks the savepoint that a topology is to start from, before anything is submitted."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from squall_common.component.checkpoints import Place, option_refusals
from squall_common.component.refusals import refuse
from squall_common.topology.model import ComponentKind, Topology

if TYPE_CHECKING:
    from squall_common.config.options.typed import TopologyOptions

_KEY = "topology.checkpoint.savepoint"


def with_savepoint(
    name: str, conf: Mapping[str, Any], topology: Topology, options: TopologyOptions
) -> dict[str, Any]:
    """The configuration with the place of the savepoint in place of its name. All of it is read:
    raises SquallError for one that is not there, is damaged, is another topology's, or does not
    match the components."""
    from squall_common.state.savepoint import (
        Wanted,
        added,
        check_segments,
        folder_of,
        open_savepoint,
        place_in,
        restore_error,
        restore_problems,
    )
    from squall_common.topology.system import task_count

    given, url = options.topology_checkpoint_savepoint, options.topology_state_url
    if given is None:
        return dict(conf)
    refuse(option_refusals(options, Place.CLUSTER))
    assert url is not None
    if "/" not in given:
        place = place_in(folder_of(url, name), given)
    else:  # workers run in other folders
        place = given if "://" in given else os.path.abspath(given)
    savepoint = open_savepoint(place, name)
    wanted = {
        component.id: Wanted(component.kind is ComponentKind.SPOUT, task_count(component, options))
        for component in topology.components.values()
    }
    problems = restore_problems(
        savepoint.manifest,
        wanted,
        allow_non_restored=options.topology_checkpoint_allow_non_restored_state,
    )
    if problems:
        raise restore_error(problems, f"the savepoint in {place}")
    check_segments(place, savepoint)
    new = added(savepoint.manifest, wanted)
    if new:
        listed = ", ".join(map(repr, new))
        print(f"new in {name!r}, and empty: {listed}", file=sys.stderr)
    return {**conf, _KEY: place}
