"""Sections: the messages between the engines of one topology, opaque to the transport.

All numbers are little-endian. The first byte is the kind:

    TUPLES        <B kind, B flags, i source task, H stream bytes, I count> stream
                  i task  (SAME_TASK: once; else `count` times)
                  i source task * count               (SEVERAL_SOURCES only)
                  Q id * count, Q root * count        (ANCHORED only)
                  I bytes, msgpack [[index, {root: id}]]   (SEVERAL_ROOTS only;
                                                      the root of these tuples is MANY)
                  msgpack [[value ...] ...]           see `codec`
                  or columns                (COLUMNS only, with SAME_TASK and without
                                            SEVERAL_ROOTS)   see `column_format`
    ACKS          <B kind, B 0, I acker, I acks, I inits>
                  Q root * acks, Q xor * acks, Q root * inits, i spout task * inits
    FAILS, RESETS <B kind, B 0, I acker, I count>  Q root * count      to an acker
    DONE, FAILED, RESET  the same, with a spout task for the acker     to a spout task
    NOTES         <B kind>  msgpack [[reason, [root ...]] ...]   see `dead_letters`
    KILLED        <B kind>  msgpack [worker, why, [[root, task] ...]]   see `suspects`
    METRICS       <B kind>  msgpack [task, [host, port, component, task, time, secs],
                                     [[name, value] ...]]                see `observe.metrics`
    TRACES        <B kind>  msgpack [[edge, trace id, span id, flags, state] ...]   see `tracing`
    EPOCHS        <B kind>  msgpack [what, ...]      see `dataflow.fence`, `epochs.wire`

The numbers and heads are declared in `core.wire_format`, for the compiled core as well.

The init of a root and its XOR travel in one ACKS section, so that an acker takes both in one step.
"""

from __future__ import annotations

import struct
import sys
from array import array
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import msgspec

from squall_engine.core.codec import CodecError, ValueCodec
from squall_engine.core.column_format import decode_columns, encode_columns
from squall_engine.core.values import MANY, UNANCHORED
from squall_engine.core.wire_format import (
    ACKS_HEAD,
    COLUMN_ROWS_MIN,
    FIELDS_MAX,
    ID,
    ROOT,
    ROOTS_HEAD,
    SIZE,
    TASK,
    TUPLES_HEAD,
    XOR,
    Flag,
    Kind,
)

# The kinds as plain numbers: what a section is gets compared on the path of every tuple.
TUPLES, ACKS, FAILS, RESETS, DONE, FAILED, RESET = map(int, list(Kind)[:7])
NOTES = int(Kind.NOTES)  # for the spouts of a worker
KILLED = int(Kind.KILLED)  # likewise
METRICS = int(Kind.METRICS)  # for a task of a metrics consumer
TRACES = int(Kind.TRACES)  # for the worker of the tuples that it names
EPOCHS = int(Kind.EPOCHS)  # with checkpoints: between workers
TO_ACKER = frozenset({FAILS, RESETS})
TO_SPOUT = frozenset({DONE, FAILED, RESET})

_SAME_TASK, _ANCHORED, _SEVERAL_ROOTS, _SEVERAL_SOURCES, _COLUMNS = map(int, Flag)
_FLAGS = _SAME_TASK | _ANCHORED | _SEVERAL_ROOTS | _SEVERAL_SOURCES | _COLUMNS
_TUPLES_HEAD = TUPLES_HEAD.struct
_ACKS_HEAD = ACKS_HEAD.struct
_ROOTS_HEAD = ROOTS_HEAD.struct
_TASK = struct.Struct("<" + TASK)
_SIZE = struct.Struct("<" + SIZE)
_SWAP = sys.byteorder == "big"
_pack = msgspec.msgpack.Encoder().encode
_unpack_anchors = msgspec.msgpack.Decoder(list[tuple[int, dict[int, int]]]).decode


@dataclass(frozen=True, slots=True)
class TuplesSection:
    """Tuples of one stream; `tasks[i]` receives row `i`."""

    source_task: int  # of all, unless there are `sources`
    stream: str
    tasks: Sequence[int]
    ids: Sequence[int]
    roots: Sequence[int]  # MANY: look in `anchors`
    anchors: Mapping[int, dict[int, int]]  # index -> root -> edge id
    rows: Sequence[Sequence[Any]]
    sources: Sequence[int] = ()  # `sources[i]` has emitted row `i`

    def trees(self) -> list[int]:
        """The roots that its tuples belong to."""
        found = dict.fromkeys(root for root in self.roots if root not in (UNANCHORED, MANY))
        for anchors in self.anchors.values():
            found.update(dict.fromkeys(anchors))
        return list(found)


@dataclass(frozen=True, slots=True)
class AcksSection:
    acker: int  # index
    acks: dict[int, int]
    inits: dict[int, int]


@dataclass(frozen=True, slots=True)
class RootsSection:
    """FAILS, RESETS (target: an acker's index), DONE, FAILED, RESET (target: a spout task)."""

    kind: int
    target: int
    roots: Sequence[int]


