"""The memory of a ring: records, its circle, its flags."""

from __future__ import annotations

import contextlib
import mmap
import os
import random
import struct
from collections.abc import Iterator

import pytest

memory = pytest.importorskip("squall_worker.transport.ring.memory")

CAPACITY = memory.CAPACITY_MIN
RECORD_MAX = 40_000


@contextlib.contextmanager
def ring() -> Iterator[tuple[memory.Writer, memory.Reader, mmap.mmap]]:
    """Both ends of one, and its memory as a hostile neighbour has it."""
    writer = memory.Writer(CAPACITY)
    fd = writer.take_fd()
    reader = memory.Reader(fd, CAPACITY, RECORD_MAX)
    with mmap.mmap(fd, CAPACITY + 4096) as seen:
        os.close(fd)
        yield writer, reader, seen
        writer.close()
        reader.close()


def test_records_arrive_whole_and_in_order_around_the_circle() -> None:
    source = random.Random(1)
    with ring() as (writer, reader, _):
        waiting: list[bytes] = []
        number = 0
        while number < 2_000:
            parts = [source.randbytes(source.randrange(3_000)) for _ in range(source.randrange(4))]
            if writer.write(parts):
                waiting.append(b"".join(parts))
                number += 1
            else:
                assert reader.read() == waiting.pop(0)
            if source.random() < 0.3 and waiting:
                assert reader.read() == waiting.pop(0)
        while waiting:
            assert reader.read() == waiting.pop(0)
        assert reader.read() is None
        assert writer.unread() == 0


def test_a_full_ring_takes_nothing_and_a_record_may_fill_it() -> None:
    with ring() as (writer, reader, _):
        assert writer.write([b"x" * 30_000])
        assert writer.write([b"y" * (CAPACITY - 30_008 - 8)])
        assert not writer.write([b""])
        assert reader.read() == b"x" * 30_000
        assert writer.write([b""])
        with pytest.raises(ValueError, match="in a ring of"):
            writer.write([b"x" * (CAPACITY - 7)])


def test_a_reader_that_is_awake_is_not_woken() -> None:
    with ring() as (writer, reader, _):
        assert reader.sleep()
        writer.write([b"1"])
        assert writer.must_wake()
        writer.write([b"2"])
        assert not writer.must_wake()
        assert not reader.sleep(), "there is something to read"
        assert not writer.must_wake()
        assert [reader.read(), reader.read(), reader.read()] == [b"1", b"2", None]
        assert not writer.must_wake(), "it is still awake"
        assert reader.sleep()
        assert writer.must_wake()


def test_a_writer_that_waits_for_room_is_woken_once() -> None:
    with ring() as (writer, reader, _):
        assert not writer.wait(), "nothing is unread: no one would wake it"
        while writer.write([b"x" * 1_000]):
            pass
        assert writer.wait()
        reader.read()
        assert reader.must_wake()
        assert not reader.must_wake()


def test_only_sealed_memory_of_the_right_size_is_a_ring() -> None:
    writer = memory.Writer(CAPACITY)
    fd = writer.take_fd()
    with pytest.raises(memory.RingError, match="not a sealed ring"):
        memory.Reader(fd, 2 * CAPACITY, RECORD_MAX)
    with pytest.raises(OSError, match="not permitted"):
        os.ftruncate(fd, 4096)
    os.close(fd)
    plain = os.memfd_create("plain")
    os.ftruncate(plain, CAPACITY + 4096)
    with pytest.raises(memory.RingError, match="not a sealed ring"):
        memory.Reader(plain, CAPACITY, RECORD_MAX)
    os.close(plain)
    for capacity in (0, 1, 2**40):
        with pytest.raises(ValueError, match="a ring of"):
            memory.Writer(capacity)


def test_a_closed_ring_is_not_touched() -> None:
    with ring() as (writer, reader, _):
        writer.close()
        reader.close()
        for call in (writer.wait, writer.must_wake, reader.read, reader.sleep, reader.must_wake):
            with pytest.raises(memory.RingError, match="closed"):
                call()
        with pytest.raises(memory.RingError, match="closed"):
            writer.write([b""])


@pytest.mark.parametrize("tail", [2**64 - 1, 2**63, CAPACITY, 2_000])
def test_a_reader_cannot_be_where_nothing_was_written(tail: int) -> None:
    with ring() as (writer, _, seen):
        writer.write([b"x" * 1_000])
        seen[64:72] = struct.pack("<Q", tail)
        with pytest.raises(memory.RingError, match="where it cannot be"):
            writer.unread()
