"""A process that slept asks whether its tasks are still its own before it goes on."""

from __future__ import annotations

from squall_common.daemon.clock import ManualClock
from squall_worker.cluster.presence import Presence


def test_a_process_that_is_seen_often_enough_goes_on() -> None:
    presence = Presence(20.0, 100.0)
    assert all(presence.seen(now) for now in (100.0, 119.9, 120.0, 139.9))
    assert not presence.in_doubt


def test_a_sleep_as_long_as_a_session_timeout_is_a_doubt_until_a_later_reading_confirms() -> None:
    presence = Presence(20.0, 100.0)
    before = presence.doubt
    assert not presence.seen(120.0)
    assert presence.away_secs == 20.0
    assert not presence.seen(120.1), "being awake again confirms nothing"
    assert not presence.confirm(before), "a reading that began before the sleep"
    assert presence.in_doubt
    assert presence.confirm(presence.doubt)
    assert presence.seen(120.2)
    assert not presence.confirm(presence.doubt), "there is nothing to confirm"


def test_a_second_sleep_invalidates_a_reading_that_began_after_the_first() -> None:
    presence = Presence(20.0, 100.0)
    presence.seen(130.0)
    reading = presence.doubt
    presence.seen(160.0)
    assert not presence.confirm(reading)
    assert not presence.seen(160.1)


def test_a_suspended_machine_counts_as_asleep_though_its_monotonic_clock_stood() -> None:
    clock = ManualClock()
    presence = Presence(20.0, clock.boottime())
    before = clock.monotonic()
    clock.suspend(30.0)
    assert clock.monotonic() == before
    assert not presence.seen(clock.boottime())
