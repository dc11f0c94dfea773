"""Column types guessed from values."""

from __future__ import annotations

import datetime as dt
import enum
import uuid
from collections import namedtuple
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as some

from squall_spark.data.columns import MixedTypesError, TypeGuess, rows_to_columns


class Colour(enum.Enum):
    RED = 1


@dataclass
class Order:
    id: int
    note: str | None


Point = namedtuple("Point", "x y")


def columns(values: list[Any]) -> tuple[str, list[Any]]:
    """The type that values get, and what is in the column then."""
    guess = TypeGuess(["f"])
    guess.add([[value] for value in values])
    guess = TypeGuess.from_json(["f"], guess.to_json())
    batch = rows_to_columns([[value] for value in values], guess.schema())
    return str(batch.schema.field("f").type), batch.column(0).to_pylist()


@pytest.mark.parametrize(
    ("values", "type_", "stored"),
    [
        ([1, None, 2], "int64", None),
        ([1, 2.5], "double", [1.0, 2.5]),
        ([1, 2**70], "decimal128(38, 0)", [Decimal(1), Decimal(2**70)]),
        ([2**70, 1.0], "double", [float(2**70), 1.0]),
        (["a", None], "string", None),
        ([None, None], "string", None),
        ([True, False], "bool", None),
        ([b"a", bytearray(b"b")], "binary", [b"a", b"b"]),
        ([dt.date(2026, 1, 2)], "date32[day]", None),
        ([dt.datetime(2026, 1, 2)], "timestamp[us]", None),
        ([dt.timedelta(seconds=1)], "duration[us]", None),
        ([Decimal("1.50"), Decimal("100")], "decimal128(5, 2)", [Decimal("1.50"), Decimal("100")]),
        ([Decimal("0.5"), 3], "decimal128(20, 1)", [Decimal("0.5"), Decimal("3.0")]),
        ([[1], (2, 3), []], "list<item: int64>", [[1], [2, 3], []]),
        ([{1}], "list<item: int64>", [[1]]),
        ([Colour.RED], "string", ["RED"]),
        ([uuid.UUID(int=1)], "string", [str(uuid.UUID(int=1))]),
        ([Point(1, 2)], "struct<x: int64, y: int64>", [{"x": 1, "y": 2}]),
        ([{"a": 1}, {"b": "x"}], "struct<a: int64, b: string>", None),
        ([Order(1, None), Order(2, "x")], "struct<id: int64, note: string>", None),
        ([[{"k": (1,)}]], "list<item: struct<k: list<item: int64>>>", [[{"k": [1]}]]),
    ],
)
def test_types(values: list[Any], type_: str, stored: list[Any] | None) -> None:
    found, inside = columns(values)
    assert found == type_
    if stored is not None:
        assert inside == stored


@pytest.mark.parametrize(
    "values", [["a", 1], [True, 1], [b"", ""], [{"a": 1}, [1]], [[1, "a"]], [Decimal(1), "x"]]
)
def test_types_that_cannot_share_a_column_are_an_error_that_names_the_field(
    values: list[Any],
) -> None:
    with pytest.raises(MixedTypesError, match=r"field 'f.*' holds both"):
        columns(values)


@pytest.mark.parametrize("value", [object(), {1: 2}, 10**40, Decimal("NaN"), Decimal("1E+40")])
def test_values_without_a_column_type_are_an_error(value: Any) -> None:
    with pytest.raises(MixedTypesError, match="field 'f'"):
        columns([value])


SCALARS = some.none() | some.integers(-(2**70), 2**70) | some.floats(allow_nan=False)


@given(some.lists(SCALARS, max_size=20), some.lists(SCALARS, max_size=20))
def test_guesses_of_parts_merge_to_the_guess_of_the_whole(a: list[Any], b: list[Any]) -> None:
    whole, part, other = TypeGuess(["f"]), TypeGuess(["f"]), TypeGuess(["f"])
    whole.add([[value] for value in a + b])
    part.add([[value] for value in a])
    other.add([[value] for value in b])
    part.merge(other)
    assert part.guesses == whole.guesses
    assert rows_to_columns([[value] for value in a + b], whole.schema()).num_rows == len(a + b)


def test_no_rows_are_an_empty_batch() -> None:
    schema = pa.schema([("a", pa.int64()), ("b", pa.string())])
    assert rows_to_columns([], schema).num_rows == 0
