"""Groupings, which choose the tasks that get a tuple: the hash of a fields grouping, and custom
groupings.

A fields grouping sends equal values to the same task, from every worker, in every run, under every
Python version. So it does not use `hash()` of strings (random in each process) but a CRC-32 over a
*canonical encoding*, in which values that are equal in Python are equal bytes:

    None, str, bytes, numbers, datetimes, UUIDs   a letter for the type and the value
    1, 1.0, True, Decimal(1), Fraction(1)         one number: Python's numeric hash, which the
                                                  language defines (modulus 2**61 - 1) and which is
                                                  not randomised; -0.0 is 0.0; every NaN is one NaN
    list and tuple                                the same encoding, element by element
    set, frozenset, dict                          elements sorted by their encoding
    an Enum, a dataclass, a registered type       its class path, and its name, fields or encoding

Any other type is refused, and the error names it: hashing its `repr` would send equal values to
different tasks. The hashes in the table in the tests are part of the wire contract between workers.
"""

from __future__ import annotations

import abc
import dataclasses
import datetime as dt
import enum
import numbers
import struct
import sys
import uuid
import zlib
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from squall_common.component.constructed import RecordsConstruction
from squall_common.errors import SquallError, describe
from squall_common.topology.serialization import Registry, value_of_python

if TYPE_CHECKING:
    from squall_common.component.context import TopologyContext
    from squall_common.topology.model import GlobalStreamId

_INT64 = struct.Struct("<q")
_LENGTH = struct.Struct("<I")
_CRC_OF_STR = zlib.crc32(b"s")
_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_MICROSECOND = dt.timedelta(microseconds=1)
_EMPTY_REGISTRY = Registry()
INSTEAD = "emit None or a text in its place, or leave such tuples out before they are grouped"
"""What to do about a value that is equal to nothing."""

# The numeric hash is the same everywhere only if this modulus is.
assert sys.hash_info.modulus == 2**61 - 1, "squall needs a 64-bit Python"


class NoStableHashError(SquallError):
    """A value that a fields grouping cannot hash; the message names its type."""


def stable_hash(value: Any, registry: Registry = _EMPTY_REGISTRY) -> int:
    """A 32-bit hash of `value` that is the same in every process. Raises NoStableHashError."""
    if type(value) is str:
        return zlib.crc32(value.encode("utf-8", "surrogatepass"), _CRC_OF_STR)
    return zlib.crc32(canonical_encoding(value, registry))


def stable_hash_of_fields(values: Sequence[Any], registry: Registry = _EMPTY_REGISTRY) -> int:
    """The hash of a fields grouping on several fields (one field hashes as the value itself)."""
    if len(values) == 1:
        return stable_hash(values[0], registry)
    return zlib.crc32(canonical_encoding(tuple(values), registry))


def canonical_encoding(value: Any, registry: Registry = _EMPTY_REGISTRY) -> bytes:
    """The bytes that are hashed. Equal values have equal encodings. Raises NoStableHashError for
    a type that has none, and for a value that contains itself."""
    try:
        return _encode(value, registry)
    except RecursionError:
        raise NoStableHashError(
            f"a {type(value).__name__} that is nested too deeply (or contains itself) "
            "cannot be the value of a fields grouping"
        ) from None
    except NoStableHashError:
        raise
    except Exception as error:  # of a serializer, a time zone, a class like a number
        raise NoStableHashError(
            f"a value of type {_path(type(value))} cannot be the value of a fields grouping: "
            f"{describe(error)}"
        ) from error


def _encode(value: Any, registry: Registry) -> bytes:
    if value is None:
        return b"N"
    if isinstance(value, enum.Enum) and not isinstance(value, str | int):
        return b"e" + _sized(_path(type(value)).encode()) + value.name.encode()
    if isinstance(value, str):
        return b"s" + value.encode("utf-8", "surrogatepass")
    if isinstance(value, numbers.Number):
        return _encode_number(value)
    if isinstance(value, bytes | bytearray | memoryview):
        return b"b" + bytes(value)
    if isinstance(value, list | tuple):
        return b"l" + b"".join(_sized(_encode(item, registry)) for item in value)
    if isinstance(value, set | frozenset):
        return b"S" + b"".join(sorted(_sized(_encode(item, registry)) for item in value))
    if isinstance(value, Mapping):
        items = sorted(
            (_sized(_encode(key, registry)), _sized(_encode(item, registry)))
            for key, item in value.items()
        )
        return b"D" + b"".join(key + item for key, item in items)
    if isinstance(value, dt.datetime | dt.date | dt.time | dt.timedelta):
        return _encode_time(value)
    if isinstance(value, uuid.UUID):
        return b"u" + value.bytes
    serializer = registry.serializer_of(type(value))
    if serializer is not None:
        return (
            b"r" + _sized(_path(type(value)).encode()) + _encode(serializer.encode(value), registry)
        )
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = {f.name: getattr(value, f.name) for f in dataclasses.fields(value)}
        return b"c" + _sized(_path(type(value)).encode()) + _encode(fields, registry)
    raise NoStableHashError(
        f"a value of type {_path(type(value))} cannot be the value of a fields grouping: "
        "it has no encoding that is the same in every process",
        hint=value_of_python(type(value))
        or "group by a str, number or tuple of it, make it a dataclass, or register the type "
        "(topology.kryo.register)",
    )


