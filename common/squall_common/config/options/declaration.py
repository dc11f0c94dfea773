"""How an option is declared: once, with all that anybody has to know about it.

The declarations make the check of types (`squall_common.config.schema`), the defaults,
`defaults.yaml`, docs/configuration.md and the typed options that a daemon reads
(`squall_common.config.options.typed`).
"""

from __future__ import annotations

import enum
import re
from dataclasses import dataclass
from typing import Any

from squall_common.config.options.kinds import Kind


class Scope(enum.Flag):
    """Where a value may be set so that it counts."""

    DAEMON = enum.auto()  # the site file of a node, or -c of the command that starts a daemon
    CLIENT = enum.auto()  # the configuration of a command: `storm list`, `storm jar`
    TOPOLOGY = enum.auto()  # a topology's own configuration
    COMPONENT = enum.auto()  # the configuration of one spout or bolt


DAEMON, CLIENT, TOPOLOGY, COMPONENT = Scope.DAEMON, Scope.CLIENT, Scope.TOPOLOGY, Scope.COMPONENT


class Reader(enum.Flag):
    """The programs that read an option."""

    NIMBUS = enum.auto()
    SUPERVISOR = enum.auto()
    WORKER = enum.auto()
    DRPC = enum.auto()
    UI = enum.auto()
    LOGVIEWER = enum.auto()
    COMMAND = enum.auto()
    # The code of components, which finds the value in its configuration: Nimbus or a worker
    # writes it there, and nothing of Squall's reads it.
    COMPONENTS = enum.auto()


NIMBUS, SUPERVISOR, WORKER = Reader.NIMBUS, Reader.SUPERVISOR, Reader.WORKER
DRPC, UI, LOGVIEWER = Reader.DRPC, Reader.UI, Reader.LOGVIEWER
COMMAND, COMPONENTS = Reader.COMMAND, Reader.COMPONENTS
DAEMONS = NIMBUS | SUPERVISOR | DRPC | UI | LOGVIEWER
NO_READER = Reader(0)


class _Mark(enum.Enum):
    AS_HERE = "Storm's default is ours"
    OURS = "Storm has no such key"


AS_HERE, OURS = _Mark.AS_HERE, _Mark.OURS

OPEN_CLUSTER = (
    "in an open cluster no one is authenticated, so it would not keep anyone out; "
    "storm.security.ca secures it"
)


_WORD_BREAK = re.compile(r"[.-]|(?<=[a-z])(?=[A-Z])")


@dataclass(frozen=True, slots=True)
class Option:
    """One key of the configuration.

    An option with `ignored` is checked and kept for the code of components, but has no effect;
    one with `refused` is refused where its value asks for something, and one with `secured` where
    it does in an open cluster.
    """

    key: str
    kind: Kind
    default: Any
    sentence: str  # what it does; a sentence or a few
    scope: Scope
    readers: Reader
    unit: str | None = None  # of a number
    storm: Any = AS_HERE  # Apache Storm's default, where it is another; OURS: not a key of Storm's
    null_is_a_value: bool = False  # null means something else than the default
    ignored: str | None = None  # why it has no effect
    refused: str | None = None  # why setting it is an error
    secured: bool = False  # whether setting it is an error unless the cluster is secured

    @property
    def field(self) -> str:
        """Its name in typed options: nimbus.slots.perTopology is `nimbus_slots_per_topology`."""
        return _WORD_BREAK.sub("_", self.key).lower()

    @property
    def is_storms(self) -> bool:
        return self.storm is not OURS

    @property
    def storm_default(self) -> Any:
        return self.default if self.storm is AS_HERE else self.storm
