import plain
import pytest
import side_input
from events import Auction, Bid, Generator, Person, is_bid
from nexmark import build
from queries import BY_THE_CLOCK, QUERIES
from squall.testing import FeederSpout, TopologyTest

COUNT = 2_000
RATE = 100  # 20 seconds of events
EVENTS = [Generator(rate=RATE).event(n) for n in range(COUNT)]
CLOSING = list(Generator(rate=RATE).closing())
LAST = min(event.at for event in CLOSING)
# Of each query: what its rows are. "all": every row counts. "last": a key and a value, of which the
# last counts. "ends": results of windows without a key, by their end.
KINDS = {
    **dict.fromkeys(["q4", "q6", "q9", "q15", "q16", "q17", "q18", "q19"], "last"),
    **dict.fromkeys(["q5", "q7"], "ends"),
}
WINDOWED = {"q5", "q7", "q8", "q11"}
# The last closing events end the auctions before them.
CLOSED = {"q6"}


class Feed(FeederSpout):
    outputs = ["event"]


def rows_of(query, events, closing=CLOSING, side=None):
    """What the query emits, once all windows before the closing events have ended."""
    with TopologyTest(build(query, Feed(), side=side).to_topology_builder()) as test:
        for n, event in enumerate(events):
            test.feed("events", [event], message_id=n)
            if n % 500 == 499:
                test.run_for(1)  # the watermark advances
        test.run_for(3)
        for event in closing:
            test.feed("events", [event])
        test.run_for(15)
        assert test.errors == []
        assert sorted(test.acked("events")) == list(range(len(events)))
        return [tuple(e.values) for e in test.emitted("answers")]


def found(query, rows):
    """The answers, without those to the closing events."""
    kind = KINDS.get(query, "all")
    if query == "q11":
        return plain.Counter(row for row in rows if row[0] > 0)
    if kind == "ends":
        return {end: value for _, value, _, end in rows if end < LAST}
    values = [row[0] if len(row) == 1 else row for row in rows]
    if kind == "last":
        return {key: tuple(v) if isinstance(v, Bid) else v for key, v in values}
    return plain.Counter(values)


@pytest.mark.parametrize("query", sorted(QUERIES.keys() - BY_THE_CLOCK))
def test_a_query_answers_what_a_plain_computation_does(query):
    events = [*EVENTS, *CLOSING]
    if query in WINDOWED:
        events = EVENTS
    elif query in CLOSED:
        events = events[:-3]
    expected = getattr(plain, query)(events)
    assert expected
    assert found(query, rows_of(query, EVENTS)) == expected


def test_with_few_events_a_second_auctions_have_their_last_price():
    """q6: none is open for longer than the lag."""
    slow = Generator(rate=10)
    events = [slow.event(n) for n in range(COUNT)]
    closing = list(slow.closing())
    expected = plain.q6([*events, *closing[:3]])
    assert found("q6", rows_of("q6", events, closing)) == expected


def test_bids_are_joined_with_the_table_in_the_file(tmp_path):
    """q13: bids whose key is not in the table are left out."""
    path = tmp_path / "side.csv"
    side_input.write(path, 1_010)
    assert side_input.read(str(path)) == {key: f"side-{key}" for key in range(1_010)}
    path.write_text(path.read_text().replace("1001,side-1001\n", "1001,other\n"))
    side_input.read.cache_clear()
    rows = found("q13", rows_of("q13", EVENTS, closing=[], side=str(path)))
    names = {f"side-{key}": f"side-{key}" for key in range(1_010)} | {"side-1001": "other"}
    everything = plain.q13(EVENTS)
    expected = {(*row[:-1], names[row[-1]]): n for row, n in everything.items() if row[-1] in names}
    assert rows == expected
    assert 0 < len(expected) < len(everything)
    assert "other" in {row[-1] for row in rows}


def test_bids_are_counted_in_windows_of_the_clock():
    """q12: events that come in three windows of ten seconds each."""
    windows = [EVENTS[:700], EVENTS[700:1_500], EVENTS[1_500:]]
    with TopologyTest(build("q12", Feed()).to_topology_builder()) as test:
        for events in windows:
            for event in events:
                test.feed("events", [event], message_id=event)
            test.run_for(10)
        assert len(test.acked("events")) == COUNT
        rows = [tuple(e.values) for e in test.emitted("answers")]
    first = min(start for _, _, start, _ in rows)
    assert all(end - start == 10_000 for _, _, start, end in rows)
    assert plain.q12(windows) == plain.Counter(
        (bidder, count, (start - first) / 10_000) for bidder, count, start, _ in rows
    )


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
