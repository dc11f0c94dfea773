"""Keys that could not be stored, or would not be found again, are refused where they are put."""

from __future__ import annotations

import dataclasses
import datetime as dt
import enum
import math
import uuid
import zoneinfo
from decimal import Decimal
from pathlib import PurePosixPath
from typing import Any, NamedTuple

import pytest

from squall_common.state.errors import StateValueError
from squall_common.state.key_checks import KeyChecks, equals_itself, is_always_taken
from squall_common.state.keyed import KeyedState
from squall_common.topology.serialization import Registry
from squall_engine.core.codec import ValueCodec


class Colour(enum.Enum):
    RED = 1


@dataclasses.dataclass(frozen=True)
class Place:
    street: str


@dataclasses.dataclass(frozen=True, eq=False)
class OfItsOwn:
    street: str


class Pair(NamedTuple):
    x: int
    y: Any


TAKEN = [
    None, True, 1, 1.5, math.inf, "a", b"a", ("a", 1), ("a", 1.5), (("a",), 2), Decimal("1.50"),
    uuid.UUID(int=5), dt.date(2026, 1, 1), dt.datetime(2026, 1, 1), dt.timedelta(1),
    dt.datetime(2026, 1, 1, tzinfo=zoneinfo.ZoneInfo("Europe/Rome")), Colour.RED, Place("main"),
    Pair(1, "a"), frozenset({1, 2}), complex(1, 2), ["a list can own entries"],
]  # fmt: skip
NOT_ITSELF = [
    math.nan, ("a", math.nan), (1, ("a", math.nan)), Decimal("NaN"), Decimal("sNaN"),
    complex(1, math.nan),
]  # fmt: skip
NOT_AGAIN = [OfItsOwn("main"), frozenset({math.nan}), Place(math.nan), Pair(1, math.nan)]  # type: ignore[arg-type]
NOT_ENCODED = [object(), ("a", object()), type("Local", (), {})()]


def checks() -> KeyChecks:
    found = KeyChecks(ValueCodec(), Registry())
    found.fields = "'street' and 'number'"
    return found


@pytest.mark.parametrize("key", TAKEN, ids=repr)
def test_keys_that_are_found_again_are_taken(key: Any) -> None:
    checks().check(key, key)
    checks().check_owner(key, key)
    assert equals_itself(key)


@pytest.mark.parametrize("key", NOT_ITSELF, ids=repr)
def test_what_is_equal_to_nothing_is_refused_with_its_fields_and_what_to_do(key: Any) -> None:
    found = checks()
    with pytest.raises(StateValueError, match="not equal to itself") as caught:
        found.check(key, key)
    assert "(field 'street' and 'number')" in caught.value.message
    assert "emit None" in str(caught.value.hint)
    assert not is_always_taken(key)
    with pytest.raises(StateValueError) as caught:
        found.check(key, "another key of the tuple")
    assert "street" not in caught.value.message


@pytest.mark.parametrize("key", NOT_AGAIN, ids=repr)
def test_what_is_equal_to_nothing_that_is_read_back_is_refused(key: Any) -> None:
    with pytest.raises(StateValueError, match="what is read back is not equal to it"):
        checks().check(key, key)


@pytest.mark.parametrize("key", NOT_ENCODED)
def test_what_has_no_encoding_is_refused(key: Any) -> None:
    with pytest.raises(StateValueError, match="cannot be stored"):
        checks().check(key, key)


def test_the_key_of_a_tuple_is_known_by_its_parts() -> None:
    street, number = "main", math.nan
    with pytest.raises(StateValueError, match="'street' and 'number'"):
        checks().check((street, number), (street, number))


def test_a_key_without_a_stable_hash_owns_nothing_but_may_be_an_entrys_own() -> None:
    path = PurePosixPath("/data")
    checks().check(path, "ann")
    with pytest.raises(StateValueError, match="PurePosixPath"):
        checks().check_owner(path, path)


def test_a_state_that_has_refused_a_key_is_as_it_was() -> None:
    class Five(int):
        """Equal to 5, and has no encoding, as NumPy's has none."""

    state = KeyedState(16, ValueCodec())
    state.current = 5
    state.put(5, [1])
    five = Five(5)
    for refused in (
        lambda: state.put(five, 2),
        lambda: state.get(five),  # a list, which may be changed in place
        lambda: state.delete(five),
    ):
        with pytest.raises(StateValueError, match="Five"):
            refused()
    assert dict(state.items()) == {5: [1]}
    state.snapshot(1).encode(ValueCodec())


def test_entries_of_a_refused_owner_are_not_put() -> None:
    state = KeyedState(16, ValueCodec())
    for owner in (math.nan, object(), PurePosixPath("/data")):
        state.current = owner
        with pytest.raises(StateValueError):
            state.put("an entry", 1)
    assert len(state) == 0
    state.snapshot(1).encode(ValueCodec())