def _encode_number(value: Any) -> bytes:
    if isinstance(value, Decimal) and value.is_nan():
        return b"nan"
    if value != value:
        return b"nan"
    try:
        return b"n" + _INT64.pack(hash(value))
    except TypeError:
        raise NoStableHashError(f"{value!r} cannot be the value of a fields grouping") from None


def _encode_time(value: dt.datetime | dt.date | dt.time | dt.timedelta) -> bytes:
    if value != value:  # NaT of pandas, which is a datetime
        raise NoStableHashError(
            f"{value!r} is not equal to itself, so it cannot be the value of a fields grouping",
            hint=INSTEAD,
        )
    if isinstance(value, dt.timedelta):
        return b"p" + str(value // _MICROSECOND).encode()
    if isinstance(value, dt.datetime):
        if value.utcoffset() is None:
            return b"T" + value.replace(fold=0).isoformat().encode()
        return b"t" + str((value - _EPOCH) // _MICROSECOND).encode()
    if isinstance(value, dt.date):
        return b"d" + value.isoformat().encode()
    offset = value.utcoffset()
    if offset is None:
        return b"h" + value.replace(fold=0).isoformat().encode()
    since_midnight = dt.timedelta(
        hours=value.hour,
        minutes=value.minute,
        seconds=value.second,
        microseconds=value.microsecond,
    )
    return b"H" + str((since_midnight - offset) // _MICROSECOND).encode()


def _sized(data: bytes) -> bytes:
    return _LENGTH.pack(len(data)) + data


def _path(cls: type) -> str:
    return f"{cls.__module__}:{cls.__qualname__}"


class CustomGrouping(RecordsConstruction):
    """Base class of groupings that users write: `.custom("source", MyGrouping(...))`.

    Each task of the source gets its own object, made in the worker from the constructor's arguments
    (which are sent to it like a component's).

        class ByLength(CustomGrouping):
            def choose_tasks(self, task, values):
                return [self.target_tasks[len(values[0]) % len(self.target_tasks)]]
    """

    def prepare(
        self, context: TopologyContext, stream: GlobalStreamId, target_tasks: Sequence[int]
    ) -> None:
        """Called once, before the first tuple. `target_tasks` are the consumer's tasks, sorted."""
        self.context = context
        self.stream = stream
        self.target_tasks = target_tasks

    @abc.abstractmethod
    def choose_tasks(self, task: int, values: Sequence[Any]) -> Sequence[int]:
        """Return the tasks that get a tuple with these values that `task` emits: any of
        `target_tasks`, or none. The emit fails if another task is returned."""


class ForwardGrouping(CustomGrouping):
    """Sends all tuples of a task to one task, of its own worker if that has any: they come in the
    order in which they were emitted, which a shuffle does not keep.

        builder.bolt("store", Store(), parallelism=3).custom("totals", ForwardGrouping())
    """

    def prepare(
        self, context: TopologyContext, stream: GlobalStreamId, target_tasks: Sequence[int]
    ) -> None:
        super().prepare(context, stream, target_tasks)
        here = frozenset(context.this_worker_tasks)
        senders = context.component_tasks(stream.component)
        near = [task for task in target_tasks if task in here]
        if near:
            senders = [task for task in senders if task in here]
        targets = near or target_tasks
        self.target = targets[senders.index(context.this_task_id) % len(targets)]

    def choose_tasks(self, task: int, values: Sequence[Any]) -> Sequence[int]:
        return (self.target,)


class PartialKeyGrouping(CustomGrouping):
    """Sends equal keys to one of two tasks, whichever was sent fewer tuples so far. The load stays
    even if a few keys are very frequent; a consumer has to combine two partial results per key.

    After Nasir et al., "The Power of Both Choices" (ICDE 2015), as Storm's PartialKeyGrouping."""

    def __init__(self, *fields: str) -> None:
        self.fields = fields

    def prepare(
        self, context: TopologyContext, stream: GlobalStreamId, target_tasks: Sequence[int]
    ) -> None:
        super().prepare(context, stream, target_tasks)
        names = context.output_fields(stream.component, stream.stream)
        self._indexes = [names.index(name) for name in self.fields] or list(range(len(names)))
        self._registry = context.serialization
        self._sent = dict.fromkeys(target_tasks, 0)

    def choose_tasks(self, task: int, values: Sequence[Any]) -> Sequence[int]:
        keys = [values[i] for i in self._indexes]
        key = stable_hash_of_fields(keys, self._registry)
        targets = self.target_tasks
        first = targets[key % len(targets)]
        # A second, independent hash of the same key: Knuth's multiplier, upper bits.
        second = targets[((key * 2654435761 & 0xFFFFFFFF) >> 7) % len(targets)]
        chosen = first if self._sent[first] <= self._sent[second] else second
        self._sent[chosen] += 1
        return (chosen,)
