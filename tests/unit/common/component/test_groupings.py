"""The hash of fields groupings: a table that must never change, since workers of different Python
versions and runs must agree on it."""

import dataclasses
import datetime as dt
import enum
import uuid
from collections import Counter
from decimal import Decimal
from fractions import Fraction
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.stable_hashes import TABLE

from squall_common.component.groupings import (
    ForwardGrouping,
    NoStableHashError,
    stable_hash,
    stable_hash_of_fields,
)
from squall_common.topology.model import GlobalStreamId


@pytest.mark.parametrize(("text", "expected"), TABLE.items())
def test_the_table(text, expected):
    value = eval(text, {"dt": dt, "uuid": uuid, "Decimal": Decimal})  # our own literals
    assert stable_hash(value) == expected


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


def test_what_has_no_time_is_refused_with_what_to_do():
    pandas = pytest.importorskip("pandas")
    for value in (pandas.NaT, ("a", pandas.NaT)):
        with pytest.raises(NoStableHashError, match="NaT is not equal to itself") as caught:
            stable_hash(value)
        assert "emit None" in caught.value.hint
    numpy = pytest.importorskip("numpy")
    with pytest.raises(NoStableHashError) as caught:
        stable_hash(numpy.datetime64("NaT"))
    assert ".item()" in caught.value.hint


def test_a_value_whose_own_code_raises_is_refused_by_its_type():
    class Nowhere(dt.tzinfo):
        def utcoffset(self, at):
            raise OSError("no such zone")

    with pytest.raises(NoStableHashError, match=r"datetime:datetime.*OSError: no such zone"):
        stable_hash(dt.datetime(2026, 1, 1, tzinfo=Nowhere()))


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


@pytest.mark.parametrize(
    ("here", "chosen"),
    [
        ([1, 2, 3], {1: 11, 2: 12, 3: 11}),  # no target is in this worker
        ([1, 3, 12], {1: 12, 3: 12}),
        ([1, 3, 11, 12], {1: 11, 3: 12}),  # each local sender has a target of its own
    ],
)
def test_forward_sends_all_of_a_task_to_one_task(here, chosen):
    for task, expected in chosen.items():
        context = SimpleNamespace(
            this_task_id=task, this_worker_tasks=here, component_tasks={"a": [1, 2, 3]}.get
        )
        grouping = ForwardGrouping()
        grouping.prepare(context, GlobalStreamId("a"), (11, 12))
        assert {*grouping.choose_tasks(task, ["x"]), *grouping.choose_tasks(task, [5])} == {
            expected
        }
