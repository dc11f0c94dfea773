"""Shared by both cores: the constants of ids, the results of acking, and the errors of calls."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import gcd
from operator import index
from typing import Any, Protocol, TypeVar

from squall_common.component.columns.fan_out import FanOut
from squall_engine.core import wire_format

UNANCHORED = wire_format.UNANCHORED
MANY = wire_format.MANY
ACKER_INDEX_BITS = wire_format.ACKER_INDEX_BITS
ACKER_INDEX_MASK = (1 << ACKER_INDEX_BITS) - 1

# The words that a bolt notes its current tuple in: root, task, and the other roots.
IN_HAND_WORDS = 16

# Of a row that a log of changes has packed; what is larger is kept as it is.
ROW_BYTES_MAX = 1024

# An inbox looks at the size of a tuple once in so many batches.
SAMPLE_EVERY = 16

# Timeout buckets in a message timeout: a root times out after 1.0 to 1.1 times the timeout.
BUCKETS = 10


class Source(Protocol):
    """The properties that the tuples of one task on one stream have in common, in either core."""

    @property
    def component(self) -> str: ...
    @property
    def task(self) -> int: ...
    @property
    def stream(self) -> str: ...
    @property
    def fields(self) -> tuple[str, ...]: ...
    @property
    def index(self) -> Mapping[str, int]: ...
    @property
    def is_tick(self) -> bool: ...


# Roots that are through, by the spout task that waits for them.
Settled = dict[int, list[int]]


@dataclass(slots=True)
class Outcome:
    """The results of acking, for spouts, by task, and for the ackers of other workers, by index."""

    done: Settled = field(default_factory=dict)
    failed: Settled = field(default_factory=dict)
    reset: Settled = field(default_factory=dict)  # their timeouts start anew
    sections: dict[int, list[bytes]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class AckerCounts:
    """The counts of one acker."""

    inits: Mapping[int, int]  # by spout task
    done: int
    failed: int


class Taken:
    """Messages that a spout no longer waits for: their ids, oldest first, and by stream their
    number and the seconds that it waited for them, altogether."""

    __slots__ = ("by_stream", "message_ids")

    def __init__(self) -> None:
        self.message_ids: list[object] = []
        self.by_stream: dict[str, tuple[int, float]] = {}

    def add(self, message_id: object, stream: str, secs: float) -> None:
        self.message_ids.append(message_id)
        count, total = self.by_stream.get(stream, (0, 0.0))
        self.by_stream[stream] = (count + 1, total + secs)


EdgeType = TypeVar("EdgeType", covariant=True)


class Grouper(Protocol[EdgeType]):
    """Chooses the edges that a tuple takes to one consumer."""

    def choose(self, values: Sequence[Any]) -> tuple[EdgeType, ...]:
        """The edges for a tuple of these values."""


def draw_steps(rng: random.Random, places: int) -> tuple[int, int]:
    """Where to begin in a ring, and a step that comes by each of its places once a round: an order
    for one source task that needs no copy of the ring."""
    if places < 2:
        return 0, 1
    start, step = rng.randrange(places), rng.randrange(1, places)
    while gcd(step, places) != 1:
        step = rng.randrange(1, places)
    return start, step


class Inspector:
    """Looks at every tuple that is emitted, when `topology.debug` or
    `topology.testing.always.try.serialize` is on (then no stream has a fast path)."""

    def inspect(self, source: Source, values: Sequence[Any]) -> Sequence[Any]:
        """The values to deliver. Raises CodecError when they cannot travel."""
        return values


class SettledTupleError(RuntimeError):
    """A tuple was used that was already acked or failed: its tree may be complete, so nothing more
    can be added to it."""


class EmitError(ValueError):
    """The topology does not allow an emit: unknown stream, wrong number of values ..."""


class ChangedRowError(ValueError):
    """The list of a tuple was made longer or shorter after it was emitted."""


def settled_error(tup: object, what: str) -> SettledTupleError:
    """The error for a tuple that is used after its ack or fail."""
    return SettledTupleError(f"{what}: {tup!r} was already acked or failed")


def wrong_values(source: Source, values: object) -> EmitError:
    """The error for values that do not match a stream's fields."""
    fields = ", ".join(source.fields)
    where = f"{source.component!r} emits on stream {source.stream!r} [{fields}]"
    if isinstance(values, str | bytes):
        return EmitError(f"{where}: the values are {values!r}; expected a list of values")
    try:
        count = len(values)  # type: ignore[arg-type]
    except TypeError:
        return EmitError(f"{where}: the values are {values!r}; expected a list of values")
    return EmitError(f"{where}: {count} values {values!r} for {len(source.fields)} fields")


