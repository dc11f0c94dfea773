"""The memory of a ring: records, its circle, its flags."""

from __future__ import annotations

import contextlib
import mmap
import os
import random
import struct
from collections.abc import Callable, Iterator

import pytest
from tests.support.ring_records import read, record_of

from squall_common.topology.model import WorkerSlot
from squall_engine.transport import Grant
from squall_worker.transport.frames import Frame, FrameError, Kind, Session, data_head

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
                assert read(reader) == waiting.pop(0)
            if source.random() < 0.3 and waiting:
                assert read(reader) == waiting.pop(0)
        while waiting:
            assert read(reader) == waiting.pop(0)
        assert read(reader) is None
        assert writer.unread() == 0


def test_a_full_ring_takes_nothing_and_a_record_may_fill_it() -> None:
    with ring() as (writer, reader, _):
        assert writer.write([b"x" * 30_000])
        assert writer.write([b"y" * (CAPACITY - 30_008 - 8)])
        assert not writer.write([b""])
        assert read(reader) == b"x" * 30_000
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
        assert [read(reader), read(reader), read(reader)] == [b"1", b"2", None]
        assert not writer.must_wake(), "it is still awake"
        assert reader.sleep()
        assert writer.must_wake()


def test_a_writer_that_waits_for_room_is_woken_once() -> None:
    with ring() as (writer, reader, _):
        assert not writer.wait(), "nothing is unread: no one would wake it"
        while writer.write([b"x" * 1_000]):
            pass
        assert writer.wait()
        read(reader)
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


FRAME = Frame(
    Kind.DATA, bytes(8), WorkerSlot("node", 6700), Session(1, 2, 3), Session(4, 5, 6), 7, 8,
    sections=(b"one", b"", b"x" * 20_000), grants=(Grant(1, 2, 3),),
)  # fmt: skip
GREETING = FRAME._replace(kind=Kind.GREETING, sections=())


def test_frames_arrive_in_parts_around_the_circle() -> None:
    with ring() as (writer, reader, _):
        assert reader.read() is None
        for number in range(50):
            for frame in (FRAME._replace(sequence=number), GREETING):
                assert writer.write(frame.parts())
                parts = reader.read()
                assert parts[1] == frame.sections
                assert parts[2] == len(frame.serialize())
                assert Frame.of_parts(*parts) == frame
        assert reader.read() is None
        assert writer.unread() == 0


PLAIN = FRAME._replace(grants=())
HEAD = data_head(PLAIN.topology, PLAIN.slot, PLAIN.sender, PLAIN.receiver)


def test_plain_data_frames_are_written_as_others_are() -> None:
    with ring() as (writer, reader, _):
        for number in range(50):
            frame = PLAIN._replace(sequence=2**64 - 1 - number, acknowledged=number)
            assert writer.write_data(HEAD, frame.sequence, number, list(frame.sections))
            assert read(reader) == frame.serialize()
        while writer.write_data(HEAD, 1, 1, [b"x" * 1_000]):
            pass
        assert writer.wait()
        assert read(reader) is not None
        assert writer.write_data(HEAD, 1, 1, [b"x" * 1_000])
        for sections, head in (([], HEAD), ([b"x"], HEAD[:71]), ([b"x" * CAPACITY], HEAD)):
            with pytest.raises(ValueError, match=r"frame of|record of"):
                writer.write_data(head, 1, 1, sections)
        with pytest.raises(TypeError):
            writer.write_data(HEAD, 1, 1, ["text"])


def test_plain_data_frames_are_read_at_once_and_others_stay() -> None:
    others = [
        FRAME,
        GREETING,
        PLAIN._replace(gap=True),
        PLAIN._replace(sections=(b"part",), more=True),
        PLAIN._replace(slot=WorkerSlot("node", 6701)),
        PLAIN._replace(slot=WorkerSlot("nodes", 6700)),
        PLAIN._replace(slot=WorkerSlot("made", 6700)),
        PLAIN._replace(sender=Session(1, 2, 4)),
        PLAIN._replace(receiver=Session(4, 5, 7)),
        PLAIN._replace(topology=bytes(7) + b"x"),
    ]
    size = len(PLAIN.serialize()) - len(HEAD)
    with ring() as (writer, reader, _):
        assert reader.read_data(HEAD) is None
        for number, other in enumerate(others * 3):
            plain = PLAIN._replace(sequence=number, acknowledged=2**64 - 1)
            assert writer.write(plain.parts())
            assert writer.write(other.parts())
            assert reader.read_data(HEAD) == (number, 2**64 - 1, plain.sections, size)
            assert reader.read_data(HEAD) is None
            assert Frame.of_parts(*reader.read()) == other
        assert writer.unread() == 0


def _taken(parse: Callable[..., Frame], *arguments: object) -> Frame | str:
    try:
        return parse(*arguments)
    except FrameError as error:
        return str(error)


def test_a_record_that_is_no_frame_is_read_as_it_is() -> None:
    """So that whoever takes frames says what is wrong with it."""
    whole = FRAME.serialize()
    source = random.Random(3)
    records = [b"", b"x", whole[:72], whole[:-1], whole + b"x", whole[:90], b"\xff" * 100]
    # Lengths of the node, the grants and the sections, and their number.
    for at in (5, 6, 7, 66, 67, 90, 91, 92, 93, 97, 98, 101, 102):
        records.append(whole[:at] + bytes([whole[at] ^ source.randrange(1, 256)]) + whole[at + 1 :])
    records += [source.randbytes(source.randrange(2_000)) for _ in range(200)]
    with ring() as (writer, reader, _):
        for record in records:
            assert writer.write([record])
            parts = reader.read()
            assert record_of(parts) == record
            found = [_taken(Frame.parse, record), _taken(Frame.of_parts, *parts)]
            assert found[0] == found[1]
        assert writer.unread() == 0


def test_a_record_that_is_no_plain_frame_is_not_read_as_one() -> None:
    """Whatever a neighbour changes in one: it is the same frame as taken whole, or stays."""
    whole = PLAIN.serialize()
    source = random.Random(4)
    records = [whole, b"", b"x", whole[:72], whole[:76], whole[:-1], whole + b"x", whole[:90]]
    for at in [*range(len(HEAD)), *range(len(HEAD), len(HEAD) + 12)]:
        records.append(whole[:at] + bytes([whole[at] ^ source.randrange(1, 256)]) + whole[at + 1 :])
    plain = 0
    with ring() as (writer, reader, _):
        for record in records:
            assert writer.write([record])
            data = reader.read_data(HEAD)
            if data is None:
                assert record_of(reader.read()) == record
                continue
            plain += 1
            sequence, acknowledged, sections, size = data
            frame = PLAIN._replace(
                sequence=sequence, acknowledged=acknowledged, sections=sections
            )  # fmt: skip
            assert Frame.parse(record) == frame
            assert size == len(record) - len(HEAD)
        assert plain == 1 + 8 + 8 + 3, "as it was; another sequence, acknowledgement or section"
        assert writer.unread() == 0
