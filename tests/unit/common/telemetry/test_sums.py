"""Sums by component as bytes, which come from a process that runs its users' code."""

from __future__ import annotations

import math

import msgspec
import pytest

from squall_common.telemetry.sums import (
    SUMS_BYTES_MAX,
    ComponentSums,
    WorkerSums,
    decode_sums,
    encode_sums,
)

SUMS = WorkerSums(
    1250,
    {
        "split": ComponentSums(
            executed=7,
            emitted=21,
            busy_secs=0.25,
            by_source=(("lines", "default", 7),),
            blocked_secs={"count": 0.5},
            sent_bytes={"count": 2**40},
            busiest=(3, 4, 0.75),
        )
    },
)


def test_what_is_encoded_is_decoded() -> None:
    assert decode_sums(encode_sums(SUMS)) == SUMS


def test_a_thousand_components_fit() -> None:
    one = SUMS.components["split"]
    many = WorkerSums(1250, {f"component-{i:03}": one for i in range(1_000)})
    assert len(encode_sums(many)) < SUMS_BYTES_MAX / 2


@pytest.mark.parametrize(
    "wrong",
    [
        b"",
        b"\x00" * 5,
        b"\x91" * 100_000,  # nested
        b" " * (SUMS_BYTES_MAX + 1),
        msgspec.msgpack.encode([-1, {}]),
        msgspec.msgpack.encode([1, {"a": [2**61]}]),
        msgspec.msgpack.encode([1, {"a": [0, 0, 0, 0, 0, math.nan]}]),
        msgspec.msgpack.encode([1, {"a": [0, 0, 0, 0, 0, math.inf]}]),
        msgspec.msgpack.encode([1, {"a": ["7"]}]),
        msgspec.msgpack.encode([1, {"a" * 2_000: []}]),
    ],
)
def test_what_no_worker_writes_is_refused(wrong: bytes) -> None:
    with pytest.raises(ValueError, match="sums"):
        decode_sums(wrong)
