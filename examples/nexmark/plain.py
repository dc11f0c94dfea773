"""The answers to the queries of Nexmark, worked out from a list of all events, without streams,
windows or state. `nexmark.py` must find the same.

Answers that change are those at the end. A window of `secs` that ends at `end` holds the times
after `end - secs` up to `end`, as windows in Squall do.
"""

import datetime as dt
import re
from collections import Counter, defaultdict

from events import Auction, Bid, Person

SECOND = 1000


def bids_in(events):
    return [event for event in events if type(event) is Bid]


def auctions_in(events):
    return [event for event in events if type(event) is Auction]


def persons_in(events):
    return [event for event in events if type(event) is Person]


def head(bid):
    return bid.auction, bid.bidder, bid.price, bid.at, bid.extra


def ends(at, secs, every):
    """The ends of the windows that hold a time."""
    length, step = secs * SECOND, every * SECOND
    first = -(-at // step) * step
    return range(first, at + length, step)


def q0(events):
    return Counter(map(head, bids_in(events)))


def q1(events):
    return Counter(
        (a, b, 0.908 * price, at, x) for a, b, price, at, x in map(head, bids_in(events))
    )


def q2(events):
    return Counter((b.auction, b.price) for b in bids_in(events) if b.auction % 123 == 0)


def q3(events):
    people = {p.id: p for p in persons_in(events) if p.state in ("OR", "ID", "CA")}
    return Counter(
        (people[a.seller].name, people[a.seller].city, people[a.seller].state, a.id)
        for a in auctions_in(events)
        if a.category == 10 and a.seller in people
    )


def winning(events):
    """The winning bid of each auction that has one."""
    auctions = {a.id: a for a in auctions_in(events)}
    best = {}
    for bid in bids_in(events):
        auction = auctions.get(bid.auction)
        if auction is not None and auction.at <= bid.at <= auction.expires:
            before = best.get(auction.id)
            if before is None or bid.price > before.price:
                best[auction.id] = bid
    return auctions, best


def q4(events):
    auctions, best = winning(events)
    prices = defaultdict(list)
    for id, bid in best.items():
        prices[auctions[id].category].append(bid.price)
    return {category: sum(found) / len(found) for category, found in prices.items()}


def q5(events):
    counts = defaultdict(Counter)
    for bid in bids_in(events):
        for end in ends(bid.at, 10, 2):
            counts[end][bid.auction] += 1
    return {
        end: sorted((auction, n) for auction, n in mine.items() if n == max(mine.values()))
        for end, mine in counts.items()
    }


def q6(events):
    auctions, best = winning(events)
    sold = defaultdict(list)
    for id, bid in best.items():
        sold[auctions[id].seller].append((auctions[id].expires, id, bid.price))
    last = {seller: sorted(mine)[-10:] for seller, mine in sold.items()}
    return {seller: sum(price for *_, price in ten) / len(ten) for seller, ten in last.items()}


def q7(events):
    windows = defaultdict(list)
    for bid in bids_in(events):
        for end in ends(bid.at, 10, 10):
            windows[end].append(bid)
    return {
        end: sorted(head(bid) for bid in bids if bid.price == max(b.price for b in bids))
        for end, bids in windows.items()
    }


def q8(events):
    sold = {(a.seller, end) for a in auctions_in(events) for end in ends(a.at, 10, 10)}
    return Counter(
        (p.id, p.name, end)
        for p in persons_in(events)
        for end in ends(p.at, 10, 10)
        if (p.id, end) in sold
    )


def q9(events):
    _, best = winning(events)
    return {id: head(bid) for id, bid in best.items()}


def q10(events):
    found = Counter()
    for bid in bids_in(events):
        when = dt.datetime.fromtimestamp(bid.at // 1000, dt.UTC)
        found[(*head(bid), f"{when:%Y-%m-%d}", f"{when:%H:%M}")] += 1
    return found


def q11(events):
    times = defaultdict(list)
    for bid in bids_in(events):
        times[bid.bidder].append(bid.at)
    found = Counter()
    for bidder, mine in times.items():
        start = last = mine[0]
        count = 0
        for at in [*mine, None]:
            if at is None or at - last >= 10 * SECOND:
                found[bidder, count, start, last + 10 * SECOND] += 1
                start, count = at, 0
            last = at
            count += 1
    return found


def q12(windows):
    """`windows` are the events that come in each window: answers have the number of theirs."""
    return Counter(
        (bidder, count, number)
        for number, events in enumerate(windows)
        for bidder, count in Counter(bid.bidder for bid in bids_in(events)).items()
    )


def q13(events):
    return Counter((*head(b), f"side-{b.auction % 10_000}") for b in bids_in(events))


def q14(events):
    found = Counter()
    for bid in bids_in(events):
        hour = dt.datetime.fromtimestamp(bid.at / 1000, dt.UTC).hour
        part = "otherTime"
        if 8 <= hour <= 18:
            part = "dayTime"
        elif hour not in (7, 19):
            part = "nightTime"
        price = 0.908 * bid.price
        if 1_000_000 < price < 50_000_000:
            letters = sum(letter == "c" for letter in bid.extra)
            found[bid.auction, bid.bidder, price, part, bid.at, letters] += 1
    return found


def rank(bid):
    if bid.price < 10_000:
        return 0
    return 1 if bid.price < 1_000_000 else 2


def report(bids):
    groups = [bids, *([b for b in bids if rank(b) == n] for n in range(3))]
    return (
        max(b.at for b in bids),
        *(len(group) for group in groups),
        *(len({b.bidder for b in group}) for group in groups),
        *(len({b.auction for b in group}) for group in groups),
    )


def by(key, bids):
    groups = defaultdict(list)
    for bid in bids:
        groups[key(bid)].append(bid)
    return groups


def day(bid):
    return bid.at // 86_400_000


def q15(events):
    return {key: report(bids) for key, bids in by(day, bids_in(events)).items()}


def q16(events):
    groups = by(lambda b: (b.channel, day(b)), bids_in(events))
    return {key: report(bids) for key, bids in groups.items()}


def q17(events):
    found = {}
    for key, bids in by(lambda b: (b.auction, day(b)), bids_in(events)).items():
        prices = [b.price for b in bids]
        ranks = [sum(rank(b) == n for b in bids) for n in range(3)]
        mean = sum(prices) / len(prices)
        found[key] = (len(bids), *ranks, min(prices), max(prices), mean, sum(prices))
    return found


def q18(events):
    return {(bid.bidder, bid.auction): tuple(bid) for bid in bids_in(events)}


def q19(events):
    return {
        auction: [head(bid) for bid in sorted(bids, key=lambda b: -b.price)[:10]]
        for auction, bids in by(lambda b: b.auction, bids_in(events)).items()
    }


def q20(events):
    auctions = {a.id: a for a in auctions_in(events) if a.category == 10}
    return Counter(
        (*head(b), auctions[b.auction].item, auctions[b.auction].seller)
        for b in bids_in(events)
        if b.auction in auctions
    )


def q21(events):
    known = {"apple": "0", "google": "1", "facebook": "2", "baidu": "3"}
    found = Counter()
    for bid in bids_in(events):
        ids = re.findall(r"&channel_id=(\d+)", bid.url)
        id = known.get(bid.channel.lower()) or (ids[0] if ids else None)
        if id is not None:
            found[bid.auction, bid.bidder, bid.price, bid.channel, id] += 1
    return found


def q22(events):
    return Counter(
        (b.auction, b.bidder, b.price, b.channel, *re.findall(r"[^/]+", b.url)[2:5])
        for b in bids_in(events)
    )
