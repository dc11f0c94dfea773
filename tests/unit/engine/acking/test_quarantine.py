"""Who is suspected, whose turn it is, and who is condemned."""

from squall_engine.acking.quarantine import (
    ACTIVE_SECS,
    LOSS_ACTIVE_SECS,
    REPORT_SECS,
    HeldMessage,
    Quarantine,
    Verdict,
    wait_secs,
)

LIMIT = 3


def quarantine_with(*keys: int) -> Quarantine:
    quarantine = Quarantine(trial_secs=60.0)
    for key in keys:
        quarantine.killed(key, 0.0)
        quarantine.hold(HeldMessage(None, key, LIMIT, (key,), 0.0))
    quarantine.report_arrived(0.0)
    return quarantine


def keys_until(quarantine: Quarantine, now: float) -> list[tuple[int, Verdict]]:
    found = []
    while (one := quarantine.next(now)) is not None:
        found.append((one[0].key, one[1]))
    return found


def test_suspects_are_tried_one_at_a_time() -> None:
    quarantine = quarantine_with(1, 2)
    assert keys_until(quarantine, 0.0) == []  # the others first
    assert keys_until(quarantine, wait_secs(1)) == [(1, Verdict.HELD)]
    assert quarantine.acked(1)
    assert quarantine.judge(1, LIMIT) is Verdict.FREE
    assert keys_until(quarantine, wait_secs(1)) == [(2, Verdict.HELD)]
    quarantine.failed(2)
    assert quarantine.judge(2, LIMIT) is Verdict.HELD


def test_no_trial_begins_before_the_report_about_a_lost_worker() -> None:
    quarantine = quarantine_with(1)
    quarantine.lost(1.0)
    assert keys_until(quarantine, 2.0) == []
    quarantine.killed(1, 2.0)
    quarantine.killed(1, 2.0)
    assert quarantine.judge(1, LIMIT) is Verdict.HELD
    quarantine.report_arrived(2.0)
    assert quarantine.judge(1, LIMIT) is Verdict.CONDEMNED
    assert keys_until(quarantine, 2.0) == [(1, Verdict.CONDEMNED)]


def test_the_wait_for_a_missing_report_ends() -> None:
    quarantine = quarantine_with(1)
    quarantine.lost(1.0)
    assert keys_until(quarantine, 0.9 + REPORT_SECS) == []
    assert keys_until(quarantine, 1.0 + REPORT_SECS) == [(1, Verdict.HELD)]


def test_a_trial_that_does_not_end_delays_the_others_only_for_a_time() -> None:
    quarantine = quarantine_with(1, 2)
    assert keys_until(quarantine, 1.0) == [(1, Verdict.HELD)]
    assert keys_until(quarantine, 60.0) == []
    assert keys_until(quarantine, 61.0) == [(2, Verdict.HELD)]


def test_an_exit_about_which_nothing_is_known_counts_once_and_makes_no_suspect() -> None:
    quarantine = Quarantine(60.0)
    quarantine.unknown = True
    quarantine.report_arrived(0.0)
    assert quarantine.judge(1, 1) is Verdict.FREE
    assert quarantine.killed(1, 0.0) == 2
    assert quarantine.killed(1, 0.0) == 3
    assert quarantine.judge(1, LIMIT) is Verdict.CONDEMNED


def test_trials_are_rarer_the_more_often_a_message_was_in_hand() -> None:
    assert [wait_secs(count) for count in (0, 1, 2, 3, 7, 8, 10**6)] == [
        0.5, 0.5, 1.0, 2.0, 32.0, 60.0, 60.0,
    ]  # fmt: skip


def test_the_quarantine_ends_after_a_quiet_period() -> None:
    quarantine = quarantine_with(1)
    keys_until(quarantine, 1.0)
    assert not quarantine.end_when_due(ACTIVE_SECS - 1)
    assert quarantine.end_when_due(ACTIVE_SECS)
    assert not quarantine.is_active
    assert quarantine.judge(1, LIMIT) is Verdict.FREE
    quarantine.lost(5000.0)
    assert quarantine.end_when_due(5000.0 + LOSS_ACTIVE_SECS)
