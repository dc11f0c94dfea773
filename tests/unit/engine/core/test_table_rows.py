"""Entries of a table on disk: both cores read and write what the codec and `key_bytes` make."""

from __future__ import annotations

import math
import struct
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from squall_common.component.groupings import stable_hash
from squall_common.state.disk.keys import key_bytes
from squall_engine.core import COMPILED, pure
from squall_engine.core.codec import ValueCodec

cores: list[ModuleType] = [pure]
if COMPILED:
    from squall_engine.core import compiled

    cores.append(compiled)

GROUPS = 5
OTHER = object()
WHOLE = [0, 1, 127, 128, 255, 256, 65_535, 65_536, 2**32 - 1, 2**32, 2**63 - 1]
NEGATIVE = [-1, -32, -33, -128, -129, -32_768, -32_769, -(2**31), -(2**31) - 1, -(2**63)]
PLAIN: list[Any] = [None, True, False, 0.5, -0.0, math.inf, 2**63, 2**64 - 1, *WHOLE, *NEGATIVE]
PLAIN += [letter * size for size in (0, 1, 31, 32, 255, 256, 65_536) for letter in ("a", b"b", "é")]
KEYS: list[Any] = ["", "a", "é" * 249, "k" * 499, b"", b"\0\xff", b"k" * 499, *WHOLE, *NEGATIVE]
NO_KEYS: list[Any] = ["k" * 500, b"k" * 500, "é" * 250, 2**63, -(2**63) - 1, "\ud800", 1.0, True]
NO_KEYS += [None, ("a", 1), math.nan]
NO_VALUES: list[Any] = [2**64, -(2**63) - 1, "\ud800", [1], (1,), {"a": 1}, OTHER]


def entry(key: Any, value: Any, *more: Any, group: int | None = None) -> bytes:
    """An entry as `DiskState` writes it."""
    if group is None:
        group = stable_hash(key) % GROUPS
    return struct.pack("<i", group) + ValueCodec().encode_rows(((key, value, *more),))


def written(batch: Any, bytes_max: int = 100) -> list[list[tuple[bytes, bytes]]]:
    return [list(portion) for portion in batch.portions(bytes_max)]


@pytest.mark.parametrize("core", cores)
def test_plain_keys_have_the_names_that_all_have(core: ModuleType) -> None:
    rows = core.TableRows(GROUPS)
    assert [rows.name(key) for key in KEYS] == list(map(key_bytes, KEYS))
    assert [rows.name(key) for key in NO_KEYS] == [None] * len(NO_KEYS)


@pytest.mark.parametrize("core", cores)
def test_plain_values_are_read_and_written(core: ModuleType) -> None:
    rows = core.TableRows(GROUPS)
    entries = {**dict.fromkeys(KEYS, 1), **{f"of {at}": value for at, value in enumerate(PLAIN)}}
    batch = rows.batch()
    assert batch.add_dict(entries, None) == []
    assert len(batch) == len(entries)
    expected = sorted((key_bytes(key), entry(key, value)) for key, value in entries.items())
    assert [pair for portion in written(batch) for pair in portion] == expected
    for key, value in entries.items():
        for data in (entry(key, value), entry(key, value, 12_345)):
            found = rows.value(key, data, OTHER)
            assert type(found) is type(value)
            assert found == value


@pytest.mark.parametrize("core", cores)
def test_what_is_not_plain_is_left(core: ModuleType) -> None:
    others = {**dict.fromkeys(NO_KEYS, 1), **{f"of {at}": one for at, one in enumerate(NO_VALUES)}}
    batch = core.TableRows(GROUPS).batch()
    left = batch.add_dict({**others, "kept": 1, "skipped": 2}, {"skipped": 0})
    assert left == list(others.items())
    assert written(batch) == [[(b"skept", entry("kept", 1))]]


@pytest.mark.parametrize("core", cores)
def test_an_entry_that_is_not_plain_is_left_to_the_codec(core: ModuleType) -> None:
    rows = core.TableRows(GROUPS)
    for value in NO_VALUES[:-1]:
        assert rows.value("a", entry("a", value), OTHER) is OTHER
    assert rows.value(1, entry(1.0, 5), OTHER) is OTHER  # that key, and its owner
    assert rows.value(1.0, entry(1.0, 5), OTHER) is OTHER
    assert rows.value("a", entry("b", 5), OTHER) is OTHER
    assert rows.value("a", entry("a", 5, group=-1), OTHER) is OTHER  # of the task
    assert rows.value("a", entry("a", 5, None, "owner"), OTHER) is OTHER


@pytest.mark.parametrize("core", cores)
def test_a_value_that_was_cut_off_is_not_read_beyond_its_end(core: ModuleType) -> None:
    rows = core.TableRows(GROUPS)
    for value in (200, 70_000, -200, 0.5, "text", "t" * 300, b"bytes"):
        data = entry("a", value)
        for size in range(4, len(data)):
            assert rows.value("a", data[:size], OTHER) is OTHER


@pytest.mark.parametrize("core", cores)
def test_portions_end_behind_the_entry_that_makes_them_large_enough(core: ModuleType) -> None:
    batch = core.TableRows(GROUPS).batch()
    for size in (5, 1, 3, 2, 4, 0):
        batch.add(b"%d" % size, b"x" * size)
    portions = [[len(data) for _, data in portion] for portion in batch.portions(3)]
    assert portions == [[0, 1, 2, 3], [4], [5]]


@pytest.mark.parametrize("core", cores)
def test_a_batch_is_handed_out_once(core: ModuleType) -> None:
    batch = core.TableRows(GROUPS).batch()
    batch.add(b"a", b"")
    assert written(batch) == [[(b"a", b"")]]
    with pytest.raises(ValueError, match="handed out"):
        batch.add(b"b", b"")
    with pytest.raises(ValueError, match="handed out"):
        written(batch)
    assert written(core.TableRows(GROUPS).batch()) == []


@given(
    st.text(alphabet="ab\0", max_size=9).map(str.encode) | st.just(b"same start "),
    st.dictionaries(st.binary(max_size=12) | st.text(alphabet="ab\0").map(str.encode), st.binary()),
)
def test_entries_come_by_name(start: bytes, entries: dict[bytes, bytes]) -> None:
    for core in cores:
        batch = core.TableRows(GROUPS).batch()
        for name, data in entries.items():
            batch.add(start + name, data)
        found = [pair for portion in written(batch, 10) for pair in portion]
        assert found == sorted((start + name, data) for name, data in entries.items())
