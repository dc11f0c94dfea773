"""The other daemons of the cluster, as this node last knew them."""

from __future__ import annotations

from dataclasses import dataclass

Address = tuple[str, int]  # numeric: a node that is cut off cannot look names up


@dataclass(frozen=True, slots=True)
class Neighbours:
    """Other daemons as last known. `supervisors`: whether at least one of them is a supervisor."""

    daemons: tuple[Address, ...] = ()
    supervisors: bool = False


NOBODY = Neighbours()
