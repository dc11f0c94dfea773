"""How a supervisor's slots are doing, in the words that `storm list` shows.

A supervisor publishes one report a slot in its scheduler meta (`META_KEY`), as JSON:

    {"6700": ["words-1-1700000000", 2868236437, "crash loop"]}

A worker's heartbeats cannot say this: those of a worker that keeps dying stay in ZooKeeper, and one
that never started has written none. The number is a digest of the executors that the report is
about, so that a report from before a change of the assignment is not taken for one after it.
"""

from __future__ import annotations

import enum
import json
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from squall_common.daemon import fast_json
from squall_common.topology.model import Executor

META_KEY = "squall.slots"


class Condition(enum.Enum):
    """How a slot is doing. The values are what users read."""

    RUNNING = "running"
    STARTING = "starting"
    WAITING_FOR_BLOBS = "waiting for blobs"
    PACKAGE_REFUSED = "package refused"
    LAUNCH_FAILED = "launch failed"
    CRASH_LOOP = "crash loop"


_CONDITIONS = {condition.value: condition for condition in Condition}


@dataclass(frozen=True, slots=True)
class SlotReport:
    """The report of what one slot does for one topology."""

    topology_id: str
    executors: int  # their digest
    condition: Condition


def digest(executors: Iterable[Executor]) -> int:
    """A number that is the same for the same executors in the same order, in every process."""
    text = " ".join(f"{one.task_start}-{one.task_end}" for one in executors)
    return zlib.crc32(text.encode())


def serialize(reports: Mapping[int, SlotReport]) -> str:
    """Reports by port, as text for a supervisor's scheduler meta."""
    listed = {
        str(port): [one.topology_id, one.executors, one.condition.value]
        for port, one in sorted(reports.items())
    }
    return json.dumps(listed, separators=(",", ":"))


def parse(text: str | None) -> dict[int, SlotReport] | None:
    """The reports by port; None when the supervisor publishes none, or none that can be read. A
    condition that this version does not know is left out."""
    if text is None:
        return None
    try:
        return {
            int(port): SlotReport(str(topology_id), int(executors), _CONDITIONS[condition])
            for port, (topology_id, executors, condition) in fast_json.loads(text).items()
            if condition in _CONDITIONS
        }
    except (ValueError, TypeError, AttributeError):
        return None
