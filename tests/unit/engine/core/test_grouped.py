"""Rows of state by key group: both cores encode them as `ValueCodec.encode_rows` does."""

from __future__ import annotations

import math
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from squall_common.component.groupings import stable_hash
from squall_engine.core import COMPILED, pure
from squall_engine.core.codec import ValueCodec

cores: list[ModuleType] = [pure]
if COMPILED:
    from squall_engine.core import compiled

    cores.append(compiled)

GROUPS = 5
WHOLE = [0, 1, 127, 128, 255, 256, 65_535, 65_536, 2**32 - 1, 2**32, 2**63, 2**64 - 1]
NEGATIVE = [-1, -32, -33, -128, -129, -32_768, -32_769, -(2**31), -(2**31) - 1, -(2**63)]
SIZES = [0, 1, 31, 32, 255, 256, 65_535, 65_536]
PLAIN = [None, True, False, 0.5, -0.0, math.inf, *WHOLE, *NEGATIVE]
PLAIN += [letter * size for size in SIZES for letter in ("a", b"b", "\u00e9")]
OTHERS = [2**64, -(2**63) - 1, "\ud800", (1, 2), [1], {"a": 1}, {1}, object(), 1j]


class Text(str):
    pass


def packed(core: ModuleType, rows: list[tuple[Any, Any]]) -> tuple[list[Any], dict[int, bytes]]:
    packer = core.GroupPacker(GROUPS)
    rest = [row for start in range(0, len(rows), 7) for row in packer.add(rows[start : start + 7])]
    return rest, packer.frames()


def expected(rows: list[tuple[Any, Any]]) -> dict[int, bytes]:
    groups: dict[int, list[Any]] = {}
    for row in rows:
        groups.setdefault(stable_hash(row[0]) % GROUPS, []).append(row)
    return {group: ValueCodec().encode_rows(some) for group, some in groups.items()}


@pytest.mark.parametrize("core", cores)
def test_plain_values_and_keys_are_encoded_as_rows(core: ModuleType) -> None:
    keys = [value for value in PLAIN if value is not None and not isinstance(value, bool)]
    rows = [(key, value) for key in keys for value in (1, "x")]
    rows += [(f"key {number}", value) for number, value in enumerate(PLAIN)]
    assert packed(core, rows) == ([], expected(rows))


@pytest.mark.parametrize("core", cores)
def test_what_is_not_plain_is_left(core: ModuleType) -> None:
    kept = ("kept", 1)
    others = [*((f"key {i}", value) for i, value in enumerate([*OTHERS, Text("a")]))]
    others += [((1, 2), 1), (None, 1), (True, 1), (math.nan, 1), ("\ud800", 1), (Text("k"), 1)]
    others += [(2**64, 1)]
    assert packed(core, [*others, kept]) == (others, expected([kept]))


@pytest.mark.parametrize("count", [15, 16, 65_535, 65_536])
@pytest.mark.parametrize("core", cores)
def test_any_number_of_rows(core: ModuleType, count: int) -> None:
    packer = core.GroupPacker(1)
    rows = [(number, None) for number in range(count)]
    assert packer.add(rows) == []
    assert packer.frames() == {0: ValueCodec().encode_rows(rows)}
    assert core.GroupPacker(3).frames() == {}


SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary()


@given(st.lists(st.tuples(st.text() | st.integers() | st.binary() | st.floats(), SCALARS)))
def test_both_cores_do_the_same(rows: list[tuple[Any, Any]]) -> None:
    first, *others = (repr(packed(core, rows)) for core in cores)
    assert all(other == first for other in others)
