"""Latencies as counts in buckets of fixed bounds, so that those of tasks, workers and intervals add
up. Pure.

A bucket is an eighth of a doubling: a value is known to within 4.5 % either way. Bucket 0 is one
microsecond and less.

Packed, as in heartbeats, a histogram is the number of its first bucket and the counts from there
on, each in as few bytes as the largest needs:

    byte 0       bytes of a count: 1, 2, 4 or 8
    bytes 1, 2   the first bucket, little-endian
    the rest     the counts, little-endian

One without events has no bytes.
"""

from __future__ import annotations

import math
import struct
import sys
from array import array
from collections.abc import Mapping, Sequence

STEPS = 8  # buckets a doubling
UNIT_SECS = 1e-6
BUCKET_MAX = 40 * STEPS  # 12 days

Histogram = dict[int, int]  # bucket -> events

_HEAD = struct.Struct("<BH")
_CODES = {1: "B", 2: "H", 4: "I", 8: "Q"}  # bytes of a count: the code of its array


def bucket_of(secs: float) -> int:
    """The bucket of a latency; negative ones (a clock that is not ours) are zero."""
    if secs <= UNIT_SECS:
        return 0
    return min(BUCKET_MAX, 1 + int(STEPS * math.log2(secs / UNIT_SECS)))


def secs_of(bucket: int) -> float:
    """The value that stands for a bucket: the middle, in ratio, of its bounds."""
    if bucket <= 0:
        return UNIT_SECS
    return UNIT_SECS * float(2.0 ** ((bucket - 0.5) / STEPS))


def upper_secs(bucket: int) -> float:
    """The largest value of a bucket."""
    return UNIT_SECS * float(2.0 ** (max(0, bucket) / STEPS))


def pack(histogram: Mapping[int, int]) -> bytes:
    """A histogram as bytes: see above."""
    if not histogram:
        return b""
    first, last = min(histogram), max(histogram)
    return _pack(first, [histogram.get(bucket, 0) for bucket in range(first, last + 1)])


def pack_list(counts: Sequence[int], first: int = 0) -> bytes:
    """A histogram as bytes, given the events of every bucket from `first` on."""
    used = [place for place, count in enumerate(counts) if count]
    return _pack(first + used[0], counts[used[0] : used[-1] + 1]) if used else b""


def unpack(packed: bytes) -> Histogram:
    """The histogram that was packed. Raises ValueError for bytes that are not one."""
    if not packed:
        return {}
    first, counts = _counts(packed)
    return {bucket: count for bucket, count in enumerate(counts, first) if count}


def less(packed: bytes, before: bytes) -> bytes:
    """A packed histogram without the events that were in it before: its counts only grow."""
    if not before:
        return packed
    if packed == before:
        return b""
    first, counts = _counts(packed)
    first_before, counts_before = _counts(before)
    for place, count in enumerate(counts_before, first_before - first):
        counts[place] -= count
    return pack_list(counts, first)


def _pack(first: int, counts: Sequence[int]) -> bytes:
    most = max(counts)
    size = 1 if most < 1 << 8 else 2 if most < 1 << 16 else 4 if most < 1 << 32 else 8
    found = array(_CODES[size], counts)
    if sys.byteorder == "big":
        found.byteswap()
    return _HEAD.pack(size, first) + found.tobytes()


def _counts(packed: bytes) -> tuple[int, array[int]]:
    """The first bucket, and the counts from there on."""
    if len(packed) < _HEAD.size:
        raise ValueError("a histogram is cut off")
    size, first = _HEAD.unpack_from(packed)
    if size not in _CODES:
        raise ValueError(f"a histogram has counts of {size} bytes")
    counts = array(_CODES[size])
    counts.frombytes(packed[_HEAD.size :])
    if sys.byteorder == "big":
        counts.byteswap()
    if first + len(counts) > BUCKET_MAX + 1:
        raise ValueError(f"a histogram has a bucket above {BUCKET_MAX}")
    return first, counts


def merge(into: Histogram, other: Mapping[int, int]) -> None:
    for bucket, count in other.items():
        into[bucket] = into.get(bucket, 0) + count


def percentile(histogram: Mapping[int, int], share: float) -> float | None:
    """The latency in seconds that `share` (0 to 1) of the events stay within; None without any."""
    total = sum(histogram.values())
    if total <= 0:
        return None
    rank = max(1, math.ceil(share * total))
    seen = 0
    for bucket in sorted(histogram):
        seen += histogram[bucket]
        if seen >= rank:
            return secs_of(bucket)
    raise AssertionError("counts add up to their total")
