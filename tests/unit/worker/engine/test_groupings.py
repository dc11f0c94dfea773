"""The hash of fields groupings: a table that must never change, since workers of different Python
versions and runs must agree on it."""

import dataclasses
import datetime as dt
import enum
import os
import subprocess
import sys
import uuid
from collections import Counter
from decimal import Decimal
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from squall_common.component.groupings import NoStableHashError, stable_hash, stable_hash_of_fields

TABLE = {
    "None": 1130791706,
    '""': 453955339,
    '"word"': 2598749967,
    '"wörd"': 2239471468,
    '"\\ud800"': 3125521492,
    'b"word"': 3345316157,
    "0": 1923632792,
    "1": 3187822086,
    "-1": 4200877683,
    "2**61 - 1": 1923632792,
    "2**64": 2706199853,
    "10**40": 705622166,
    "True": 3187822086,
    "0.5": 1864326908,
    "-0.0": 1923632792,
    "1e300": 2549736595,
    'float("inf")': 125155077,
    'float("nan")': 1810114945,
    'Decimal("0.1")': 3384002717,
    "()": 2517025534,
    '(1, "a")': 1820962230,
    "[[1], [2]]": 1974821538,
    "{1, 2}": 2695228834,
    '{"a": 1, "b": [2]}': 1716427954,
    "dt.datetime(2026, 1, 2, 3, 4, 5, 6)": 2333066525,
    "dt.datetime(2026, 1, 2, tzinfo=dt.timezone.utc)": 2463446616,
    "dt.date(2026, 1, 2)": 2959507843,
    "dt.time(1, 2, 3)": 2648920397,
    "dt.timedelta(days=-1, seconds=5)": 1002119879,
    "uuid.UUID(int=7)": 3348186849,
}


@pytest.mark.parametrize(("text", "expected"), TABLE.items())
def test_the_table(text, expected):
    value = eval(text, {"dt": dt, "uuid": uuid, "Decimal": Decimal})  # our own literals
    assert stable_hash(value) == expected


def test_the_table_holds_in_another_process():
    program = (
        "import datetime as dt, uuid, sys\nfrom decimal import Decimal\n"
        "from squall_common.component.groupings import stable_hash\n"
        f"for text in {list(TABLE)!r}: print(stable_hash(eval(text)))\n"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "PYTHONHASHSEED": "77"}
    out = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True
    )
    assert [int(line) for line in out.stdout.split()] == list(TABLE.values())


EQUAL = [
    [1, 1.0, True, Decimal(1), Decimal("1.00"), Fraction(1), 1 + 0j],
    [0, -0.0, 0.0, False, Decimal("-0")],
    [0.5, Decimal("0.5"), Fraction(1, 2)],
    [float("nan"), -float("nan"), Decimal("NaN")],
    [(1, 2), [1, 2], (1.0, True + 1)],
    [{1, 2, 3}, frozenset({3, 2, 1})],
    [{"a": 1, "b": 2}, {"b": 2.0, "a": True}],
    [b"x", bytearray(b"x"), memoryview(b"x")],
    [
        dt.datetime(2026, 1, 1, 12, tzinfo=dt.UTC),
        dt.datetime(2026, 1, 1, 13, tzinfo=dt.timezone(dt.timedelta(hours=1))),
    ],
]


@pytest.mark.parametrize("values", EQUAL)
def test_equal_values_hash_alike(values):
    assert len({stable_hash(value) for value in values}) == 1


DIFFERENT = ["1", 1, b"1", (1,), ("1",), {1}, {1: 1}, None, [], {}, set(), "", b"", [[]], ["", ""]]


def test_values_that_look_alike_hash_differently():
    hashes = {stable_hash(value) for value in DIFFERENT}
    assert len(hashes) == len(DIFFERENT)  # (set() is not {}, and [] is not ())


@given(st.dictionaries(st.text() | st.integers(), st.integers()), st.randoms())
def test_the_order_of_a_dict_does_not_matter(value, rng):
    items = list(value.items())
    rng.shuffle(items)
    assert stable_hash(dict(items)) == stable_hash(value)


class Colour(enum.Enum):
    RED = 1
    BLUE = 2


class Level(enum.IntEnum):
    HIGH = 3


@dataclasses.dataclass
class Point:
    x: int
    y: float


def test_enums_and_dataclasses():
    assert stable_hash(Colour.RED) != stable_hash(Colour.BLUE)
    assert stable_hash(Level.HIGH) == stable_hash(3)  # as Python says: Level.HIGH == 3
    assert stable_hash(Point(1, 2.0)) == stable_hash(Point(1, 2)) != stable_hash(Point(2, 2))


def test_a_type_without_an_encoding_is_refused():
    with pytest.raises(NoStableHashError, match="builtins:object"):
        stable_hash([object()])


def test_a_value_that_contains_itself_is_refused():
    loop: list = []
    loop.append(loop)
    with pytest.raises(NoStableHashError, match="contains itself"):
        stable_hash(loop)


def test_one_field_hashes_as_its_value_and_several_as_a_tuple():
    assert stable_hash_of_fields(["a"]) == stable_hash("a")
    assert stable_hash_of_fields(["a", 1]) == stable_hash(("a", 1))


@pytest.mark.parametrize("tasks", [2, 3, 4, 7, 16])
@pytest.mark.parametrize("key", ["user{}", "{}", "2026-11-21T{:05}"])
def test_keys_spread_over_tasks(tasks, key):
    counts = Counter(stable_hash(key.format(i)) % tasks for i in range(8_000))
    assert len(counts) == tasks
    assert max(counts.values()) < 1.25 * 8_000 / tasks


@pytest.mark.parametrize("tasks", [2, 3, 4, 7, 16])
def test_numbers_spread_over_tasks(tasks):
    counts = Counter(stable_hash(i) % tasks for i in range(8_000))
    assert max(counts.values()) < 1.25 * 8_000 / tasks