def rows_of(source: Source, columns: Sequence[Sequence[Any]]) -> list[tuple[Any, ...]]:
    """The rows of columns. Raises EmitError when they do not match the stream's fields."""
    return list(zip(*columns_of(source, columns), strict=True))


def columns_of(source: Source, columns: Sequence[Sequence[Any]]) -> list[list[Any]]:
    """Columns as lists of their own. Raises EmitError when they do not match the stream's
    fields."""
    where = f"{source.component!r} emits columns on stream {source.stream!r}"
    if isinstance(columns, str | bytes) or any(isinstance(c, str | bytes) for c in columns):
        raise EmitError(f"{where}: expected one list for each field")
    if len(columns) != len(source.fields):
        fields = ", ".join(source.fields)
        raise EmitError(f"{where} [{fields}]: {len(columns)} columns were given")
    lists = [list(column) for column in columns]
    if any(len(column) != len(lists[0]) for column in lists):
        lengths = ", ".join(str(len(column)) for column in lists)
        raise EmitError(f"{where}: the columns differ in length: {lengths}")
    return lists


def checked_origins(origins: Sequence[int] | None, emitted: int, rows: int) -> Sequence[int] | None:
    """The rows of a batch of `rows` that the emitted tuples come from; None: from none.
    Raises EmitError."""
    if origins is None:
        if emitted != rows:
            raise EmitError(
                f"emit_columns: {emitted} tuples out of a batch of {rows}: say with origins= "
                "which row each comes from, or () for none"
            )
        return range(rows)
    if isinstance(origins, FanOut):
        return FanOut(checked_counts(origins.counts, emitted, rows))
    if not origins:
        return None
    if len(origins) != emitted:
        raise EmitError(f"emit_columns: {len(origins)} origins for {emitted} tuples")
    if min(origins) < 0 or max(origins) >= rows:
        raise EmitError(f"emit_columns: an origin is not a row of the batch (0 to {rows - 1})")
    return origins


def checked_counts(counts: Sequence[int], emitted: int, rows: int) -> tuple[int, ...]:
    """The counts of a `FanOut`, as plain numbers, one for each of `rows`. Raises EmitError."""
    if len(counts) != rows:
        raise EmitError(
            f"emit_columns: {len(counts)} counts in FanOut for a batch of {rows}: give one for "
            "each row, 0 for a row without tuples"
        )
    numbers = []
    for row, count in enumerate(counts):
        try:
            number = int(index(count))
        except TypeError:
            number = -1
        if number < 0:
            raise EmitError(
                f"emit_columns: the count of row {row} in FanOut is {count!r:.100}: expected a "
                "whole number, 0 or more"
            )
        numbers.append(number)
    if sum(numbers) != emitted:
        raise EmitError(
            f"emit_columns: the counts in FanOut add up to {sum(numbers)} for {emitted} tuples"
        )
    return tuple(numbers)


def changed_row(component: str, stream: str, fields: int, row: Sequence[Any]) -> ChangedRowError:
    """The error for a row of other than one value for each field, found where columns are made of
    it, or where it leaves for another worker."""
    return ChangedRowError(
        f"a tuple of {component} has {len(row)} values for the {fields} fields of stream "
        f"{stream!r}: its list was changed after it was emitted (emit a list of its own for each)"
    )


def no_row(row: object, rows: int) -> IndexError:
    """The error for a row that a batch does not have."""
    return IndexError(f"row {row!r} is not in the batch of {rows} rows")


def no_field(source: Source, key: Any) -> KeyError:
    """The error for a field that a tuple does not have."""
    return KeyError(
        f"no field {key!r}; {source.component!r} stream {source.stream!r} has "
        f"{', '.join(map(repr, source.fields))}"
    )
