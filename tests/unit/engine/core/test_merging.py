"""Blocks of segments that become one: both cores, against what restoring them leaves."""

from __future__ import annotations

import random
from types import ModuleType
from typing import Any

import pytest

from squall_common.state.keyed import LENGTH, KeyedState, frames_of
from squall_engine.core import COMPILED, pure
from squall_engine.core.codec import ValueCodec

cores: list[ModuleType] = [pure]
if COMPILED:
    from squall_engine.core import compiled

    cores.append(compiled)

CODEC = ValueCodec()
KEYS: list[Any] = ["", "ann", "a" * 40, "a" * 300, "a" * 70_000, "é", b"", b"ann", b"b" * 300]
KEYS += [b"b" * 70_000, 0, 127, 128, 2**16, 2**32, 2**63, -1, -33, -129, -(2**15) - 1, -(2**40)]
VALUES: list[Any] = [None, True, 0.5, "text", b"bytes", 2**70, [1, [2]], {"a": {"b": 1}}, (1, "x")]
VALUES += [{1, 2}, [None] * 20, [0] * 70_000, {str(n): n for n in range(20)}, 1j, "s" * 300]


class Stored:
    name = "it"

    def __init__(self, block: bytes) -> None:
        self.block = block

    def blocks(self, groups: Any) -> Any:
        return [(0, self.block)]


def restored(*blocks: bytes) -> dict[Any, Any]:
    state = KeyedState(1, CODEC)
    state.restore([[Stored(block) for block in blocks]], range(1), bound=True)
    return dict(state.items())


def block_of(gone: list[Any], *frames: list[tuple[Any, ...]]) -> bytes:
    encoded = [CODEC.encode_rows([(key,) for key in gone]) if gone else b""]
    encoded += [CODEC.encode_rows(rows) for rows in frames]
    return b"".join(LENGTH.pack(len(frame)) + frame for frame in encoded)


def some_rows(chance: random.Random) -> list[tuple[Any, ...]]:
    ends: list[tuple[Any, ...]] = [(), (), (5,), (None, "owner")]
    keys = chance.choices(KEYS, k=chance.choice([1, 3, 20]))
    return [(key, chance.choice(VALUES), *chance.choice(ends)) for key in keys]


@pytest.mark.parametrize("core", cores)
def test_a_merged_block_leaves_what_the_blocks_leave(core: ModuleType) -> None:
    for seed in range(150):
        chance = random.Random(seed)
        blocks = [
            block_of(
                chance.choices(KEYS, k=chance.randrange(4)),
                *(some_rows(chance) for _ in range(count)),
            )
            for count in chance.choices(range(4), k=chance.randrange(1, 5))
        ]
        expected = restored(*blocks)
        merged = core.merge_blocks(blocks)
        assert merged is not None
        assert merged[1] == len(expected)
        assert restored(merged[0]) == expected
        if expected:
            gone, frame = frames_of(merged[0])
            assert gone == b""
            assert len(CODEC.decode_rows(frame)) == len(expected)


@pytest.mark.parametrize("core", cores)
def test_many_rows_are_merged(core: ModuleType) -> None:
    count = 70_000
    blocks = [
        block_of([], [(key, 0) for key in range(count)]),
        block_of([5, 7], [(key, 1) for key in range(0, count, 3)], [(7, 2), (9, 3), (9, 4)]),
    ]
    merged = core.merge_blocks(blocks)
    assert merged is not None
    assert restored(merged[0]) == restored(*blocks)
    assert merged[1] == count - 1


@pytest.mark.parametrize("core", cores)
def test_nothing_is_left_of_what_was_deleted(core: ModuleType) -> None:
    assert core.merge_blocks([]) == (b"", 0)
    assert core.merge_blocks([block_of([], [("ann", 1)]), block_of(["ann", "bob"])]) == (b"", 0)


@pytest.mark.parametrize("key", [1.0, True, None, (1, 2), 2**70, "\ud800"])
@pytest.mark.parametrize("core", cores)
def test_keys_that_others_may_be_equal_to_are_not_merged(core: ModuleType, key: Any) -> None:
    assert core.merge_blocks([block_of([], [("ann", 1), (key, 1)])]) is None
    assert core.merge_blocks([block_of([key], [("ann", 1)])]) is None


@pytest.mark.parametrize("core", cores)
def test_what_is_no_block_is_not_merged(core: ModuleType) -> None:
    whole = block_of(["bob"], [("ann", [1, {"a": "text"}])])
    for end in range(len(whole)):
        cut = whole[:end]
        if cut and end != len(block_of(["bob"])):
            assert core.merge_blocks([cut]) is None, end
    frame = CODEC.encode_rows([("ann", 1)])
    for data in (b"\x00" + frame, frame + b"\x00", b"\xc1", b"\x91\xc0", b"\x91\x90"):
        assert core.merge_blocks([LENGTH.pack(0) + LENGTH.pack(len(data)) + data]) is None
