"""Whether a complete epoch holds all work, on paper."""

from __future__ import annotations

from dataclasses import dataclass

from squall_engine.epochs.held_work import HeldWork


@dataclass
class Epochs:
    begun: int = 4
    confirmed: int = 4
    has_unconfirmed: bool = False


def test_work_is_held_by_an_epoch_that_began_after_it_and_whose_rows_are_written() -> None:
    held, driver = HeldWork(), Epochs()
    assert not held.is_held(driver, 7)
    driver.begun = 5
    assert not held.is_held(driver, 7)
    driver.confirmed, driver.has_unconfirmed = 5, True
    assert not held.is_held(driver, 7)
    driver.has_unconfirmed = False
    assert held.is_held(driver, 7)
    assert not held.is_held(driver, 8)  # more was done since


def test_an_epoch_that_was_under_way_when_the_work_was_seen_does_not_hold_it() -> None:
    held, driver = HeldWork(), Epochs(begun=5, confirmed=4)
    assert not held.is_held(driver, 7)
    driver.confirmed = 5
    assert not held.is_held(driver, 7)
    driver.begun = driver.confirmed = 6
    assert held.is_held(driver, 7)


def test_after_a_rollback_the_same_work_is_not_the_same() -> None:
    held = HeldWork()
    assert not held.is_held(Epochs(), 7)
    assert not held.is_held(Epochs(begun=6, confirmed=6), 7)
