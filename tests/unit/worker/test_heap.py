"""What the C library keeps of freed memory."""

from __future__ import annotations

import platform
import resource

import pytest

from squall_worker.heap import KEPT_BYTES, MAPPED_BYTES, tune_heap


def _faults_of_frames() -> int:
    """Page faults while 2,000 pairs of blocks of a frame's size are made and freed."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(2_000):
        blocks = [bytes(300_000), bytes(300_000), bytes(300_000)]
        del blocks
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="mallopt is glibc's")
def test_blocks_of_a_frames_size_are_kept_and_not_faulted_in_again() -> None:
    assert MAPPED_BYTES > 300_000
    assert KEPT_BYTES > 3 * 300_000
    assert tune_heap()
    _faults_of_frames()
    pages = 2_000 * 3 * 300_000 // 4096
    assert _faults_of_frames() < pages / 10
