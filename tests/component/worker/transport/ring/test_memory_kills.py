"""Either end of a ring is killed at any point of its work, again and again."""

from __future__ import annotations

import contextlib
import os
import random
import select
import signal
import struct
import time
from collections.abc import Iterator

import pytest
from tests.support.ring_records import read

from squall_common.daemon.parent import end_with_parent

memory = pytest.importorskip("squall_worker.transport.ring.memory")

CAPACITY = memory.CAPACITY_MIN
RECORD_MAX = 40_000
KILLS = 200


@contextlib.contextmanager
def ring() -> Iterator[tuple[memory.Writer, memory.Reader]]:
    """Both ends of one."""
    writer = memory.Writer(CAPACITY)
    fd = writer.take_fd()
    reader = memory.Reader(fd, CAPACITY, RECORD_MAX)
    os.close(fd)
    yield writer, reader
    writer.close()
    reader.close()


def _fork(work: object) -> tuple[int, int]:
    """A child that runs `work` until it is killed; gives its pid, and a pipe that it has written to
    once it has begun."""
    begun, begin = os.pipe()
    follow = end_with_parent(signal.SIGKILL)
    pid = os.fork()
    if pid == 0:
        follow()
        os.write(begin, b"!")
        with contextlib.suppress(BaseException):
            work()  # type: ignore[operator]
        os._exit(0)
    os.close(begin)
    return pid, begun


def _kill(pid: int, begun: int, source: random.Random) -> None:
    select.select([begun], [], [], 20)
    time.sleep(source.random() * 0.002)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    os.close(begun)


def _pattern(number: int) -> bytes:
    return struct.pack("<Q", number) * (number % 61 + 1)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_writer_killed_at_any_point_leaves_whole_records_and_nothing_else() -> None:
    source = random.Random(2)
    before = set(os.listdir("/proc/self/fd"))
    records = 0
    for _ in range(KILLS):
        with ring() as (writer, reader):

            def write(writer: memory.Writer = writer) -> None:
                number = 0
                while True:
                    if writer.write([_pattern(number)[:5], _pattern(number)[5:]]):
                        number += 1

            pid, begun = _fork(write)
            expected = 0
            end = time.monotonic() + 0.001
            while time.monotonic() < end:
                if (data := read(reader)) is not None:
                    assert data == _pattern(expected)
                    expected += 1
            _kill(pid, begun, source)
            while (data := read(reader)) is not None:
                assert data == _pattern(expected)
                expected += 1
            records += expected
            assert reader.sleep(), "nothing is locked"
    assert records > KILLS
    assert set(os.listdir("/proc/self/fd")) == before


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_reader_killed_at_any_point_does_not_hold_its_writer() -> None:
    source = random.Random(3)
    before = set(os.listdir("/proc/self/fd"))
    for _ in range(KILLS):
        with ring() as (writer, reader):

            def read_all(reader: memory.Reader = reader) -> None:
                while True:
                    if reader.read() is None:
                        reader.sleep()

            pid, begun = _fork(read_all)
            end = time.monotonic() + 0.001
            while time.monotonic() < end:
                writer.write([b"x" * 500])
                writer.must_wake()
            _kill(pid, begun, source)
            while writer.write([b"x" * 500]):
                pass
            assert writer.wait() in (True, False)
            assert writer.unread() > CAPACITY - 1_000
    assert set(os.listdir("/proc/self/fd")) == before
