"""From Python values to typed columns, which files and tables need and tuples do not have.

The type of a field is guessed from all its values. Guesses from partitions are merged, so a guess
is a small value that travels as JSON:

    None                         no value seen
    bool int float str ...       one type; int grows to big (38 digits); int and float are float
    [guess]                      list, tuple, set, frozenset
    {"k": guess}                 dict with text keys and dataclass: a struct of all keys seen

Values whose types cannot share a column (text and numbers, say) are an error that names the field
and the two types.
"""

from __future__ import annotations

import dataclasses
import datetime as dt
import enum
import json
import uuid
from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from pathlib import PurePath
from typing import Any

import pyarrow as pa

from squall_common.errors import SquallError

Guess = None | str | list[Any] | dict[str, Any]

_LONG = 2**63
_BIG = 10**38
_DECLARED = {
    "boolean": "bool",
    "bigint": "int",
    "double": "float",
    "string": "str",
    "binary": "bytes",
}
_ORDER = ("int", "big", "float")  # each holds the ones before it; decimals apart
_STRUCT_KEYS_MAX = 1_000
_NATIVE: dict[str, Any] = {
    "bool": pa.bool_(),
    "int": pa.int64(),
    "big": pa.decimal128(38, 0),
    "float": pa.float64(),
    "str": pa.string(),
    "bytes": pa.binary(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "naive timestamp": pa.timestamp("us"),
    "interval": pa.duration("us"),
}


_GUESS_OF_ARROW: dict[Any, Guess] = {
    pa.bool_(): "bool",
    pa.int64(): "int",
    pa.float64(): "float",
    pa.string(): "str",
    pa.binary(): "bytes",
}


class MixedTypesError(SquallError):
    """A field whose values do not fit any column; the message names the field."""


class TypeGuess:
    """The types of some fields, from the values seen so far."""

    def __init__(self, fields: Sequence[str]) -> None:
        self.fields = tuple(fields)
        self.guesses: list[Guess] = [None] * len(self.fields)

    def add(self, rows: Iterable[Sequence[Any]]) -> None:
        """Look at more values. Raises MixedTypesError."""
        for i, values in enumerate(zip(*rows, strict=True)):
            # Nearly always one plain type: check the whole column at once.
            types = set(map(type, values))
            for cls in types:
                if cls is str or cls is float or cls is bool:
                    self._merge(i, cls.__name__)
                else:
                    for value in values:
                        if type(value) is cls:
                            self._merge(i, guess_of(value, self.fields[i]))

    def add_arrow(self, batch: pa.RecordBatch) -> None:
        """Look at columns of plain types. Raises MixedTypesError."""
        for i, column in enumerate(batch.columns):
            self._merge(i, _GUESS_OF_ARROW.get(column.type))

    def merge(self, other: TypeGuess) -> None:
        """Add the types that another partition has seen. Raises MixedTypesError."""
        for i, guess in enumerate(other.guesses):
            self._merge(i, guess)

    def _merge(self, i: int, guess: Guess) -> None:
        mine = self.guesses[i]
        if guess != mine:
            self.guesses[i] = merge_guesses(mine, guess, self.fields[i])

    def to_json(self) -> str:
        return json.dumps(self.guesses)

    @classmethod
    def from_json(cls, fields: Sequence[str], text: str) -> TypeGuess:
        made = cls(fields)
        made.guesses = json.loads(text)
        return made

    @classmethod
    def declared(cls, fields: Sequence[str], types: Iterable[str | None]) -> TypeGuess:
        """Of a stream that declares plain types (Spark's names)."""
        made = cls(fields)
        made.guesses = [_DECLARED[str(type_)] for type_ in types]
        return made

    def schema(self) -> pa.Schema:
        """Columns that hold all the values seen; a field without values is text."""
        return pa.schema(
            [(name, _arrow(guess)) for name, guess in zip(self.fields, self.guesses, strict=True)]
        )


def guess_of(value: Any, field: str) -> Guess:
    """The type of one value. Raises MixedTypesError."""
    if value is None:
        return None
    if isinstance(value, bool):
        return "bool"
    if isinstance(value, enum.Enum):
        return "str"
    if isinstance(value, int):
        if -_LONG <= value < _LONG:
            return "int"
        if -_BIG < value < _BIG:
            return "big"
        raise MixedTypesError(f"field {field!r}: integers are limited to 38 digits")
    if isinstance(value, Decimal):
        return _decimal_guess(value, field)
    if isinstance(value, dt.datetime):
        return "naive timestamp" if value.tzinfo is None else "timestamp"
    if isinstance(value, list | tuple | set | frozenset):
        if hasattr(value, "_fields"):
            return _struct(dict(zip(value._fields, value, strict=True)), field)
        items: Guess = None
        for item in value:
            items = merge_guesses(items, guess_of(item, field), f"{field}[]")
        return [items]
    if isinstance(value, Mapping):
        return _struct(value, field)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return _struct({f.name: getattr(value, f.name) for f in dataclasses.fields(value)}, field)
    for types, name in (
        (float, "float"),
        (str | uuid.UUID | PurePath | dt.time | complex, "str"),
        (bytes | bytearray | memoryview, "bytes"),
        (dt.date, "date"),
        (dt.timedelta, "interval"),
    ):
        if isinstance(value, types):
            return name
    raise MixedTypesError(
        f"field {field!r}: a value of type {type(value).__qualname__} has no column type",
        hint="emit its parts, or its text",
    )


def _struct(value: Mapping[Any, Any], field: str) -> Guess:
    if not all(isinstance(key, str) for key in value):
        key = next(key for key in value if not isinstance(key, str))
        raise MixedTypesError(
            f"field {field!r}: a dict with the key {key!r} has no column type",
            hint="dicts with text keys become structs; emit others as lists of pairs",
        )
    if len(value) > _STRUCT_KEYS_MAX:
        raise MixedTypesError(f"field {field!r}: a dict of {len(value)} keys is too large")
    return {str(k): guess_of(v, f"{field}.{k}") for k, v in value.items()}


def _decimal_guess(value: Decimal, field: str) -> Guess:
    if not value.is_finite():
        raise MixedTypesError(f"field {field!r}: {value!r} does not fit a decimal column")
    _, digits, exponent = value.as_tuple()
    assert isinstance(exponent, int)
    scale = max(0, -exponent)
    return _decimal(max(1, len(digits) + max(0, exponent) - scale), scale, field)


def _decimal(whole: int, scale: int, field: str) -> str:
    if whole + scale > 38:
        raise MixedTypesError(f"field {field!r}: decimals are limited to 38 digits")
    return f"decimal {whole} {scale}"


def merge_guesses(a: Guess, b: Guess, field: str) -> Guess:
    """A type for the values of both. Raises MixedTypesError."""
    if a is None or a == b:
        return b
    if b is None:
        return a
    if a in _ORDER and b in _ORDER:
        return max(a, b, key=_ORDER.index)
    if isinstance(a, list) and isinstance(b, list):
        return [merge_guesses(a[0], b[0], f"{field}[]")]
    if isinstance(a, dict) and isinstance(b, dict):
        keys = [*a, *(key for key in b if key not in a)]
        return {k: merge_guesses(a.get(k), b.get(k), f"{field}.{k}") for k in keys}
    if _is_decimal(a) or _is_decimal(b):
        if "float" in (a, b):
            return "float"
        wholes, scales = zip(*(_digits(x) for x in (a, b)), strict=True)
        if all(whole is not None for whole in wholes):
            return _decimal(max(wholes), max(scales), field)
    raise MixedTypesError(
        f"field {field!r} holds both {_shown(a)} and {_shown(b)}, which cannot share a column",
        hint="emit one type, or emit the two on separate streams",
    )


def _is_decimal(guess: Guess) -> bool:
    return isinstance(guess, str) and guess.startswith("decimal")


def _digits(guess: Guess) -> tuple[Any, int]:
    if guess == "int":
        return 19, 0
    if guess == "big":
        return 38, 0
    if isinstance(guess, str) and guess.startswith("decimal"):
        _, whole, scale = guess.split()
        return int(whole), int(scale)
    return None, 0


def _shown(guess: Guess) -> str:
    if isinstance(guess, list):
        return "list"
    if isinstance(guess, dict):
        return "dict"
    return str(guess).split()[0] if _is_decimal(guess) else str(guess)


def _arrow(guess: Guess) -> Any:
    if guess is None:
        return pa.string()
    if isinstance(guess, list):
        return pa.list_(_arrow(guess[0]))
    if isinstance(guess, dict):
        # Files cannot hold a struct without fields.
        return pa.struct([(k, _arrow(v)) for k, v in guess.items()] or [("empty", pa.string())])
    if guess.startswith("decimal"):
        whole, scale = _digits(guess)
        return pa.decimal128(whole + scale, scale)
    return _NATIVE[guess]


def rows_to_columns(rows: Sequence[Sequence[Any]], schema: pa.Schema) -> pa.RecordBatch:
    """Rows as one record batch of a schema that holds them."""
    arrays = []
    columns = zip(*rows, strict=True) if rows else iter([()] * len(schema))
    for values, field in zip(columns, schema, strict=True):
        try:
            arrays.append(pa.array(values, field.type))
        except (pa.ArrowInvalid, pa.ArrowTypeError, TypeError):
            arrays.append(pa.array([_plain(v, field.type) for v in values], field.type))
    return pa.record_batch(arrays, schema=schema)


def arrow_to_columns(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Columns of plain types as a record batch of a schema that holds them."""
    arrays = [column.cast(field.type) for column, field in zip(batch.columns, schema, strict=True)]
    return pa.record_batch(arrays, schema=schema)


def _plain(value: Any, wanted: Any) -> Any:
    """A value in the form that Arrow accepts for a column of type `wanted`."""
    if value is None:
        return None
    if pa.types.is_list(wanted):
        return [_plain(item, wanted.value_type) for item in value]
    if pa.types.is_struct(wanted):
        return _plain_struct(value, wanted)
    if pa.types.is_string(wanted):
        if isinstance(value, enum.Enum):
            return value.name
        return value if isinstance(value, str) else str(value)
    if pa.types.is_floating(wanted):
        return float(value)
    if pa.types.is_decimal(wanted):
        return Decimal(value)
    if pa.types.is_binary(wanted):
        return bytes(value)
    return value


def _plain_struct(value: Any, wanted: Any) -> dict[str, Any]:
    if isinstance(value, Mapping):
        found = value
    elif hasattr(value, "_fields"):
        found = dict(zip(value._fields, value, strict=True))
    else:
        found = {f.name: getattr(value, f.name) for f in dataclasses.fields(value)}
    return {field.name: _plain(found.get(field.name), field.type) for field in wanted}
