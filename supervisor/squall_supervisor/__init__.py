"""The supervisor: one per node, it starts, watches and ends the workers assigned to the node.

`slot_table` and `slot` decide what a port does next, `assignments` and `adoption` what it is to do;
they take values and return values; `slot_story` puts it into words. `slot_runner`, `launch`,
`slots` and `supervisor` act.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from squall_supervisor.node.kill import KilledWorker

__all__ = ["kill_workers"]


def kill_workers(conf: Mapping[str, Any]) -> list[KilledWorker]:
    """End all workers of the node whose configuration is `conf`; see `kill`."""
    from squall_supervisor.node import kill

    return kill.kill_workers(conf)
