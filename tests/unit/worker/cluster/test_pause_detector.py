"""A process that slept asks whether its tasks are still its own before it goes on."""

from __future__ import annotations

from squall_common.daemon.clock import ManualClock
from squall_worker.cluster.pause_detector import PauseDetector


def test_a_process_that_is_seen_often_enough_goes_on() -> None:
    detector = PauseDetector(20.0, 100.0)
    assert all(detector.seen(now) for now in (100.0, 119.9, 120.0, 139.9))
    assert not detector.in_doubt


def test_a_sleep_as_long_as_a_session_timeout_is_a_doubt_until_a_later_reading_confirms() -> None:
    detector = PauseDetector(20.0, 100.0)
    before = detector.doubt
    assert not detector.seen(120.0)
    assert detector.away_secs == 20.0
    assert not detector.seen(120.1), "being awake again confirms nothing"
    assert not detector.confirm(before), "a reading that began before the sleep"
    assert detector.in_doubt
    assert detector.confirm(detector.doubt)
    assert detector.seen(120.2)
    assert not detector.confirm(detector.doubt), "there is nothing to confirm"


def test_a_second_sleep_invalidates_a_reading_that_began_after_the_first() -> None:
    detector = PauseDetector(20.0, 100.0)
    detector.seen(130.0)
    reading = detector.doubt
    detector.seen(160.0)
    assert not detector.confirm(reading)
    assert not detector.seen(160.1)


def test_a_suspended_machine_counts_as_asleep_though_its_monotonic_clock_stood() -> None:
    clock = ManualClock()
    detector = PauseDetector(20.0, clock.boottime())
    before = clock.monotonic()
    clock.suspend(30.0)
    assert clock.monotonic() == before
    assert not detector.seen(clock.boottime())
