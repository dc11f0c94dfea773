"""Every number in the configuration has two ends, and whatever lies beyond them is refused."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from squall_common.config.load import default_conf, validate_conf
from squall_common.config.schema import SCHEMA, Kind
from squall_common.errors import ConfigError

NUMERIC = sorted(key for key, kind in SCHEMA.items() if kind.bounds is not None)
# Of Java's, C's and JSON's largest numbers, and what is no number.
NEVER = [1e308, -1e308, math.inf, -math.inf, math.nan, 10**400, -(10**400), 10**5000, True, "1", []]


def bounds_of(key: str) -> tuple[float, float]:
    bounds = SCHEMA[key].bounds
    assert bounds is not None
    return bounds


def takes_numbers(kind: Kind) -> bool:
    return any(kind.check(value) for value in (0, 1, 0.5, 100, 70_000, 2**31 - 1, 10**12))


def test_every_key_that_takes_numbers_says_which():
    assert {key for key, kind in SCHEMA.items() if takes_numbers(kind)} == set(NUMERIC)


@pytest.mark.parametrize("key", NUMERIC)
def test_a_numeric_key_refuses_what_lies_beyond_its_bounds(key):
    """In a message that can be shown."""
    least, greatest = bounds_of(key)
    for value in (*NEVER, greatest + 1, greatest * 2, -(2**31), 2**63):
        if type(value) in (int, float) and least <= value <= greatest:
            continue
        with pytest.raises(ConfigError, match="expected a"):
            validate_conf({key: value})


@pytest.mark.parametrize("key", NUMERIC)
def test_the_bounds_themselves_are_taken(key):
    validate_conf({key: bounds_of(key)[1]}, secured=True)


@given(
    st.sampled_from(NUMERIC),
    st.integers() | st.floats() | st.integers(min_value=2**31 - 2, max_value=2**80),
)
def test_accepted_values_lie_within_the_bounds(key, value):
    least, greatest = bounds_of(key)
    if SCHEMA[key].check(value):
        assert least <= value <= greatest
        assert math.isfinite(SCHEMA[key].read(value))


def test_texts_lists_and_maps_have_a_length():
    for key, value in {
        "topology.version": "v" * 5_000,
        "topology.users": ["anna"] * 70_000,
        "topology.environment": {"A": "x" * 200_000},
        "topology.blobstore.map": {f"k{n}": {} for n in range(70_000)},
        "topology.kryo.register": ["m:C" * 4_000],
        "supervisor.slots.ports": [6700] * 70_000,
    }.items():
        with pytest.raises(ConfigError):
            validate_conf({key: value})


def test_the_defaults_lie_within_the_bounds():
    validate_conf({key: value for key, value in default_conf().items() if key in SCHEMA})
