"""A receiver's accounts."""

from squall_common.topology.model import WorkerSlot
from squall_engine.backpressure.credit import FLOOR_BYTES, WINDOW_BYTES_MAX, Inflow

PEER = WorkerSlot("peer", 1)
TASK = 7


def inflow() -> Inflow:
    found = Inflow()
    found.set_windows({PEER: {TASK: WINDOW_BYTES_MAX}})
    found.session_began(PEER, "first")
    return found


def due(into: Inflow) -> dict[int, int]:
    """What is granted now, by task."""
    grants = [one.grant(0) for slot, accounts in into.due() if slot == PEER for one in accounts]
    return {grant.task: grant.limit for grant in grants}


def test_the_sections_of_a_frame_count_on_the_accounts_of_their_tasks() -> None:
    into = inflow()
    assert due(into) == {TASK: WINDOW_BYTES_MAX}
    accounts = into.accounts_of(PEER, "first")
    accounts[TASK].received += WINDOW_BYTES_MAX
    accounts[TASK + 1].received += 1  # it has no window of its own
    assert accounts[TASK + 1].window == FLOOR_BYTES
    into.accounts_of(PEER, "first")[TASK].take(WINDOW_BYTES_MAX)
    assert due(into) == {TASK: 2 * WINDOW_BYTES_MAX}
    assert due(into) == {}


def test_a_grant_is_due_once_a_quarter_of_the_window_was_taken() -> None:
    into = inflow()
    due(into)
    account = into.accounts_of(PEER, "first")[TASK]
    account.take(WINDOW_BYTES_MAX // 4 - 1)
    assert due(into) == {}
    account.take(1)
    assert due(into) == {TASK: WINDOW_BYTES_MAX + WINDOW_BYTES_MAX // 4}


def test_what_came_in_a_previous_pair_of_sessions_is_not_granted() -> None:
    into = inflow()
    due(into)
    before = into.accounts_of(PEER, "first")[TASK]
    before.received += WINDOW_BYTES_MAX
    into.session_began(PEER, "second")
    assert due(into) == {TASK: WINDOW_BYTES_MAX}
    # In the inbox when the sessions began, and taken out of the transport only after that.
    late = into.accounts_of(PEER, "first")[TASK]
    assert late is not before
    late.received += WINDOW_BYTES_MAX
    for account in (before, late):
        account.take(WINDOW_BYTES_MAX)
    assert due(into) == {}
    assert into.accounts_of(PEER, "second")[TASK].received == 0


def test_new_windows_are_granted_at_once() -> None:
    into = Inflow()
    into.session_began(PEER, "first")
    assert due(into) == {}
    into.set_windows({PEER: {TASK: 2 * FLOOR_BYTES}})
    assert due(into) == {TASK: 2 * FLOOR_BYTES}
    assert into.accounts_of(PEER, "first")[TASK].window == 2 * FLOOR_BYTES
