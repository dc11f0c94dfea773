from __future__ import annotations

import random

from squall_connectors.base.offsets import Offsets


def test_what_is_in_flight_holds_back_what_was_acked_behind_it() -> None:
    offsets = Offsets(10)
    offsets.emitted([10, 11, 12], [["a"], ["b"], ["c"]])
    assert offsets.committable == 10
    offsets.acked(12)
    offsets.acked(11)
    assert (offsets.committable, offsets.uncommitted_count) == (10, 3)
    offsets.acked(10)
    assert (offsets.committable, offsets.uncommitted_count) == (13, 0)


def test_gaps_are_done() -> None:
    offsets = Offsets(0)
    offsets.emitted([3, 7], [["a"], ["b"]])
    offsets.acked(3)
    assert offsets.committable == 7
    offsets.acked(7)
    assert offsets.committable == 8
    offsets.skipped(9)
    assert offsets.committable == 10


def test_rows_of_columns_are_found_by_their_offsets() -> None:
    offsets = Offsets(0)
    offsets.emitted([3], [["x", 0]])
    offsets.emitted_columns(range(4, 300), [list(range(4, 300)), ["a"] * 296])
    assert (offsets.row(3), offsets.row(4), offsets.row(299)) == (["x", 0], [4, "a"], [299, "a"])
    offsets.acked(4)
    assert offsets.row(4) is None
    assert (offsets.committable, offsets.position) == (3, 300)
    offsets.validate()


def test_a_second_ack_changes_nothing() -> None:
    offsets = Offsets(0)
    offsets.emitted([0], [["a"]])
    assert offsets.acked(0)
    assert not offsets.acked(0)


def test_acks_in_any_order_never_commit_what_is_in_flight() -> None:
    chance = random.Random(7)
    for _ in range(200):
        offsets, flying, position = Offsets(0), set(), 0
        for _ in range(100):
            if flying and chance.random() < 0.5:
                offset = chance.choice(sorted(flying))
                flying.discard(offset)
                offsets.acked(offset)
            else:
                position += chance.randrange(1, 4)
                offsets.emitted([position], [[position]])
                flying.add(position)
            assert offsets.committable == (min(flying) if flying else position + 1)
            offsets.committed = max(offsets.committed, offsets.committable)
            offsets.validate()
