"""The events of Nexmark, an auction site: people join, put items up for auction, and bid.

Of 50 events one is a person, three are auctions and 46 are bids. Event `n` follows from the seed
and `n` alone, so it is the same in each run. The proportions and the favourites (hot auctions,
sellers and bidders) are those of Nexmark as Beam and Flink run it.
"""

import random
from typing import NamedTuple

PERSONS, AUCTIONS, EVENTS = 1, 3, 50  # of so many events
FIRST_ID = 1000
FIRST_CATEGORY, CATEGORIES = 10, 5
LONGEST_SECS = 60  # that an auction is open, at few events a second; at 100 it is 33 s
IN_FLIGHT, ACTIVE = 100, 1000  # auctions and people that bids are for and from
STATES = ["AZ", "CA", "ID", "OR", "WA", "WY"]
CITIES = ["Phoenix", "Los Angeles", "San Francisco", "Boise", "Portland", "Bend", "Redmond"]
FIRST_NAMES = ["Peter", "Paul", "Luke", "John", "Saul", "Vicky", "Kate", "Julie", "Sarah", "Deiter"]
LAST_NAMES = ["Shultz", "Abrams", "Spencer", "White", "Bartels", "Walton", "Smith", "Jones"]
HOT_CHANNELS = ["Google", "Facebook", "Baidu", "Apple"]
LETTERS = "abcdefghijklmnopqrstuvwxyz"


class Person(NamedTuple):
    id: int
    name: str
    email: str
    card: str
    city: str
    state: str
    at: int  # milliseconds since the epoch
    extra: str


class Auction(NamedTuple):
    id: int
    item: str
    description: str
    initial_bid: int
    reserve: int
    at: int
    expires: int
    seller: int
    category: int
    extra: str


class Bid(NamedTuple):
    auction: int
    bidder: int
    price: int  # cents
    channel: str
    url: str
    at: int
    extra: str


def is_person(event):
    return type(event) is Person


def is_auction(event):
    return type(event) is Auction


def is_bid(event):
    return type(event) is Bid


def at(event):
    return event.at


class Generator:
    """Makes the events of a site at which `rate` happen each second, from `start_ms` on."""

    def __init__(self, seed=1, rate=1000, start_ms=1_700_000_000_000):
        self.seed = seed
        self.rate = rate
        self.start_ms = start_ms

    def event(self, n):
        """Event number `n`."""
        chance = random.Random(self.seed * 1_000_003 + n)
        at = self.start_ms + n * 1000 // self.rate
        epoch, place = divmod(n, EVENTS)
        if place < PERSONS:
            return self._person(FIRST_ID + epoch * PERSONS + place, at, chance)
        if place < PERSONS + AUCTIONS:
            return self._auction(FIRST_ID + epoch * AUCTIONS + place - PERSONS, epoch, at, chance)
        return self._bid(epoch, at, chance)

    def closing(self):
        """Events so much later that all windows before them end: two of each kind."""
        for hours in (100, 200):
            at = self.start_ms + hours * 3_600_000
            chance = random.Random(hours)
            yield self._person(-hours, at, chance)
            yield self._auction(-hours, 0, at, chance)
            yield self._bid(0, at, chance)._replace(auction=-hours, bidder=-hours, price=0)

    def _person(self, id, at, chance):
        first, last = chance.choice(FIRST_NAMES), chance.choice(LAST_NAMES)
        card = " ".join(f"{chance.randrange(10_000):04}" for _ in range(4))
        email = f"{first}.{last}@{word(chance)}.example".lower()
        city, state = chance.choice(CITIES), chance.choice(STATES)
        return Person(id, f"{first} {last}", email, card, city, state, at, word(chance, 20))

    def _auction(self, id, epoch, at, chance):
        price = price_of(chance)
        open_ms = 2 * IN_FLIGHT * EVENTS // AUCTIONS * 1000 // self.rate
        expires = at + 1 + chance.randrange(min(open_ms, LONGEST_SECS * 1000 - 1))
        return Auction(
            id,
            word(chance),
            word(chance, 30),
            price,
            price + price_of(chance),
            at,
            expires,
            FIRST_ID + some(epoch * PERSONS, ACTIVE, 100, 4, chance),
            FIRST_CATEGORY + chance.randrange(CATEGORIES),
            word(chance, 20),
        )

    def _bid(self, epoch, at, chance):
        auction = FIRST_ID + some(epoch * AUCTIONS + AUCTIONS - 1, IN_FLIGHT, 100, 2, chance)
        bidder = FIRST_ID + some(epoch * PERSONS, ACTIVE, 100, 4, chance)
        if chance.random() < 0.5:
            channel = chance.choice(HOT_CHANNELS)
            url = address(chance)
        else:
            number = chance.randrange(10_000)
            channel = f"channel-{number}"
            url = f"{address(chance)}&channel_id={number}" if number % 10 else address(chance)
        return Bid(auction, bidder, price_of(chance), channel, url, at, word(chance, 20))


def some(last, active, hot, ratio, chance):
    """A number up to `last`: mostly the favourite, which changes every `hot` numbers; otherwise
    one of the last `active`."""
    if chance.randrange(ratio) > 0:
        return last // hot * hot
    return last - chance.randrange(min(active, last + 1))


def price_of(chance):
    """Cents; every power of ten is as likely as the others."""
    return round(10 ** (chance.random() * 6) * 100)


def word(chance, longest=10):
    return "".join(chance.choices(LETTERS, k=chance.randint(3, longest)))


def address(chance):
    path = "/".join(word(chance, 5) for _ in range(3))
    return f"https://www.nexmark.example/{path}/item.htm?query=1"
