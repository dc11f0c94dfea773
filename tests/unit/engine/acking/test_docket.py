"""Who is suspected, whose turn it is, and who is condemned."""

from squall_engine.acking.docket import (
    LOSS_OPEN_SECS,
    OPEN_SECS,
    WORD_SECS,
    Docket,
    Held,
    Verdict,
    wait_secs,
)

LIMIT = 3


def docket_with(*keys: int) -> Docket:
    docket = Docket(trial_secs=60.0)
    for key in keys:
        docket.killed(key, 0.0)
        docket.hold(Held(None, key, LIMIT, (key,), 0.0))
    docket.word_came(0.0)
    return docket


def keys_until(docket: Docket, now: float) -> list[tuple[int, Verdict]]:
    found = []
    while (one := docket.next(now)) is not None:
        found.append((one[0].key, one[1]))
    return found


def test_suspects_are_tried_one_at_a_time() -> None:
    docket = docket_with(1, 2)
    assert keys_until(docket, 0.0) == []  # the others first
    assert keys_until(docket, wait_secs(1)) == [(1, Verdict.HELD)]
    assert docket.acked(1)
    assert docket.judge(1, LIMIT) is Verdict.FREE
    assert keys_until(docket, wait_secs(1)) == [(2, Verdict.HELD)]
    docket.failed(2)
    assert docket.judge(2, LIMIT) is Verdict.HELD


def test_no_trial_begins_before_the_report_about_a_lost_worker() -> None:
    docket = docket_with(1)
    docket.lost(1.0)
    assert keys_until(docket, 2.0) == []
    docket.killed(1, 2.0)
    docket.killed(1, 2.0)
    assert docket.judge(1, LIMIT) is Verdict.HELD
    docket.word_came(2.0)
    assert docket.judge(1, LIMIT) is Verdict.CONDEMNED
    assert keys_until(docket, 2.0) == [(1, Verdict.CONDEMNED)]


def test_the_wait_for_a_missing_report_ends() -> None:
    docket = docket_with(1)
    docket.lost(1.0)
    assert keys_until(docket, 0.9 + WORD_SECS) == []
    assert keys_until(docket, 1.0 + WORD_SECS) == [(1, Verdict.HELD)]


def test_a_trial_that_does_not_end_delays_the_others_only_for_a_time() -> None:
    docket = docket_with(1, 2)
    assert keys_until(docket, 1.0) == [(1, Verdict.HELD)]
    assert keys_until(docket, 60.0) == []
    assert keys_until(docket, 61.0) == [(2, Verdict.HELD)]


def test_an_exit_about_which_nothing_is_known_counts_once_and_makes_no_suspect() -> None:
    docket = Docket(60.0)
    docket.unknown = True
    docket.word_came(0.0)
    assert docket.judge(1, 1) is Verdict.FREE
    assert docket.killed(1, 0.0) == 2
    assert docket.killed(1, 0.0) == 3
    assert docket.judge(1, LIMIT) is Verdict.CONDEMNED


def test_trials_are_rarer_the_more_often_a_message_was_in_hand() -> None:
    assert [wait_secs(count) for count in (0, 1, 2, 3, 7, 8, 10**6)] == [
        0.5, 0.5, 1.0, 2.0, 32.0, 60.0, 60.0,
    ]  # fmt: skip


def test_the_docket_closes_after_a_quiet_period() -> None:
    docket = docket_with(1)
    keys_until(docket, 1.0)
    assert not docket.close_when_due(OPEN_SECS - 1)
    assert docket.close_when_due(OPEN_SECS)
    assert not docket.is_open
    assert docket.judge(1, LIMIT) is Verdict.FREE
    docket.lost(5000.0)
    assert docket.close_when_due(5000.0 + LOSS_OPEN_SECS)
