import plain
import pytest
from events import Auction, Bid, Generator, Person, is_bid
from nexmark import build
from queries import QUERIES
from squall.testing import FeederSpout, TopologyTest

COUNT = 2_000
RATE = 100  # 20 seconds of events
EVENTS = [Generator(rate=RATE).event(n) for n in range(COUNT)]
CLOSING = list(Generator(rate=RATE).closing())
LAST = min(event.at for event in CLOSING)
# Of each query: what its rows are. "all": every row counts. "last": a key and a value, of which the
# last counts. "ends": results of windows without a key, by their end.
KINDS = {
    **dict.fromkeys(["q4", "q9", "q15", "q16", "q17", "q18", "q19"], "last"),
    **dict.fromkeys(["q5", "q7"], "ends"),
}


WINDOWED = {"q5", "q7", "q8", "q11", "q12"}


class Feed(FeederSpout):
    outputs = ["event"]


def rows_of(query, events):
    """What the query emits, once all windows before the closing events have ended."""
    with TopologyTest(build(query, Feed()).to_topology_builder()) as test:
        for n, event in enumerate(events):
            test.feed("events", [event], message_id=n)
        test.run_for(3)
        for event in CLOSING:
            test.feed("events", [event])
        test.run_for(15)
        assert test.errors == []
        assert sorted(test.acked("events")) == list(range(len(events)))
        return [tuple(e.values) for e in test.emitted("answers")]


def found(query, rows):
    """The answers, without those to the closing events."""
    kind = KINDS.get(query, "all")
    if query == "q12":
        counts = plain.Counter()
        for bidder, count, _, _ in rows:
            counts[bidder] += count
        return plain.Counter({bidder: n for bidder, n in counts.items() if bidder > 0})
    if query == "q11":
        return plain.Counter(row for row in rows if row[0] > 0)
    if kind == "ends":
        return {end: value for _, value, _, end in rows if end < LAST}
    values = [row[0] if len(row) == 1 else row for row in rows]
    if kind == "last":
        return {key: tuple(v) if isinstance(v, Bid) else v for key, v in values}
    return plain.Counter(values)


@pytest.mark.parametrize("query", QUERIES)
def test_a_query_answers_what_a_plain_computation_does(query):
    events = EVENTS if query in WINDOWED else [*EVENTS, *CLOSING]
    expected = getattr(plain, query)(events)
    assert expected
    assert found(query, rows_of(query, EVENTS)) == expected


def test_the_proportions_are_those_of_nexmark():
    counts = plain.Counter(map(type, EVENTS))
    assert counts == {Person: COUNT // 50, Auction: 3 * COUNT // 50, Bid: 46 * COUNT // 50}


def test_an_event_is_the_same_whenever_it_is_made():
    again = Generator(rate=RATE)
    assert [again.event(n) for n in range(COUNT - 1, -1, -1)][::-1] == EVENTS
    assert Generator(seed=2, rate=RATE).event(7) != EVENTS[7]


def test_bids_are_for_auctions_that_exist():
    known = set()
    for event in EVENTS:
        if isinstance(event, Auction):
            known.add(event.id)
        elif is_bid(event):
            assert event.auction in known
            assert event.price > 0
