from __future__ import annotations

import random

from squall_connectors.http.breaker import TABLE, Breaker, BreakerEvent, BreakerState


def test_it_opens_after_failures_in_a_row() -> None:
    breaker = Breaker(3, 10.0)
    breaker.failed(0.0)
    breaker.failed(0.0)
    breaker.succeeded()
    for _ in range(2):
        breaker.failed(0.0)
        assert breaker.may_ask(0.0)
    breaker.failed(1.0)
    assert breaker.state is BreakerState.OPEN
    assert not breaker.may_ask(10.9)


def test_one_request_finds_out_whether_the_service_is_back() -> None:
    breaker = Breaker(1, 10.0)
    breaker.failed(0.0)
    assert breaker.may_ask(10.0)
    assert not breaker.may_ask(10.0)
    breaker.failed(11.0)
    assert not breaker.may_ask(20.9)
    assert breaker.may_ask(21.0)
    breaker.succeeded()
    assert breaker.may_ask(21.0)
    assert breaker.may_ask(21.0)


def test_a_request_that_never_ends_does_not_keep_it_half_open() -> None:
    breaker = Breaker(1, 10.0)
    breaker.failed(0.0)
    assert breaker.may_ask(10.0)
    assert breaker.may_ask(20.0)


def test_its_parts_never_contradict_each_other() -> None:
    chance = random.Random(3)
    for _ in range(200):
        breaker, now = Breaker(chance.randrange(1, 4), 5.0), 1.0
        for _ in range(50):
            now += chance.random() * 4
            match chance.randrange(3):
                case 0:
                    breaker.may_ask(now)
                case 1:
                    breaker.succeeded()
                case 2:
                    breaker.failed(now)
            breaker.validate()


def test_every_state_can_be_left() -> None:
    left = {state for (state, _), following in TABLE.items() if following is not state}
    assert left == set(BreakerState)
    assert {event for _, event in TABLE} == set(BreakerEvent)
