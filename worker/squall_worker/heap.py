"""How the C library keeps memory in a worker process.

With glibc's defaults a block of 128 KiB or more is mapped, and unmapped when it is freed; the
threshold then grows, but the end of the heap still goes back to the kernel as soon as twice as much
of it is free. Sections and frames are that large and live for a millisecond, so the kernel cleared
and took back the same pages again and again: a third of the CPU of 10,000-byte tuples between
workers.
"""

from __future__ import annotations

import ctypes

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
# Larger than frames and the sections of many tuples; single tuples of more are rare.
MAPPED_BYTES = 1024 * 1024
# At most so much stays with the process after a burst.
KEPT_BYTES = 16 * 1024 * 1024


def tune_heap() -> bool:
    """Keep up to `KEPT_BYTES` of freed memory at the end of the heap, and take blocks below
    `MAPPED_BYTES` from it. Returns whether this C library has that."""
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):
        return False
    return bool(mallopt(_M_MMAP_THRESHOLD, MAPPED_BYTES) and mallopt(_M_TRIM_THRESHOLD, KEPT_BYTES))
