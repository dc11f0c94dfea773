"""Latencies as counts in buckets of fixed bounds, so that those of tasks, workers and intervals add
up. Pure.

A bucket is an eighth of a doubling: a value is known to within 4.5 % either way. Bucket 0 is one
microsecond and less.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

_STEPS = 8  # buckets a doubling
_UNIT_SECS = 1e-6
BUCKET_MAX = 40 * _STEPS  # 12 days

Histogram = dict[int, int]  # bucket -> events


def bucket_of(secs: float) -> int:
    """The bucket of a latency; negative ones (a clock that is not ours) are zero."""
    if secs <= _UNIT_SECS:
        return 0
    return min(BUCKET_MAX, 1 + int(_STEPS * math.log2(secs / _UNIT_SECS)))


def secs_of(bucket: int) -> float:
    """The value that stands for a bucket: the middle, in ratio, of its bounds."""
    if bucket <= 0:
        return _UNIT_SECS
    return _UNIT_SECS * float(2.0 ** ((bucket - 0.5) / _STEPS))


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
