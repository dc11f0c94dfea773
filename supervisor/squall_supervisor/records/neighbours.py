"""The other daemons of the cluster, as this node last knew them."""

from __future__ import annotations

from dataclasses import dataclass

Address = tuple[str, int]  # numeric: names cannot be looked up by a node that is cut off


@dataclass(frozen=True, slots=True)
class Neighbours:
    """Other daemons as last known. `supervisors`: whether any of them is a supervisor's."""

    daemons: tuple[Address, ...] = ()
    supervisors: bool = False


NOBODY = Neighbours()
