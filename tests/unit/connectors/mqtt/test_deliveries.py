"""The unacknowledged messages of an MQTT session."""

from __future__ import annotations

from collections.abc import Hashable

from squall_connectors.mqtt.deliveries import Deliveries


def deliver(deliveries: Deliveries, packet_id: int, text: str, *, dup: bool = False) -> Hashable:
    return deliveries.delivered(packet_id, "topic", text.encode(), dup=dup)


def test_what_is_done_is_acknowledged_in_the_order_of_delivery() -> None:
    deliveries = Deliveries("s")
    one, two, three = (deliver(deliveries, number, str(number)) for number in (5, 6, 7))
    deliveries.done(three)
    deliveries.done(two)
    assert deliveries.acknowledgeable() == []
    deliveries.done(one)
    assert deliveries.acknowledgeable() == [5, 6, 7]
    assert len(deliveries) == 0


def test_a_message_that_comes_again_keeps_its_id_and_what_became_of_it() -> None:
    deliveries = Deliveries("s")
    one, two = deliver(deliveries, 1, "1"), deliver(deliveries, 2, "2")
    deliveries.done(two)
    deliveries.connected(session_present=True)
    assert deliver(deliveries, 1, "1", dup=True) == one
    assert deliver(deliveries, 2, "2", dup=True) == two
    assert deliveries.is_done(two)
    assert not deliveries.is_done(one)
    deliveries.done(one)
    assert deliveries.acknowledgeable() == [1, 2]


def test_nothing_is_acknowledged_that_the_new_connection_has_not_delivered() -> None:
    deliveries = Deliveries("s")
    one = deliver(deliveries, 1, "1")
    deliveries.connected(session_present=True)
    deliveries.done(one)
    assert deliveries.acknowledgeable() == []
    deliver(deliveries, 1, "1", dup=True)
    assert deliveries.acknowledgeable() == [1]


def test_a_new_session_forgets_all() -> None:
    deliveries = Deliveries("s")
    one = deliver(deliveries, 1, "1")
    deliveries.connected(session_present=False)
    deliveries.done(one)
    assert deliveries.acknowledgeable() == []
    assert len(deliveries) == 0


def test_a_new_message_under_a_packet_id_in_use_is_another_message() -> None:
    deliveries = Deliveries("s")
    one = deliver(deliveries, 1, "1")
    deliveries.connected(session_present=True)
    other = deliver(deliveries, 1, "other")
    assert other != one
    deliveries.done(one)  # the broker no longer knows it
    assert deliveries.acknowledgeable() == []
    assert not deliveries.is_done(other)
    deliveries.done(other)
    assert deliveries.acknowledgeable() == [1]


def test_a_duplicate_of_another_content_is_another_message() -> None:
    deliveries = Deliveries("s")
    one = deliver(deliveries, 1, "1")
    assert deliver(deliveries, 1, "2", dup=True) != one


def test_a_record_of_a_lost_session_keeps_its_id_until_it_is_done() -> None:
    deliveries = Deliveries("s")
    one = deliver(deliveries, 1, "1")
    deliveries.connected(session_present=False)
    other = deliver(deliveries, 1, "other")
    assert other != one
    deliveries.done(one)
    assert deliveries.acknowledgeable() == []
    deliveries.done(other)
    assert deliveries.acknowledgeable() == [1]
    assert deliver(deliveries, 1, "third") == one  # it is free again


def test_a_record_whose_packet_id_was_used_twice_since_keeps_its_id() -> None:
    deliveries = Deliveries("s")
    one = deliver(deliveries, 1, "1")
    second = deliver(deliveries, 1, "2")
    deliveries.done(second)
    assert deliveries.acknowledgeable() == [1]
    assert deliver(deliveries, 1, "3") not in (one, second)
