"""A neighbour that writes anything into a ring, at any time: what is read from the memory is not
believed. Whatever it says, a read gives a record of at most the bytes that the ring holds, nothing,
or a RingError."""

from __future__ import annotations

import mmap
import os
import struct

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.support.effort import examples
from tests.support.ring_records import read

memory = pytest.importorskip("squall_worker.transport.ring.memory")

CAPACITY = memory.CAPACITY_MIN
RECORD_MAX = 40_000
DATA = 4096

_NEAR = st.integers(-16, 16)
WORDS = st.one_of(
    st.integers(0, 2**64 - 1),
    st.builds(
        lambda base, off: (base + off) % 2**64,
        st.sampled_from([0, CAPACITY, 2 * CAPACITY, RECORD_MAX, 2**32, 2**63, 2**64]),
        _NEAR,
    ),
)
LENGTHS = st.one_of(
    st.integers(0, 2**32 - 1),
    st.builds(
        lambda base, off: max(0, base + off) % 2**32,
        st.sampled_from([0, CAPACITY, RECORD_MAX, 2**31, 2**32 - 16]),
        _NEAR,
    ),
)
# What a frame says of its node's id, its grants, and its sections and the length of the first.
FRAMES = st.tuples(
    st.integers(0, 255), st.sampled_from([0, 14, 40_000, 65_535]),
    st.sampled_from([0, 1, 2, 65_535]), LENGTHS,
)  # fmt: skip
# (head, tail, flags, [(position, length, the word after it)], what frames say)
IMAGES = st.tuples(
    WORDS, WORDS, st.integers(0, 2**32 - 1),
    st.lists(st.tuples(st.integers(0, CAPACITY // 8 - 1), LENGTHS, st.integers(0, 3)), max_size=6),
    FRAMES,
)  # fmt: skip
Image = tuple[int, int, int, list[tuple[int, int, int]], tuple[int, int, int, int]]
PLAIN = (0, 0, 0, 0)
CORPUS = [
    (4096, 0, 0, [(0, 4088, 0)], (255, 65_535, 1, 0)),  # a frame whose head goes beyond it
    (4096, 0, 0, [(0, 4088, 0)], (0, 0, 1, 4_013)),  # its section does by a byte
    (4096, 0, 0, [(0, 4088, 0)], (0, 0, 65_535, 0)),  # more sections than there can be
    (2**64 - 8, 0, 1, [], PLAIN),  # behind zero
    (CAPACITY + 8, 0, 1, [], PLAIN),  # more than there is
    (16, 0, 0, [(0, 2**32 - 1, 0)], PLAIN),  # a length whose padding wraps
    (16, 0, 0, [(0, 9, 0)], PLAIN),  # a record beyond the head
    (CAPACITY, 0, 0, [(0, CAPACITY - 8, 0)], PLAIN),  # as large as the ring, above a record's bound
    (4, 0, 0, [], PLAIN),  # half a length
    (8, 2**64 - 8, 2**32 - 1, [(0, 0, 1)], PLAIN),
]


def _write(seen: mmap.mmap, image: Image) -> None:
    head, tail, flags, records, (node, extension, count, section) = image
    seen[0:8] = struct.pack("<Q", head)
    seen[64:72] = struct.pack("<Q", tail)
    seen[128:132] = seen[192:196] = struct.pack("<I", flags)
    for at, length, rest in records:
        position = DATA + 8 * at
        seen[position : position + 8] = struct.pack("<II", length, rest)
        frame = bytearray(72 + node + extension + 4)
        frame[5:8] = struct.pack("<BH", node, extension)
        frame[66:68] = struct.pack("<H", count)
        frame[-4:] = struct.pack("<I", section)
        fits = min(len(frame), len(seen) - position - 8)
        seen[position + 8 : position + 8 + fits] = frame[:fits]


def _check(images: list[Image]) -> None:
    writer = memory.Writer(CAPACITY)
    fd = writer.take_fd()
    reader = memory.Reader(fd, CAPACITY, RECORD_MAX)
    seen = mmap.mmap(fd, CAPACITY + DATA)
    os.close(fd)
    for image in images:
        _write(seen, image)
        try:
            for _ in range(CAPACITY // 8 + 1):
                data = read(reader)
                if data is None:
                    break
                assert len(data) <= RECORD_MAX
            else:
                raise AssertionError("it reads more records than the ring can hold")
        except memory.RingError:
            pass
        assert reader.sleep() in (True, False)
        assert reader.must_wake() in (True, False)
        try:
            assert writer.write([b"x" * 100]) in (True, False)
            assert 0 <= writer.unread() <= CAPACITY
            assert writer.wait() in (True, False)
        except memory.RingError:
            pass
        assert writer.must_wake() in (True, False)


@pytest.mark.parametrize("image", CORPUS, ids=[str(number) for number in range(len(CORPUS))])
def test_what_was_once_thought_of(image: Image) -> None:
    _check([image])


@settings(max_examples=examples(300), deadline=None)
@example([CORPUS[1], CORPUS[4]])
@given(st.lists(IMAGES, min_size=1, max_size=4))
def test_no_word_of_a_neighbour_is_believed(
    images: list[Image],
) -> None:
    _check(images)


_OPS = st.lists(
    st.one_of(
        st.tuples(st.just("write"), st.lists(st.integers(0, 20_000), max_size=3)),
        st.tuples(st.just("read"), st.just([])),
        st.tuples(st.just("sleep"), st.just([])),
    ),
    max_size=60,
)


@settings(max_examples=examples(100), deadline=None)
@given(_OPS)
def test_a_ring_is_a_queue_whose_sleeper_is_always_woken(
    ops: list[tuple[str, list[int]]],
) -> None:
    """The model: a list. A reader that sleeps has been reported by the time that there is
    something."""
    writer = memory.Writer(CAPACITY)
    fd = writer.take_fd()
    reader = memory.Reader(fd, CAPACITY, CAPACITY)
    os.close(fd)
    model: list[bytes] = []
    asleep = True
    used = 0
    for number, (op, sizes) in enumerate(ops):
        if op == "write":
            parts = [bytes([number % 256]) * size for size in sizes]
            whole = 8 + (sum(sizes) + 7) // 8 * 8
            assert writer.write(parts) == (used + whole <= CAPACITY)
            if used + whole <= CAPACITY:
                used += whole
                model.append(b"".join(parts))
                assert writer.must_wake() == asleep
                asleep = False
        elif op == "read":
            data = read(reader)
            assert data == (model.pop(0) if model else None)
            if data is not None:
                used -= 8 + (len(data) + 7) // 8 * 8
        else:
            assert reader.sleep() == (not model)
            asleep = not model
