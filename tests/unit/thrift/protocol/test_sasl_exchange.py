"""The table of a server's SASL exchange."""

from __future__ import annotations

import itertools

import pytest

from squall_thrift.protocol.sasl import SaslError, Status
from squall_thrift.protocol.sasl_exchange import RESPONSES_MAX, TABLE, Event, Exchange, State


def begun() -> Exchange:
    exchange = Exchange()
    exchange.received(Status.START)
    return exchange


def test_an_exchange_of_two_responses() -> None:
    exchange = Exchange()
    exchange.validate()
    exchange.received(Status.START)
    exchange.received(Status.OK)
    assert exchange.step(Event.CHALLENGED) is Status.OK
    exchange.received(Status.COMPLETE)
    assert exchange.step(Event.ACCEPTED) is Status.COMPLETE
    exchange.validate()
    assert exchange.decided


@pytest.mark.parametrize("status", [Status.OK, Status.BAD, Status.ERROR, Status.COMPLETE])
def test_it_begins_with_start(status: Status) -> None:
    with pytest.raises(SaslError, match="begins with START"):
        Exchange().received(status)


@pytest.mark.parametrize("status", [Status.START, Status.BAD, Status.ERROR])
def test_a_peer_that_gives_up_or_starts_again_is_hung_up_on(status: Status) -> None:
    with pytest.raises(SaslError, match="gave up"):
        begun().received(status)


def test_a_peer_has_a_bounded_number_of_responses() -> None:
    exchange = begun()
    for _ in range(RESPONSES_MAX):
        exchange.received(Status.OK)
        exchange.step(Event.CHALLENGED)
        exchange.validate()
    with pytest.raises(SaslError, match="in 6 responses"):
        exchange.received(Status.OK)


def test_every_order_of_events_is_in_the_table_or_refused_without_a_change() -> None:
    for events in itertools.product(Event, repeat=5):
        exchange = Exchange()
        for event in events:
            before = exchange.state
            if (before, event) in TABLE:
                exchange.step(event)
            else:
                with pytest.raises(SaslError, match="does not follow"):
                    exchange.step(event)
                assert exchange.state is before
            exchange.validate()


def test_what_is_decided_stays_decided() -> None:
    assert not [state for state, _ in TABLE if state in (State.ACCEPTED, State.REFUSED)]
