"""The last unexpected exit of a worker of each topology, and how many there were within a day, as
supervisors publish it.

A supervisor lists those of its node in its scheduler meta (`META_KEY`), as JSON:

    {"words-1-1700000000": [1700000100, "node-1", 6700, "killed by SIGSEGV", "about to die of 7"]}

The numbers are JSON as well, `{"words-1-1700000000": 3}` (`COUNTS_KEY`). Each is a key of its own
beside that of `slot_reports`: an older Nimbus ignores it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from squall_common.cluster.values import SupervisorInfo

META_KEY = "squall.exits"
COUNTS_KEY = "squall.exit_counts"
COUNT_MAX = 10_000  # of one topology on one node
TEXT_CHARS_MAX = 200  # of a reason, and of a last line


@dataclass(frozen=True, slots=True)
class WorkerExit:
    """An exit that was not asked for."""

    time_secs: int  # since 1970, by the supervisor's clock
    host: str
    port: int
    reason: str  # "killed by SIGSEGV", "exited with status 1"
    last_line: str  # of what it wrote to stderr; may be empty


def serialize(exits: Mapping[str, WorkerExit]) -> str:
    """Exits by topology id, as text for a supervisor's scheduler meta."""
    listed = {
        topology_id: [
            one.time_secs,
            one.host,
            one.port,
            one.reason[:TEXT_CHARS_MAX],
            one.last_line[:TEXT_CHARS_MAX],
        ]
        for topology_id, one in exits.items()
    }
    return json.dumps(listed, separators=(",", ":"))


def parse(text: str | None) -> dict[str, WorkerExit]:
    """The exits by topology id; empty when there are none, or none that can be read."""
    if text is None:
        return {}
    try:
        return {
            str(topology_id): WorkerExit(
                int(time_secs),
                str(host),
                int(port),
                str(reason)[:TEXT_CHARS_MAX],
                str(last_line)[:TEXT_CHARS_MAX],
            )
            for topology_id, (time_secs, host, port, reason, last_line) in json.loads(text).items()
        }
    except (ValueError, TypeError, AttributeError, OverflowError):
        return {}


def latest(supervisors: Iterable[SupervisorInfo]) -> dict[str, WorkerExit]:
    """The last exit of each topology, on whichever node it was."""
    found: dict[str, WorkerExit] = {}
    for info in supervisors:
        for topology_id, one in parse(info.scheduler_meta.get(META_KEY)).items():
            known = found.get(topology_id)
            if known is None or one.time_secs > known.time_secs:
                found[topology_id] = one
    return found


def serialize_counts(counts: Mapping[str, int]) -> str:
    """How many exits there were, by topology id, as text for a supervisor's scheduler meta."""
    return json.dumps(dict(counts), separators=(",", ":"))


def total_counts(supervisors: Iterable[SupervisorInfo]) -> dict[str, int]:
    """How many exits each topology had, on all nodes together. What cannot be read counts as
    none."""
    found: dict[str, int] = {}
    for info in supervisors:
        try:
            listed = json.loads(info.scheduler_meta.get(COUNTS_KEY, "{}"))
            counts = {str(id_): max(0, min(int(n), COUNT_MAX)) for id_, n in listed.items()}
        except (ValueError, TypeError, AttributeError, OverflowError):
            continue
        for topology_id, count in counts.items():
            found[topology_id] = found.get(topology_id, 0) + count
    return found
