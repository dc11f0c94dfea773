from __future__ import annotations

import pytest

from squall_common.state.errors import StateDamagedError
from squall_common.state.manifest import (
    ComponentPart,
    Manifest,
    TaskPart,
    decode_manifest,
    encode_manifest,
)
from squall_common.state.segment import SegmentRef

REF = SegmentRef("words/count/0/1-7.segment", 120, 99, 5, 7, (0, 63), True)
MANIFEST = Manifest(
    "words",
    3,
    7,
    {
        "count": ComponentPart(128, (TaskPart((REF,), keys=5), TaskPart((), batches=(b"rows",)))),
        "lines": ComponentPart(128, (TaskPart(positions=b"\x01\x02"),)),
    },
    time_ms=1_795_500_000_000,
)


def test_a_manifest_is_read_back() -> None:
    found = decode_manifest(encode_manifest(MANIFEST), "m")
    assert found == MANIFEST
    assert found.segments == [REF]
    assert found.size == 120


def test_every_flipped_byte_is_noticed_and_the_manifest_named() -> None:
    data = encode_manifest(MANIFEST)
    for at in range(len(data)):
        flipped = data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]
        with pytest.raises(StateDamagedError, match=r"manifest words/7\.manifest is damaged"):
            decode_manifest(flipped, "words/7.manifest")


def test_every_truncation_is_noticed() -> None:
    data = encode_manifest(MANIFEST)
    for length in range(len(data)):
        with pytest.raises(StateDamagedError):
            decode_manifest(data[:length], "m")


def test_windows_that_move_are_not_for_readers_of_version_1() -> None:
    """They would begin with no windows, and say nothing."""
    moving = ComponentPart(128, (TaskPart(progress=b"\x01"),))
    found = Manifest("words", 3, 7, {"count": moving})
    assert (MANIFEST.version, found.version) == (1, 2)
    data = encode_manifest(found)
    assert data[7] == 2
    assert decode_manifest(data, "m") == found
    with pytest.raises(StateDamagedError, match=r"a newer version .* has version 3"):
        decode_manifest(data[:7] + b"\x03" + data[8:], "m")
