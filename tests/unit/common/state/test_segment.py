from __future__ import annotations

import msgspec
import pytest

from squall_common.state.errors import StateDamagedError
from squall_common.state.segment import (
    MAGIC,
    Footer,
    ReadPart,
    Segment,
    SegmentRef,
    encode_segment,
)

NAME = "words/count/00002/000003-000000000007.segment"
FOOTER = Footer("words", "count", 2, 4, 128, 3, 7, 5, 20, 1, False, (), ())


def read_from(data: bytes) -> ReadPart:
    def read(start: int, length: int) -> bytes:
        start = max(0, len(data) + start) if start < 0 else start
        return data[start : start + length]

    return read


def written(blocks: dict[int, bytes], footer: Footer = FOOTER) -> tuple[bytes, SegmentRef]:
    parts, ref = encode_segment(footer, blocks, NAME, range(64, 96))
    return b"".join(parts), ref


def test_the_blocks_of_some_groups_are_read_back() -> None:
    blocks = {64: b"a" * 100, 70: b"b" * 5, 95: b"c", -1: b"bound"}
    data, ref = written(blocks)
    segment = Segment.open(NAME, read_from(data), ref)
    assert dict(segment.blocks(range(-1, 128))) == blocks
    assert dict(segment.blocks([70, 71])) == {70: b"b" * 5}
    assert dict(segment.blocks([64, 95])) == {64: b"a" * 100, 95: b"c"}
    assert list(segment.blocks(range(5))) == []


def test_a_reference_says_what_the_file_is() -> None:
    data, ref = written({64: b"a"})
    assert (ref.name, ref.size, ref.groups) == (NAME, len(data), (64, 95))
    assert Segment.open(NAME, read_from(data)).ref.size == len(data)
    assert Segment.open(NAME, read_from(data)).footer.keys == 20


def test_a_footer_of_any_size_is_read() -> None:
    older = tuple(SegmentRef(f"{'x' * 100}{i}", 1, 2, 3, i, (0, 1), False) for i in range(1_000))
    data, ref = written({64: b"a"}, msgspec.structs.replace(FOOTER, older=older))
    assert Segment.open(NAME, read_from(data), ref).footer.older == older


def test_an_empty_segment_is_one() -> None:
    data, ref = written({})
    assert list(Segment.open(NAME, read_from(data), ref).blocks(range(128))) == []


def test_every_flipped_byte_is_noticed_and_the_file_named() -> None:
    data, ref = written({64: b"abc", 95: b"de"})
    for at in range(len(MAGIC), len(data)):
        flipped = data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]
        with pytest.raises(StateDamagedError, match=NAME):
            list(Segment.open(NAME, read_from(flipped), ref).blocks(range(128)))


def test_every_truncation_is_noticed() -> None:
    data, ref = written({64: b"abc"})
    for length in range(len(data)):
        with pytest.raises(StateDamagedError, match=NAME):
            list(Segment.open(NAME, read_from(data[:length]), ref).blocks(range(128)))


def test_another_version_of_the_format_is_named() -> None:
    data, _ = written({})
    with pytest.raises(StateDamagedError, match="version 9, and this one reads up to 1"):
        Segment.open(NAME, read_from(data[:-1] + b"\x09"))


def test_a_file_that_was_replaced_is_not_the_one_of_the_manifest() -> None:
    data, _ = written({64: b"abc"})
    _, other = written({64: b"abd"})
    with pytest.raises(StateDamagedError, match="not the segment that was written"):
        Segment.open(NAME, read_from(data), other)
