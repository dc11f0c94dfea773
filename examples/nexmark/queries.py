"""The queries of Nexmark as streams: each takes the stream of events and returns its answers.

A query whose answer grows or changes with each event emits a new row each time; the last row of a
key counts.
"""

import datetime as dt
import re
from bisect import bisect
from dataclasses import dataclass
from functools import lru_cache, partial
from operator import attrgetter, itemgetter
from typing import NamedTuple

import side_input
from events import LONGEST_SECS, Auction, Bid, Person, at, is_auction, is_bid, is_person

from squall.windows import session, sliding, tumbling

RATE = 0.908  # euros for a dollar
RANKS = (10_000, 1_000_000)  # cents: bids below the first, below the second, and all others
CHANNELS = {"apple": "0", "google": "1", "facebook": "2", "baidu": "3"}
CHANNEL_ID = re.compile(r"(?:&|^)channel_id=([^&]*)")


def bids_of(events):
    return events.filter(is_bid)


def of_auction(event):
    """The auction that an auction or a bid is about."""
    return event.id if type(event) is Auction else event.auction


def is_auction_or_bid(event):
    return type(event) is not Person


def is_auction_or_person(event):
    return type(event) is not Bid


# -- one event after the other --


def q0(events):
    """Pass through: all bids."""
    return bids_of(events).map(row)


def row(bid):
    return bid.auction, bid.bidder, bid.price, bid.at, bid.extra


def q1(events):
    """Currency conversion: prices in euros."""
    return bids_of(events).map(in_euros)


def in_euros(bid):
    return bid.auction, bid.bidder, RATE * bid.price, bid.at, bid.extra


def q2(events):
    """Selection: bids for some auctions."""
    return bids_of(events).filter(partial(is_multiple, 123)).map(attrgetter("auction", "price"))


def is_multiple(number, bid):
    return bid.auction % number == 0


def q10(events):
    """Log to files: bids with the folders of their day and minute."""
    return bids_of(events).map(with_folder)


