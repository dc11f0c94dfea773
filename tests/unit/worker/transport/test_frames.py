"""The bytes of a frame, both ways, and bytes that are not a frame."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from squall_common.topology.model import WorkerSlot
from squall_common.worker_files.launch_spec import Incarnation
from squall_engine.transport import LOAD_MAX, Grant
from squall_worker.transport.frames import (
    FRAME_BYTES_MAX,
    GRANTS_MAX,
    NO_SESSION,
    PART_BYTES,
    Frame,
    FrameError,
    Kind,
    Session,
    topology_hash,
)

TOPOLOGY = bytes.fromhex("0102030405060708")

DATA = Frame(
    Kind.DATA,
    TOPOLOGY,
    WorkerSlot("sup-1", 6701),
    Session(0x1A, 3, 1),
    Session(0x1B, 1, 2),
    sequence=5,
    acknowledged=4,
    gap=True,
    sections=(b"hello", b""),
)
DATA_BYTES = bytes.fromhex(
    "5351 01 02 01 05 0000 0102030405060708"  # SQ, version, kind, flags, n, x, topology
    "1a00000000000000 03000000 01000000"  # sender
    "1b00000000000000 01000000 02000000"  # receiver
    "0500000000000000 0400000000000000"  # sequence, acknowledged
    "2d1a 0200 5a000000"  # port 6701, 2 sections, 90 bytes
    "7375702d31"  # sup-1
    "05000000 68656c6c6f 00000000"
)
GREETING = Frame(
    Kind.GREETING, TOPOLOGY, WorkerSlot("a", 1), Session(2**64 - 1, 2**32 - 1, 1), NO_SESSION, 0, 0
)
GREETING_BYTES = bytes.fromhex(
    "5351 01 01 00 01 0000 0102030405060708"
    "ffffffffffffffff ffffffff 01000000"
    "0000000000000000 00000000 00000000"
    "0000000000000000 0000000000000000"
    "0100 0000 49000000"
    "61"
)


@pytest.mark.parametrize(("frame", "data"), [(DATA, DATA_BYTES), (GREETING, GREETING_BYTES)])
def test_literal_bytes_both_ways(frame: Frame, data: bytes) -> None:
    assert frame.serialize() == data
    assert Frame.parse(data) == frame


def test_topology_hash_is_stable() -> None:
    """Workers of one topology must agree on it whatever runs them."""
    assert topology_hash("wordcount-1-1700000000").hex() == "24af71dfc056e97c"


def test_shows_itself_for_logs() -> None:
    assert str(DATA) == "DATA sup-1:6701 1a.3.1->1b.1.2 seq=5 ack=4 gap sections=2 bytes=5"
    assert str(GREETING) == "GREETING a:1 ffffffffffffffff.4294967295.1->0.0.0 seq=0 ack=0"


def test_grants_travel_between_node_id_and_sections() -> None:
    grants = (Grant(7, 1 << 40, 0), Grant(-1, 16_384, LOAD_MAX))
    frame = DATA._replace(grants=grants)
    data = frame.serialize()
    assert len(data) == len(DATA_BYTES) + 2 * 14
    assert data[77:91].hex() == "07000000" + "0000000000010000" + "0000"
    assert Frame.parse(data) == frame


def test_half_a_grant_is_refused() -> None:
    data = bytearray(DATA_BYTES)
    data[6:8] = (3).to_bytes(2, "little")
    data[68:72] = (len(data) + 3).to_bytes(4, "little")
    data[77:77] = b"xyz"
    with pytest.raises(FrameError, match="3 bytes of grants"):
        Frame.parse(bytes(data))


@pytest.mark.parametrize(
    ("offset", "replacement", "reason"),
    [
        (0, b"XX", "magic"),
        (2, b"\x02", "format version 2"),
        (3, b"\x09", "kind 9"),
        (3, b"\x03", "2 sections in a IDLE frame"),
        (4, b"\x80", "flags"),
        (5, b"\xff", "beyond the end"),
        (6, b"\xff\xff", "beyond the end"),
        (66, b"\x00\x00", "0 sections in a DATA frame"),
        (66, b"\x03\x00", "beyond the end"),
        (66, b"\x01\x00", "after the last section"),
        (68, b"\xff\xff\xff\x7f", "length 2147483647 in a frame of 90"),
        (72, b"\xff", "UTF-8"),
        (77, b"\xff\xff\xff\x7f", "section of 2147483647 bytes beyond the end"),
        (77, b"\x06", "beyond the end"),
    ],
)
def test_a_wrong_field_is_refused_with_its_place(
    offset: int, replacement: bytes, reason: str
) -> None:
    data = DATA_BYTES[:offset] + replacement + DATA_BYTES[offset + len(replacement) :]
    with pytest.raises(FrameError, match=reason):
        Frame.parse(data)


def test_every_truncation_and_extension_is_refused() -> None:
    for end in range(len(DATA_BYTES)):
        with pytest.raises(FrameError):
            Frame.parse(DATA_BYTES[:end])
    with pytest.raises(FrameError):
        Frame.parse(DATA_BYTES + b"\0")


def test_random_changes_parse_or_are_refused_and_nothing_else() -> None:
    """What parses again gives the same bytes, so no two byte strings mean one frame."""
    source = random.Random(1)
    for _ in range(20_000):
        data = bytearray(DATA_BYTES)
        for _ in range(source.randint(1, 4)):
            data[source.randrange(len(data))] = source.randrange(256)
        try:
            frame = Frame.parse(bytes(data))
        except FrameError:
            continue
        if int.from_bytes(data[6:8], "little") == 0:
            assert frame.serialize() == data


u64 = st.integers(0, 2**64 - 1)
u32 = st.integers(0, 2**32 - 1)
sessions = st.builds(Session, u64, u32, u32)


@given(
    st.text(max_size=40),
    st.integers(0, 65535),
    sessions,
    sessions,
    u64,
    u64,
    st.booleans(),
    st.lists(st.binary(max_size=50), max_size=5),
)
def test_round_trip(
    node: str, port: int, sender: Session, receiver: Session, sequence: int,
    acknowledged: int, gap: bool, sections: list[bytes],
) -> None:  # fmt: skip
    frame = Frame(
        Kind.DATA if sections else Kind.IDLE, TOPOLOGY, WorkerSlot(node, port), sender, receiver,
        sequence, acknowledged, gap, tuple(sections),
    )  # fmt: skip
    parsed = Frame.parse(frame.serialize())
    assert parsed.sections == frame.sections
    assert parsed.serialize() == frame.serialize()
    assert (parsed.slot, parsed.sender, parsed.receiver) == (frame.slot, sender, receiver)


@given(st.binary(max_size=200))
def test_random_bytes_are_refused(data: bytes) -> None:
    with pytest.raises(FrameError):
        Frame.parse(data)


@pytest.mark.parametrize(
    "frame",
    [
        Frame(Kind.IDLE, TOPOLOGY, WorkerSlot("n" * 256, 1), NO_SESSION, NO_SESSION, 0, 0),
        Frame(Kind.IDLE, TOPOLOGY, WorkerSlot("n", 65536), NO_SESSION, NO_SESSION, 0, 0),
        Frame(Kind.IDLE, TOPOLOGY, WorkerSlot("n", 1), Session(-1, 0, 0), NO_SESSION, 0, 0),
        Frame(Kind.IDLE, TOPOLOGY, WorkerSlot("n", 1), NO_SESSION, NO_SESSION, 2**64, 0),
        Frame(Kind.DATA, TOPOLOGY, WorkerSlot("n", 1), NO_SESSION, NO_SESSION, 1, 0),
        Frame(Kind.IDLE, TOPOLOGY, WorkerSlot("n", 1), NO_SESSION, NO_SESSION, 1, 0, False, (b"",)),
        Frame(
            Kind.DATA, TOPOLOGY, WorkerSlot("n", 1), NO_SESSION, NO_SESSION, 1, 0, False,
            (b"x" * FRAME_BYTES_MAX,),
        ),
    ],
    ids=["node", "port", "zxid", "sequence", "empty data", "idle with data", "too large"],
)  # fmt: skip
def test_frames_that_are_too_large_are_not_sent(frame: Frame) -> None:
    with pytest.raises(ValueError):
        frame.serialize()


def test_a_full_frame_fits_for_any_node_id() -> None:
    frame = Frame(
        Kind.DATA, TOPOLOGY, WorkerSlot("n" * 255, 1), NO_SESSION, NO_SESSION, 1, 0, False,
        (b"x" * PART_BYTES,), (Grant(1, 2, 3),) * GRANTS_MAX, True,
    )  # fmt: skip
    assert Frame.parse(frame.serialize()) == frame
    assert FRAME_BYTES_MAX < 300 * 1024, "what a stranger's connection can make a worker hold"


def test_a_part_is_alone_in_its_frame() -> None:
    both = DATA._replace(more=True)
    with pytest.raises(ValueError, match="a part of a section in a frame of 2 sections"):
        both.serialize()
    data = bytearray(DATA_BYTES)
    data[4] |= 2
    with pytest.raises(FrameError, match="a part of a section in a frame of 2 sections"):
        Frame.parse(bytes(data))
    one = both._replace(sections=(b"part",))
    assert one.serialize()[4] == 3
    assert Frame.parse(one.serialize()) == one


def test_sessions_are_ordered_as_their_incarnations() -> None:
    assert Session.of(Incarnation(5, 9), 9) < Session.of(Incarnation(6, 1), 1)
    assert Session.of(Incarnation(5, 1), 9) < Session.of(Incarnation(5, 2), 1)
    assert Session.of(Incarnation(5, 2), 1) < Session.of(Incarnation(5, 2), 2)
    assert Session.of(Incarnation(5, 2), 7).incarnation == Incarnation(5, 2)
