"""The local state that a supervisor keeps across restarts: one small file, replaced atomically.

It holds the supervisor's id, how far its launch numbers have gone, what each port is to run, and
which other daemons it knew. (The workers that it started are recorded in their folders, see
`worker_record`.) A crash leaves either the old or the new file. If the disk spoils it nevertheless,
the checksum shows it, the file is put aside for inspection, and the supervisor starts from its
workers' folders: see `recover`.
"""

from __future__ import annotations

import json
import os
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from squall_common.daemon.files import write_atomic
from squall_common.worker_files.launch_spec import LaunchSpec
from squall_supervisor.records.assignments import PortAssignment
from squall_supervisor.records.neighbours import NOBODY, Neighbours
from squall_supervisor.records.worker_record import assignment_from_json, assignment_to_json

_FORMAT = 1

# Launch numbers are reserved in the file by the hundred: a launch then does not wait for the disk,
# and a crash skips some numbers but never repeats one.
LAUNCHES_RESERVED = 100


class LocalStateError(Exception):
    """The bytes are not a local state; the message says why."""


@dataclass(frozen=True, slots=True)
class LocalState:
    """`launches_reserved` is above every launch number that was ever given out."""

    supervisor_id: str
    launches_reserved: int = 0
    ports: Mapping[int, PortAssignment] = field(default_factory=dict)
    neighbours: Neighbours = NOBODY


def serialize(state: LocalState) -> bytes:
    """A head line with format, length and checksum of the body, then the body, both JSON."""
    body = json.dumps(
        {
            "supervisor_id": state.supervisor_id,
            "launches_reserved": state.launches_reserved,
            "ports": {
                str(port): assignment_to_json(state.ports[port]) for port in sorted(state.ports)
            },
            "neighbours": {
                "daemons": state.neighbours.daemons,
                "supervisors": state.neighbours.supervisors,
            },
        },
        indent=1,
    ).encode()
    head = {"format": _FORMAT, "bytes": len(body), "crc32": zlib.crc32(body)}
    return json.dumps(head).encode() + b"\n" + body


def parse(data: bytes) -> LocalState:
    """The inverse of `serialize`; raises LocalStateError for anything else."""
    first, _, body = data.partition(b"\n")
    try:
        head = json.loads(first)
        expected = (head["format"], head["bytes"], head["crc32"])
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise LocalStateError("its first line is not the head of a local state") from error
    if expected[0] != _FORMAT:
        raise LocalStateError(f"it has format {expected[0]!r}; this supervisor reads {_FORMAT}")
    if expected[1:] != (len(body), zlib.crc32(body)):
        raise LocalStateError(
            f"it has {len(body)} bytes after its first line, which announces {expected[1]} "
            "with another checksum"
        )
    try:
        value = json.loads(body)
        return LocalState(
            supervisor_id=str(value["supervisor_id"]),
            launches_reserved=int(value["launches_reserved"]),
            ports={int(p): assignment_from_json(a) for p, a in value["ports"].items()},
            neighbours=_neighbours(value.get("neighbours") or {}),
        )
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise LocalStateError(f"its content is not a local state: {error!r}") from error


def _neighbours(value: Mapping[str, Any]) -> Neighbours:
    """Files written before neighbours were kept have none."""
    return Neighbours(
        tuple((str(host), int(port)) for host, port in value.get("daemons", ())),
        value.get("supervisors") is True,
    )


def recover(launches: Iterable[LaunchSpec], *, fresh_id: str, epoch_secs: float) -> LocalState:
    """The state to start with if the file is lost: the id that this node's workers were launched
    under, and launch numbers above any that can have been given out, since no supervisor launches
    more than one worker a second for years."""
    known = list(launches)
    supervisor_id = known[0].supervisor_id if known else fresh_id
    given = max((spec.incarnation.launch for spec in known), default=0)
    return LocalState(supervisor_id, max(given, int(epoch_secs)), {})


class LocalStateFile:
    """The file. Only one supervisor may use it: see `daemon`'s lock."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def load(self) -> LocalState | None:
        """The state, or None if there is no file yet. Raises LocalStateError, or OSError."""
        try:
            data = self.path.read_bytes()
        except FileNotFoundError:
            return None
        return parse(data)

    def put_aside(self) -> Path:
        """Rename a file that cannot be read, to keep it for inspection; returns its new path."""
        number = 1
        while (aside := self.path.with_name(f"{self.path.name}.unreadable-{number}")).exists():
            number += 1
        os.rename(self.path, aside)
        return aside

    def save(self, state: LocalState) -> None:
        """Replace the file. Raises OSError (a full disk), and then leaves the old one untouched."""
        write_atomic(self.path, serialize(state), mode=0o600)
