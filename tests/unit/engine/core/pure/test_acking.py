"""The pure part of acking: local trees and the acker's table."""

import random

import pytest

from squall_engine.core.pure.acking import AckerTable, Ledger, LocalTrees

ROOT = 7 << 16
SPOUT = 3


def trees() -> LocalTrees:
    return LocalTrees(random.Random(1).getrandbits)


def test_a_tree_that_begins_and_ends_in_one_turn_never_reaches_the_acker():
    ledger = Ledger()
    ledger.inits[ROOT] = SPOUT
    ledger.counts[ROOT] = 0  # one made, one settled
    settled = trees().settle(ledger)
    assert settled.done == {SPOUT: [ROOT]}
    assert settled.acks == settled.inits == {}


def test_a_message_without_consumers_is_done_at_once():
    ledger = Ledger()
    ledger.inits[ROOT] = SPOUT
    assert trees().settle(ledger).done == {SPOUT: [ROOT]}


def test_a_tree_that_outlives_its_turn_is_reported_to_its_acker_and_completes_there():
    local, table, ledger = trees(), AckerTable(), Ledger()
    ledger.inits[ROOT] = SPOUT
    ledger.counts[ROOT] = 1
    first = local.settle(ledger)
    assert first.done == {}
    assert table.apply(first.acks, first.inits) == ({}, {})
    ledger.counts[ROOT] = -1
    second = local.settle(ledger)
    assert second.inits == {}
    assert table.apply(second.acks, second.inits) == ({SPOUT: [ROOT]}, {})
    assert len(local) == len(table) == 0


def test_edges_to_other_workers_are_held_back_while_local_tuples_fly():
    local, ledger = trees(), Ledger()
    ledger.xors[ROOT] = 0xABC  # came over, settled here, and left two children here
    ledger.counts[ROOT] = 2
    assert local.settle(ledger).acks == {}
    ledger.counts[ROOT] = -1
    ledger.xors[ROOT] = 0x111  # one of them sent a tuple on
    assert local.settle(ledger).acks == {}
    ledger.counts[ROOT] = -1
    assert local.settle(ledger).acks == {ROOT: 0xABC ^ 0x111}
    assert len(local) == 0


def test_a_fail_in_the_first_turn_needs_no_acker():
    ledger = Ledger()
    ledger.inits[ROOT] = SPOUT
    ledger.counts[ROOT] = 0
    ledger.fails.append(ROOT)
    settled = trees().settle(ledger)
    assert settled.failed == {SPOUT: [ROOT]}
    assert settled.done == {}


def test_a_fail_of_a_tree_from_elsewhere_goes_to_the_acker_once():
    ledger = Ledger()
    ledger.fails += [ROOT, ROOT]
    assert trees().settle(ledger).fails == [ROOT]


def test_local_trees_that_nothing_touches_are_given_up_after_two_rotations():
    local, ledger = trees(), Ledger()
    ledger.counts[ROOT] = 1
    local.settle(ledger)
    local.rotate()
    assert len(local) == 1
    local.rotate()
    assert len(local) == 0


def test_local_trees_that_are_touched_stay():
    local, ledger = trees(), Ledger()
    ledger.counts[ROOT] = 1
    ledger.xors[ROOT] = 5
    local.settle(ledger)
    for _ in range(5):
        local.rotate()
        ledger.counts[ROOT] = 1
        local.settle(ledger)
    ledger.counts[ROOT] = -6
    assert local.settle(ledger).acks == {ROOT: 5}


def test_a_root_is_complete_only_after_its_init():
    table = AckerTable()
    assert table.apply({ROOT: 5}, {}) == ({}, {})
    assert table.apply({ROOT: 5}, {}) == ({}, {})
    assert table.apply({ROOT: 0}, {ROOT: SPOUT}) == ({SPOUT: [ROOT]}, {})
    assert len(table) == 0


def test_an_init_without_its_xor_completes_nothing():
    table = AckerTable()
    assert table.apply({}, {ROOT: SPOUT}) == ({}, {})


def test_a_repeated_init_completes_nothing():
    table = AckerTable()
    assert table.apply_remote({ROOT: 5}, {ROOT: SPOUT}) == ({}, {})
    assert table.apply_remote({ROOT: 5}, {ROOT: SPOUT}) == ({}, {})
    assert table.apply_remote({ROOT: 5}, {}) == ({SPOUT: [ROOT]}, {})


def test_a_fail_that_comes_before_the_init_fails_the_root_at_its_init():
    table = AckerTable()
    assert table.fail([ROOT]) == {}
    assert table.apply({ROOT: 5}, {ROOT: SPOUT}) == ({}, {SPOUT: [ROOT]})
    assert len(table) == 0


def test_a_fail_forgets_the_root():
    table = AckerTable()
    table.apply({ROOT: 5}, {ROOT: SPOUT})
    assert table.fail([ROOT]) == {SPOUT: [ROOT]}
    assert len(table) == 0


def test_a_root_lives_for_one_rotation_and_is_forgotten_after_two():
    table = AckerTable()
    table.apply({ROOT: 5}, {ROOT: SPOUT})
    table.rotate()
    assert table.apply({ROOT: 4}, {}) == ({}, {})
    assert table.apply({ROOT: 1}, {}) == ({SPOUT: [ROOT]}, {})
    table.apply({ROOT: 5}, {ROOT: SPOUT})
    table.rotate()
    table.rotate()
    assert len(table) == 0
    assert table.apply({ROOT: 5}, {}) == ({}, {})


def test_reset_timeout_keeps_a_root_over_any_number_of_rotations():
    table = AckerTable()
    table.apply({ROOT: 5}, {ROOT: SPOUT})
    for _ in range(5):
        table.rotate()
        assert table.reset_timeout([ROOT]) == {SPOUT: [ROOT]}
    assert table.apply({ROOT: 5}, {}) == ({SPOUT: [ROOT]}, {})


@pytest.mark.parametrize("count", [1, 3])
def test_ledgers_merge(count):
    into, ledger = Ledger(), Ledger()
    for _ in range(count):
        ledger.counts[ROOT] = 2
        ledger.xors[ROOT] = 1
        ledger.inits[ROOT] = SPOUT
        ledger.fails.append(ROOT)
        into.merge(ledger)
        assert not any([ledger.counts, ledger.xors, ledger.inits, ledger.fails])
    assert into.counts == {ROOT: 2 * count}
    assert into.xors == {ROOT: count % 2}
    assert into.fails == [ROOT] * count
