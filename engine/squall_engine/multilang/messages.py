"""The messages of a child, and the faults that they can have.

Described in Storm's "Multi-Language Protocol"; what that leaves out follows Storm's ShellBolt,
ShellSpout and JsonSerializer.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import msgspec

from squall_engine.core import Tuple

_SHOWN_CHARS = 200
HEARTBEAT_STREAM = "__heartbeat"
# Any of it may be anything: a child wrote it. The user of a field checks it.
HEARTBEAT: dict[str, Any] = {
    "id": "heartbeat",
    "comp": None,
    "stream": HEARTBEAT_STREAM,
    "task": -1,
    "tuple": [],
}


class Command(msgspec.Struct, gc=False):
    """One message of a child. Fields that the command does not have are None."""

    command: object = None
    id: object = None
    tuple: object = None
    anchors: object = None
    stream: object = None
    task: object = None
    need_task_ids: object = None
    msg: object = None
    level: object = None
    name: object = None
    params: object = None
    pid: object = None


COMMAND_FIELDS = frozenset(Command.__struct_fields__)


class Wrong(enum.Enum):
    """The kinds of faults in a child's output; the value describes each to a person."""

    STRAY = (
        "something was printed to stdout, which carries the protocol: print to stderr, or log with "
        "the component's log command"
    )
    MISSING_END = "a message was not followed by a line 'end': it was taken as complete"
    GARBLED = "a message is not a JSON object, and was dropped"
    TOO_LONG = "a message is longer than topology.multilang.message.bytes.max"
    NO_COMMAND = "a message has no 'command'"


@dataclass(frozen=True, slots=True)
class Fault:
    """Output that is not a message. `fatal`: a message was lost, so the child's further output can
    no longer be trusted to be complete."""

    wrong: Wrong
    text: str  # what it wrote, cut
    fatal: bool

    def __str__(self) -> str:
        return f"{self.wrong.value}; it wrote: {self.text}"


Message = Command | Fault


class UnserializableError(ValueError):
    """Values that the serializer cannot carry."""


class Reader(Protocol):
    """Reads messages from the bytes of a child."""

    def feed(self, data: bytes) -> list[Message]:
        """The messages that are complete now. After a fatal fault nothing more is found."""


class Serializer(Protocol):
    """How messages look on the pipes (Storm's ISerializer)."""

    name: str

    def reader(self, bytes_max: int) -> Reader:
        """A reader for one child; `bytes_max` bounds a message and so the memory."""

    def tuple_message(self, tuple_id: str, tup: Tuple) -> bytes:
        """A tuple for a bolt. Raises UnserializableError."""

    def message(self, value: dict[str, Any]) -> bytes:
        """Any other message for the child. Raises UnserializableError."""

    def task_ids(self, ids: Sequence[int]) -> bytes:
        """The answer to an emit."""


def cut(data: bytes | str) -> str:
    """Format what a child wrote for an error message."""
    text = data if isinstance(data, str) else data[: 4 * _SHOWN_CHARS].decode(errors="replace")
    more = len(data) - _SHOWN_CHARS
    return repr(text[:_SHOWN_CHARS]) + (f" ... ({len(data)} in all)" if more > 0 else "")


def shown(value: object) -> str:
    """Format a value that a child sent for an error message."""
    text = repr(value)
    return text if len(text) <= _SHOWN_CHARS else text[:_SHOWN_CHARS] + " ..."


def plain(value: Any) -> Any:
    """What serializers do with types that they do not know: the nearest that another language has.
    Raises TypeError for what has none."""
    from collections.abc import Mapping, Set
    from decimal import Decimal
    from pathlib import PurePath

    if isinstance(value, Set):
        return list(value)
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, (Decimal, PurePath)):
        return str(value)
    if isinstance(value, (str, bytes, bytearray, memoryview)):
        raise TypeError(f"type {type(value).__name__}")
    if isinstance(value, Sequence):
        return list(value)
    return msgspec.to_builtins(value, builtin_types=(bytes, bytearray), str_keys=True)


def unserializable(tup: Tuple, serializer: str, check: Any) -> UnserializableError:
    """The error that names the field for which `check(value)` raises."""
    for field, value in zip(tup.fields, tup.values, strict=False):
        try:
            check(value)
        except (TypeError, ValueError, OverflowError, RecursionError) as error:
            return UnserializableError(
                f"field {field!r} of {tup.source_component!r} stream {tup.source_stream!r} is a "
                f"{type(value).__name__} that {serializer} cannot carry: {error}"
            )
    return UnserializableError(f"a tuple of {tup.source_component!r} cannot be carried")
