"""Ids of the topologies that are measured."""

from __future__ import annotations

import itertools
import os

_NUMBERS = itertools.count(1)


def new_topology_id() -> str:
    """An id that no other run on this machine has: by its name a worker would find the workers of
    another benchmark, be refused their rings, and be measured over TCP."""
    return f"bench-{os.getpid()}-{next(_NUMBERS)}"
