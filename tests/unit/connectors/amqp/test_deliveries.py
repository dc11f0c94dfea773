"""The unacknowledged deliveries of an AMQP channel."""

from __future__ import annotations

from squall_connectors.amqp.deliveries import Deliveries


def test_a_prefix_is_acknowledged_at_once_and_the_others_by_themselves() -> None:
    deliveries = Deliveries("q")
    deliveries.connected()
    ids = [deliveries.delivered(tag, None, redelivered=False) for tag in range(1, 7)]
    assert deliveries.done([ids[4], ids[2]]) == [(5, False), (3, False)]
    assert deliveries.done([ids[0], ids[1]]) == [(2, True)]
    # What is acknowledged already is not counted again.
    assert deliveries.done([ids[3]]) == [(4, True)]
    assert deliveries.done([ids[5]]) == [(6, True)]
    assert deliveries.done([ids[5]]) == []


def test_deliveries_of_a_channel_before_are_not_acknowledged() -> None:
    deliveries = Deliveries("q")
    deliveries.connected()
    old = deliveries.delivered(1, None, redelivered=False)
    deliveries.connected()
    new = deliveries.delivered(1, None, redelivered=True)
    assert new != old
    assert deliveries.done([old]) == []
    assert deliveries.done([new]) == [(1, True)]


def test_a_message_with_an_id_is_recognized_on_the_next_channel() -> None:
    deliveries = Deliveries("q")
    deliveries.connected()
    first = deliveries.delivered(1, "a", redelivered=False)
    deliveries.connected()
    assert deliveries.delivered(7, "a", redelivered=True) == first
    assert deliveries.done([first]) == [(7, True)]


def test_messages_that_share_an_id_are_two() -> None:
    deliveries = Deliveries("q")
    deliveries.connected()
    first = deliveries.delivered(1, "a", redelivered=False)
    second = deliveries.delivered(2, "a", redelivered=False)
    assert first != second
    deliveries.connected()
    assert deliveries.delivered(1, "a", redelivered=False) != first
    assert deliveries.done([second]) == []
