"""What a sample of keys can tell. Pure.

A key with `n` of `samples` has a share between the ends of Wilson's interval, 19 times of 20. It is
a *hot key* if it was sampled often enough, and even the lower end is a share that matters: one
sample of eleven is not a share of 9 %.
"""

from __future__ import annotations

import math

_Z = 1.96  # 95 %
SAMPLES_MIN = 100  # of a grouping
KEY_SAMPLES_MIN = 10
SHARE_MIN = 0.01


def wilson(n: int, samples: int) -> tuple[float, float]:
    """The ends of the interval of a share: 0 to 1."""
    if samples <= 0:
        return 0.0, 1.0
    share = min(1.0, n / samples)
    scale = 1 + _Z * _Z / samples
    middle = (share + _Z * _Z / (2 * samples)) / scale
    half = _Z * math.sqrt(share * (1 - share) / samples + _Z * _Z / (4 * samples * samples)) / scale
    return max(0.0, middle - half), min(1.0, middle + half)


def is_hot(n: int, samples: int) -> bool:
    """Whether a key is known to have a share that matters."""
    return samples >= SAMPLES_MIN and n >= KEY_SAMPLES_MIN and wilson(n, samples)[0] >= SHARE_MIN