Section = TuplesSection | AcksSection | RootsSection


class AnyTuple(Protocol):
    """A tuple of either core."""

    @property
    def values(self) -> Sequence[Any]: ...
    @property
    def id(self) -> int: ...
    @property
    def root(self) -> int: ...
    @property
    def anchors(self) -> dict[int, int] | None: ...


def serialize_tuples(
    source_task: int,
    stream: str,
    tasks: Sequence[int],
    tuples: Sequence[AnyTuple],
    codec: ValueCodec,
    sources: Sequence[int] = (),
    *,
    fields: int | None = None,
) -> bytes:
    """`sources[i]` has emitted tuple `i`; empty: the source task all. `fields`: so many the stream
    has, and the tuples, which are for one task, may be columns. Raises ValueNotEncodableError when
    some value cannot travel."""
    rows = [tup.values for tup in tuples]
    flags = 0
    name = stream.encode()
    if len(set(tasks)) == 1:
        flags |= _SAME_TASK
        receivers = _TASK.pack(tasks[0])
    else:
        receivers = _bytes(array(TASK, tasks))
    if (
        fields is not None
        and 0 < fields <= FIELDS_MAX
        and len(tuples) >= COLUMN_ROWS_MIN
        and all(tup.anchors is None for tup in tuples)
        and all(len(row) == fields for row in rows)  # (a component may change it)
    ):
        flags |= _COLUMNS
        data = encode_columns(list(zip(*rows, strict=True)), codec)
    else:
        data = codec.encode_rows(rows)
    parts = [b"", name, receivers]
    if any(task != source_task for task in sources):
        flags |= _SEVERAL_SOURCES
        parts.append(_bytes(array(TASK, sources)))
    roots = [tup.root for tup in tuples]
    if any(roots):
        flags |= _ANCHORED
        several = [(i, tup.anchors) for i, tup in enumerate(tuples) if tup.anchors is not None]
        parts.append(_bytes(array(ID, [tup.id for tup in tuples])))
        parts.append(_bytes(array(ROOT, roots)))
        if several:
            flags |= _SEVERAL_ROOTS
            anchors = _pack(several)
            parts += (_SIZE.pack(len(anchors)), anchors)
    parts.append(data)
    parts[0] = _TUPLES_HEAD.pack(TUPLES, flags, source_task, len(name), len(tuples))
    return b"".join(parts)


def serialize_acks(acker: int, acks: Mapping[int, int], inits: Mapping[int, int]) -> bytes:
    return b"".join(
        (
            _ACKS_HEAD.pack(ACKS, 0, acker, len(acks), len(inits)),
            _bytes(array(ROOT, acks.keys())),
            _bytes(array(XOR, acks.values())),
            _bytes(array(ROOT, inits.keys())),
            _bytes(array(TASK, inits.values())),
        )
    )


def serialize_roots(kind: int, target: int, roots: Iterable[int]) -> bytes:
    numbers = array(ROOT, roots)
    return _ROOTS_HEAD.pack(kind, 0, target, len(numbers)) + _bytes(numbers)


def addressee(data: bytes) -> tuple[int, int]:
    """(task, tuples) of a TUPLES section for one task; (-1, count) when it is for several, and
    (-1, 0) when it is no such section. Nothing else of it is looked at."""
    try:
        kind, flags, _, name_bytes, count = _TUPLES_HEAD.unpack_from(data)
        if kind != TUPLES:
            return -1, 0
        if not flags & _SAME_TASK:
            return -1, count
        return _TASK.unpack_from(data, _TUPLES_HEAD.size + name_bytes)[0], count
    except struct.error:
        return -1, 0


def parse(data: bytes, codec: ValueCodec) -> Section:
    """Parse a section. Raises CodecError for bytes that are not one."""
    try:
        kind = data[0]
        if kind == TUPLES:
            return parse_tuples(data, codec)
        if kind == ACKS:
            return parse_acks(data)
    except IndexError:
        raise CodecError("a section is empty") from None
    return parse_roots(data)


def acker_of(data: bytes) -> int:
    """The index of the acker that an ACKS section is for. Raises CodecError."""
    try:
        acker: int = _ACKS_HEAD.unpack_from(data)[2]
    except struct.error as error:
        raise _unreadable(data, error) from error
    return acker


def parse_roots(data: bytes) -> RootsSection:
    """A section of any kind with roots alone. Raises CodecError."""
    try:
        kind, _, target, count = _ROOTS_HEAD.unpack_from(data)
        reader = _Reader(data, _ROOTS_HEAD.size)
        roots = reader.numbers(ROOT, count)
        reader.end()
    except CodecError:
        raise
    except (struct.error, ValueError) as error:
        raise _unreadable(data, error) from error
    if kind not in TO_ACKER and kind not in TO_SPOUT:
        raise CodecError(f"unknown kind of section: {kind}")
    return RootsSection(kind, target, roots)


def _unreadable(data: bytes, error: Exception) -> CodecError:
    return CodecError(f"a section of {len(data)} bytes cannot be read: {error}")


