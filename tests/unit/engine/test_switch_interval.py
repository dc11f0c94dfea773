"""The interpreter's switch interval, for all who wish for a shorter one."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest

from squall_engine.switch_interval import SwitchInterval


@pytest.fixture
def interval() -> Iterator[SwitchInterval]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(0.005)
    yield SwitchInterval()
    sys.setswitchinterval(before)


def now() -> float:
    return round(sys.getswitchinterval(), 6)


def test_the_shortest_wish_holds_until_it_ends(interval: SwitchInterval) -> None:
    longer, shorter = interval.shorten(0.002), interval.shorten(0.0007)
    assert now() == 0.0007
    shorter.end()
    assert now() == 0.002
    longer.end()
    assert now() == 0.005


def test_a_wish_ends_once(interval: SwitchInterval) -> None:
    first, second = interval.shorten(0.001), interval.shorten(0.001)
    first.end()
    first.end()
    assert now() == 0.001
    second.end()
    sys.setswitchinterval(0.003)
    second.end()
    assert now() == 0.003


def test_a_shorter_interval_of_the_program_stays(interval: SwitchInterval) -> None:
    sys.setswitchinterval(0.0002)
    wish = interval.shorten(0.001)
    assert now() == 0.0002
    wish.end()
    assert now() == 0.0002


def test_what_the_program_sets_meanwhile_is_what_it_has_afterwards(
    interval: SwitchInterval,
) -> None:
    wish = interval.shorten(0.001)
    sys.setswitchinterval(0.01)
    other = interval.shorten(0.002)
    assert now() == 0.001
    wish.end()
    assert now() == 0.002
    other.end()
    assert now() == 0.01


def test_an_interval_that_is_no_whole_microsecond_is_still_ours(interval: SwitchInterval) -> None:
    wish = interval.shorten(0.0012345678)
    wish.end()
    assert now() == 0.005