def with_folder(bid):
    return (*row(bid), *folder_of(bid.at // 60_000))


@lru_cache(maxsize=1_000)
def folder_of(minute):
    """The day and the minute of it, of a minute since the epoch."""
    when = dt.datetime.fromtimestamp(60 * minute, dt.UTC).isoformat()
    return when[:10], when[11:16]


def q13(events, side=None):
    """Join with a bounded table, which is in a file."""
    return bids_of(events).flat_map(partial(with_side, side or side_input.made()))


def with_side(side, bid):
    found = side_input.read(side).get(bid.auction % side_input.KEYS)
    return [] if found is None else [(*row(bid), found)]


def q14(events):
    """Calculation: dear bids with the time of day, and how many letters c they have."""
    return bids_of(events).map(calculated).filter(is_dear)


def calculated(bid):
    hour = bid.at // 3_600_000 % 24  # in UTC
    if 8 <= hour <= 18:
        part = "dayTime"
    elif hour <= 6 or hour >= 20:
        part = "nightTime"
    else:
        part = "otherTime"
    return bid.auction, bid.bidder, RATE * bid.price, part, bid.at, bid.extra.count("c")


def is_dear(calculated_bid):
    return 1_000_000 < calculated_bid[2] < 50_000_000


def q21(events):
    """Channel ids: of well-known channels, or from the address."""
    return bids_of(events).map(with_channel_id).filter(itemgetter(4))


def with_channel_id(bid):
    found = CHANNELS.get(bid.channel.lower())
    if found is None:
        match = CHANNEL_ID.search(bid.url)
        found = match[1] if match else None
    return bid.auction, bid.bidder, bid.price, bid.channel, found


def q22(events):
    """The folders in the address of a bid."""
    return bids_of(events).map(with_parts)


def with_parts(bid):
    return bid.auction, bid.bidder, bid.price, bid.channel, *bid.url.split("/")[3:6]


# -- joins without windows --


def q3(events):
    """Local item suggestion: who sells in one category in three states."""
    mine = events.filter(is_auction_or_person).filter(is_local)
    return mine.key_by(of_seller).process(sellers)


def is_local(event):
    if type(event) is Person:
        return event.state in ("OR", "ID", "CA")
    return event.category == 10


def of_seller(event):
    return event.id if type(event) is Person else event.seller


def sellers(seller, event, state):
    person, waiting = state.get((None, []))
    if type(event) is Person:
        yield from (suggestion(event, auction) for auction in waiting)
        state.put((event, []))
    elif person is not None:
        yield suggestion(person, event.id)
    else:
        state.put((None, [*waiting, event.id]))


def suggestion(person, auction):
    return person.name, person.city, person.state, auction


def q4(events):
    """Average price for a category: of the winning bids so far."""
    prices = events.filter(is_auction_or_bid).key_by(of_auction).process(price_changes)
    return prices.key_by(itemgetter(0)).aggregate(no_average, add_change, average)


def price_changes(auction, event, state):
    """The category, the winning price before and now."""
    for won, before in winners(event, state):
        yield won.category, before.price if before else None, state.get()[1].price


def winners(event, state):
    """The auction and its winning bid before, if the event is a bid that wins."""
    if type(event) is Auction:
        state.put((event, None))
        return
    auction, best = state.get((None, None))
    if auction is None or not auction.at <= event.at <= auction.expires:
        return
    if best is None or event.price > best.price:
        state.put((auction, event))
        yield auction, best


def no_average():
    return 0, 0


def add_change(total, change):
    _, before, now = change
    return total[0] + now - (before or 0), total[1] + (before is None)


def average(total):
    return total[0] / total[1]


def q6(events):
    """Average selling price of a seller: of the last ten auctions that have closed."""
    prices = events.filter(is_auction_or_bid).key_by(of_auction).process(winning_prices)
    # The time of a price is when its auction closes. With the longest life of an auction as the
    # lag, the watermark is never ahead of the bids: a window that fires has all that were made.
    prices = prices.event_time(attrgetter("closes"), lag_secs=LONGEST_SECS)
    closed = prices.key_by(attrgetter("auction")).window(tumbling(secs=1)).reduce(higher)
    sold = closed.map(attrgetter("value"))
    return sold.key_by(attrgetter("seller")).aggregate(list, add_closed, average_price)


class Price(NamedTuple):
    """What an auction brings, as of its best bid so far."""

    closes: int
    auction: int
    seller: int
    price: int


def winning_prices(auction, event, state):
    for won, _ in winners(event, state):
        yield Price(won.expires, won.id, won.seller, event.price)


def higher(first, second):
    return max(first, second, key=attrgetter("price"))


def add_closed(last, price):
    return sorted([*last, price])[-10:]


def average_price(last):
    return sum(sold.price for sold in last) / len(last)


def q9(events):
    """Winning bids: each auction with its best bid so far."""
    return events.filter(is_auction_or_bid).key_by(of_auction).process(winning_bids)


def winning_bids(auction, event, state):
    for won, _ in winners(event, state):
        yield won.id, row(event)


def q20(events):
    """Bids with their auctions, in one category."""
    return events.filter(is_auction_or_bid).key_by(of_auction).process(with_auction)


def with_auction(auction, event, state):
    if type(event) is Auction:
        if event.category == 10:
            state.put(event)
    elif (found := state.get()) is not None:
        yield *row(event), found.item, found.seller


# -- windows --


def q5(events):
    """Hot items: the auctions with the most bids in ten seconds, every two seconds."""
    counts = bids_of(events).key_by(attrgetter("auction"))
    counts = counts.window(sliding(secs=10, every_secs=2)).count()
    return counts.window(tumbling(secs=2)).apply(hottest)


def hottest(counts):
    most = max(counted.value for counted in counts)
    return sorted((counted.key, most) for counted in counts if counted.value == most)


def q7(events):
    """Highest bids of ten seconds."""
    best = bids_of(events).key_by(attrgetter("auction")).window(tumbling(secs=10)).apply(highest)
    return best.window(tumbling(secs=10)).apply(highest_of_all)


def highest(bids):
    most = max(bid.price for bid in bids)
    return sorted(row(bid) for bid in bids if bid.price == most)


def highest_of_all(found):
    most = max(rows[0][2] for _, rows, _, _ in found)
    return sorted(one for _, rows, _, _ in found if rows[0][2] == most for one in rows)


def q8(events):
    """New users who sell something in the same ten seconds."""
    persons = events.filter(is_person).key_by(attrgetter("id"))
    auctions = events.filter(is_auction).key_by(attrgetter("seller"))
    return persons.co_group(auctions, tumbling(secs=10)).flat_map(new_sellers)


def new_sellers(grouped):
    persons, auctions = grouped.value
    return [(grouped.key, person.name, grouped.end_ms) for person in persons if auctions]


def q11(events):
    """User sessions: bids of a bidder without a pause of ten seconds."""
    return bids_of(events).key_by(attrgetter("bidder")).window(session(gap_secs=10)).count()


def q12(events):
    """Bids of a bidder in ten seconds of processing time."""
    bids = bids_of(events).map(attrgetter("bidder"))
    return bids.key_by().window(tumbling(secs=10)).count()


# -- running reports --


def day_of(bid):
    return bid.at // 86_400_000


def rank_of(bid):
    return bisect(RANKS, bid.price)


@dataclass
class Report:
    """Bids, bidders and auctions: of all, and of each rank of prices."""

    last: int
    bids: list
    bidders: list
    auctions: list


def new_report():
    return Report(0, [0] * 4, [set() for _ in range(4)], [set() for _ in range(4)])


def add_bid(report, bid):
    report.last = max(report.last, bid.at)
    for group in (0, 1 + rank_of(bid)):
        report.bids[group] += 1
        report.bidders[group].add(bid.bidder)
        report.auctions[group].add(bid.auction)
    return report


def shown(report):
    bidders, auctions = map(len, report.bidders), map(len, report.auctions)
    return (report.last, *report.bids, *bidders, *auctions)


def q15(events):
    """Bidding statistics of each day."""
    return bids_of(events).key_by(day_of).aggregate(new_report, add_bid, shown)


def q16(events):
    """The same for each channel."""
    return bids_of(events).key_by(of_channel).aggregate(new_report, add_bid, shown)


def of_channel(bid):
    return bid.channel, day_of(bid)


def q17(events):
    """Statistics of each auction: bids by rank, least, largest, average and sum of prices."""
    return bids_of(events).key_by(of_day).aggregate(no_prices, add_price, price_report)


def of_day(bid):
    return bid.auction, day_of(bid)


def no_prices():
    return (0, 0, 0), None, None, 0


def add_price(report, bid):
    ranks, least, largest, total = report
    ranks = [*ranks]
    ranks[rank_of(bid)] += 1
    least = bid.price if least is None else min(least, bid.price)
    largest = bid.price if largest is None else max(largest, bid.price)
    return ranks, least, largest, total + bid.price


def price_report(report):
    ranks, least, largest, total = report
    bids = sum(ranks)
    return bids, *ranks, least, largest, total / bids, total


def q18(events):
    """The last bid of each bidder for each auction."""
    return bids_of(events).key_by(attrgetter("bidder", "auction")).reduce(later)


def later(first, second):
    return second if second.at >= first.at else first


def q19(events):
    """The ten best bids for each auction."""
    return bids_of(events).key_by(attrgetter("auction")).aggregate(list, add_best)


def add_best(best, bid):
    if len(best) == 10 and bid.price <= best[-1][2]:
        return best  # as most bids are
    ranked = sorted([*best, row(bid)], key=itemgetter(2), reverse=True)
    return ranked[:10]


QUERIES = {
    name: query
    for name, query in sorted(globals().items(), key=lambda item: item[0][1:].zfill(2))
    if re.fullmatch(r"q\d+", name)
}


# Its windows are in processing time, as those of a stream without event time are.
BY_THE_CLOCK = {"q12"}


def answers(name, events, side=None):
    """The stream of answers to a query. `side` is the file of q13's table, as each worker finds it;
    None: one in the folder for temporary files."""
    if name == "q13":
        return q13(events.event_time(at), side)
    return QUERIES[name](events if name in BY_THE_CLOCK else events.event_time(at))