def parse_tuples(data: bytes, codec: ValueCodec) -> TuplesSection:
    """Raises CodecError."""
    try:
        return _parse_tuples(data, codec)
    except CodecError:
        raise
    except (struct.error, ValueError, msgspec.MsgspecError) as error:
        raise _unreadable(data, error) from error


def parse_heads(data: bytes) -> TuplesSection:
    """The same with empty rows: of tuples whose values cannot be decoded. Raises CodecError."""
    return parse_tuples(data, _NoValues())


class _NoValues(ValueCodec):
    """Counts rows and decodes none."""

    def decode_rows(self, data: bytes | memoryview) -> list[list[Any]]:
        return [[] for _ in msgspec.msgpack.decode(data, type=list[msgspec.Raw])]


def _parse_tuples(data: bytes, codec: ValueCodec) -> TuplesSection:
    kind, flags, source_task, name_bytes, count = _TUPLES_HEAD.unpack_from(data)
    if kind != TUPLES:
        raise CodecError(f"a section of kind {kind} holds no tuples")
    if flags & ~_FLAGS:
        raise CodecError(f"a section has flags that are unknown: {flags:#04x}")
    if flags & _COLUMNS and (not flags & _SAME_TASK or flags & _SEVERAL_ROOTS):
        raise CodecError(f"a section of columns has flags that do not go with them: {flags:#04x}")
    reader = _Reader(data, _TUPLES_HEAD.size)
    stream = bytes(reader.take(name_bytes)).decode()
    tasks: Sequence[int]
    if flags & _SAME_TASK:
        tasks = [_TASK.unpack(reader.take(_TASK.size))[0]] * min(count, len(data))
    else:
        tasks = reader.numbers(TASK, count)
    sources: Sequence[int] = ()
    if flags & _SEVERAL_SOURCES:
        sources = reader.numbers(TASK, count)
    anchors: dict[int, dict[int, int]] = {}
    if flags & _ANCHORED:
        ids = reader.numbers(ID, count)
        roots = reader.numbers(ROOT, count)
    else:
        ids = roots = [UNANCHORED] * len(tasks)
    if flags & _SEVERAL_ROOTS:
        size = _SIZE.unpack(reader.take(_SIZE.size))[0]
        anchors = dict(_unpack_anchors(reader.take(size)))
        if any(number < 0 for one in anchors.values() for tree in one.items() for number in tree):
            raise CodecError("a section names a root or an edge that is less than 0")
    if {i for i, root in enumerate(roots) if root == MANY} != anchors.keys():
        raise CodecError("a section has tuples of several roots that it does not name")
    rows: Sequence[Sequence[Any]]
    if not flags & _COLUMNS:
        rows = codec.decode_rows(reader.rest())
    elif isinstance(codec, _NoValues):
        rows = [()] * len(tasks)
    else:
        rows = list(zip(*decode_columns(reader.rest(), count, codec), strict=True))
    if not len(rows) == len(tasks) == count:
        raise CodecError(f"a section of {count} tuples has {len(rows)} rows")
    return TuplesSection(source_task, stream, tasks, ids, roots, anchors, rows, sources)


def parse_acks(data: bytes) -> AcksSection:
    """Raises CodecError."""
    acker, acks, inits = read_acks(data)
    return AcksSection(acker, dict(acks), dict(inits))


def read_acks(data: bytes) -> tuple[int, list[tuple[int, int]], list[tuple[int, int]]]:
    """The acker, the acks and the inits of an ACKS section, in their order. Raises CodecError."""
    try:
        _, _, acker, acks, inits = _ACKS_HEAD.unpack_from(data)
        reader = _Reader(data, _ACKS_HEAD.size)
        roots, xors = reader.numbers(ROOT, acks), reader.numbers(XOR, acks)
        new_roots, spouts = reader.numbers(ROOT, inits), reader.numbers(TASK, inits)
        reader.end()
    except (struct.error, ValueError) as error:
        raise _unreadable(data, error) from error
    return acker, list(zip(roots, xors, strict=True)), list(zip(new_roots, spouts, strict=True))


class _Reader:
    """Takes a section apart; never makes more than the section has bytes."""

    def __init__(self, data: bytes, start: int) -> None:
        self._data = memoryview(data)
        self._at = start

    def take(self, size: int) -> memoryview:
        end = self._at + size
        if end > len(self._data):
            raise CodecError(f"a section ends after {len(self._data)} bytes; {end} were expected")
        piece = self._data[self._at : end]
        self._at = end
        return piece

    def numbers(self, code: str, count: int) -> list[int]:
        numbers = array(code)
        numbers.frombytes(self.take(count * numbers.itemsize))
        if _SWAP:
            numbers.byteswap()
        return numbers.tolist()

    def rest(self) -> memoryview:
        return self._data[self._at :]

    def end(self) -> None:
        if self._at != len(self._data):
            raise CodecError(f"a section has {len(self._data) - self._at} surplus bytes")


def _bytes(numbers: array[int]) -> bytes:
    if _SWAP:
        numbers.byteswap()
    return numbers.tobytes()
