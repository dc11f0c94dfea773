"""The last facts that a supervisor read about a topology, for workers that start without ZooKeeper.

A supervisor has a file of this for each topology that runs on its node, and lays a copy into the
folder of each worker that it starts. The values in it are Thrift, as in ZooKeeper.
"""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass

from squall_common.cluster import codec
from squall_common.cluster.codec import CorruptStateError
from squall_common.cluster.values import Assignment, StormBase
from squall_common.worker_files.launch_spec import LAST_KNOWN_FILE


@dataclass(frozen=True, slots=True)
class LastKnown:
    """One topology: where its executors run, and its status (None: that could not be read)."""

    assignment: Assignment
    base: StormBase | None

    def serialize(self) -> bytes:
        value = {
            "assignment": _text(codec.encode_assignment(self.assignment)),
            "storm": None if self.base is None else _text(codec.encode_storm_base(self.base)),
        }
        return json.dumps(value).encode()

    @classmethod
    def parse(cls, data: bytes) -> LastKnown:
        """The inverse of `serialize`. Raises ValueError for anything else."""
        try:
            value = json.loads(data)
            storm = value["storm"]
            return cls(
                codec.decode_assignment(LAST_KNOWN_FILE, _bytes(value["assignment"])),
                None if storm is None else codec.decode_storm_base(LAST_KNOWN_FILE, _bytes(storm)),
            )
        except (KeyError, TypeError, RecursionError, CorruptStateError) as error:
            raise ValueError(f"not a topology as last known: {error!r}") from error


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")


def _bytes(text: str) -> bytes:
    return base64.b64decode(text, validate=True)
