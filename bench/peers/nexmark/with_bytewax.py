"""Some queries of Nexmark on Bytewax: one worker, no recovery store, events in batches of 1,000.

    python with_bytewax.py EVENTS_FILE QUERY RESULT_FILE

It runs in Bytewax's own environment, with `examples/nexmark` on the path for `events`, and imports
nothing of Squall; answers go to RESULT_FILE with the seconds of CPU and of the clock.
"""

from __future__ import annotations

import json
import re
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime, timedelta
from itertools import islice
from pathlib import Path
from typing import Any, get_type_hints

import bytewax.operators as op
import bytewax.operators.windowing as win
from bytewax.dataflow import Dataflow, Stream
from bytewax.inputs import DynamicSource, StatelessSourcePartition
from bytewax.outputs import DynamicSink, StatelessSinkPartition
from bytewax.testing import run_main
from events import Auction, Bid, Person

_BATCH = 1_000
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_CHANNELS = {"apple": "0", "google": "1", "facebook": "2", "baidu": "3"}
_CHANNEL_ID = re.compile(r"(?:&|^)channel_id=([^&]*)")


_KINDS: list[Callable[..., Any]] = [Person, Auction, Bid]
_TYPES = [list(get_type_hints(kind).values()) for kind in _KINDS]


def read(path: Path) -> list[Any]:
    found = []
    for line in path.read_text().splitlines():
        kind, _, *fields = line.split("\t")
        make = _KINDS[int(kind)]
        types = _TYPES[int(kind)]
        found.append(make(*(of(text) for of, text in zip(types, fields, strict=True))))
    return found


class _Partition(StatelessSourcePartition):
    def __init__(self, events: Iterator[Any]) -> None:
        self._events = events

    def next_batch(self) -> list[Any]:
        batch = list(islice(self._events, _BATCH))
        if not batch:
            raise StopIteration
        return batch


class Events(DynamicSource):
    def __init__(self, events: Iterable[Any]) -> None:
        self._events = events

    def build(self, step_id: str, worker_index: int, worker_count: int) -> _Partition:
        return _Partition(iter(self._events))


class _Collect(StatelessSinkPartition):
    def __init__(self, answers: list[Any]) -> None:
        self._answers = answers

    def write_batch(self, items: list[Any]) -> None:
        self._answers.extend(items)


class Answers(DynamicSink):
    def __init__(self, answers: list[Any]) -> None:
        self._answers = answers

    def build(self, step_id: str, worker_index: int, worker_count: int) -> _Collect:
        return _Collect(self._answers)


def _is_bid(event: Any) -> bool:
    return type(event) is Bid


def _bids(events: Stream[Any]) -> Stream[Any]:
    return op.filter("bids", events, _is_bid)


def _head(bid: Bid) -> tuple[Any, ...]:
    return bid.auction, bid.bidder, bid.price, bid.at, bid.extra


def q0(events: Stream[Any]) -> Stream[Any]:
    return op.map("head", _bids(events), _head)


def q1(events: Stream[Any]) -> Stream[Any]:
    def euros(bid: Bid) -> tuple[Any, ...]:
        return bid.auction, bid.bidder, 0.908 * bid.price, bid.at, bid.extra

    return op.map("euros", _bids(events), euros)


def q2(events: Stream[Any]) -> Stream[Any]:
    some = op.filter("some", _bids(events), lambda bid: bid.auction % 123 == 0)
    return op.map("price", some, lambda bid: (bid.auction, bid.price))


def q3(events: Stream[Any]) -> Stream[Any]:
    def local(event: Any) -> bool:
        if type(event) is Person:
            return event.state in ("OR", "ID", "CA")
        return type(event) is Auction and event.category == 10

    def sellers(state: Any, event: Any) -> tuple[Any, list[Any]]:
        person, waiting = state or (None, [])
        if type(event) is Person:
            return (event, []), [(*_place(event), auction) for auction in waiting]
        if person is not None:
            return (person, []), [(*_place(person), event.id)]
        return (None, [*waiting, event.id]), []

    mine = op.filter("local", events, local)
    keyed = op.key_on(
        "seller", mine, lambda event: str(event.id if type(event) is Person else event.seller)
    )
    return op.map("answer", op.stateful_flat_map("sellers", keyed, sellers), lambda pair: pair[1])


def _place(person: Person) -> tuple[str, str, str]:
    return person.name, person.city, person.state


def q9(events: Stream[Any]) -> Stream[Any]:
    def winning(state: Any, event: Any) -> tuple[Any, list[Any]]:
        auction, best = state or (None, None)
        if type(event) is Auction:
            return (event, None), []
        if auction is None or not auction.at <= event.at <= auction.expires:
            return (auction, best), []
        if best is None or event.price > best.price:
            return (auction, event), [(auction.id, _head(event))]
        return (auction, best), []

    some = op.filter("no persons", events, lambda event: type(event) is not Person)
    keyed = op.key_on(
        "auction", some, lambda event: str(event.id if type(event) is Auction else event.auction)
    )
    return op.map("answer", op.stateful_flat_map("winning", keyed, winning), lambda pair: pair[1])


def q11(events: Stream[Any]) -> Stream[Any]:
    # Its clock runs on between events, so that an event could be late without any wait.
    clock: Any = win.EventClock(
        lambda bid: _EPOCH + timedelta(milliseconds=bid.at), timedelta(seconds=30)
    )
    # Bytewax keeps a session open that touches the next one.
    sessions = win.SessionWindower(gap=timedelta(milliseconds=9_999))
    keyed = op.key_on("bidder", _bids(events), lambda bid: str(bid.bidder))
    counted = win.fold_window(
        "count", keyed, clock, sessions, lambda: 0, lambda n, _: n + 1, lambda a, b: a + b
    )
    return op.map("answer", counted.down, lambda pair: (int(pair[0]), pair[1][1]))


def q17(events: Stream[Any]) -> Stream[Any]:
    def report(state: Any, bid: Bid) -> tuple[Any, Any]:
        low, middle, high, least, largest, total = state or (0, 0, 0, bid.price, bid.price, 0)
        low += bid.price < 10_000
        middle += 10_000 <= bid.price < 1_000_000
        high += bid.price >= 1_000_000
        total += bid.price
        least, largest = min(least, bid.price), max(largest, bid.price)
        bids = low + middle + high
        answer = (bids, low, middle, high, least, largest, total / bids, total)
        return (low, middle, high, least, largest, total), answer

    keyed = op.key_on("day", _bids(events), lambda bid: f"{bid.auction} {bid.at // 86_400_000}")
    found = op.stateful_map("report", keyed, report)
    return op.map("answer", found, lambda pair: (tuple(map(int, pair[0].split())), pair[1]))


def q21(events: Stream[Any]) -> Stream[Any]:
    def with_id(bid: Bid) -> tuple[Any, ...]:
        found = _CHANNELS.get(bid.channel.lower())
        if found is None:
            match = _CHANNEL_ID.search(bid.url)
            found = match[1] if match else None
        return bid.auction, bid.bidder, bid.price, bid.channel, found

    return op.filter("known", op.map("id", _bids(events), with_id), lambda row: row[4] is not None)


def q22(events: Stream[Any]) -> Stream[Any]:
    def parts(bid: Bid) -> tuple[Any, ...]:
        return bid.auction, bid.bidder, bid.price, bid.channel, *bid.url.split("/")[3:6]

    return op.map("parts", _bids(events), parts)


QUERIES = {query.__name__: query for query in (q0, q1, q2, q3, q9, q11, q17, q21, q22)}


def main() -> None:
    events = read(Path(sys.argv[1]))
    answers: list[Any] = []
    flow = Dataflow("nexmark")
    found = QUERIES[sys.argv[2]](op.input("events", flow, Events(events)))
    op.output("answers", found, Answers(answers))
    cpu, wall = time.process_time(), time.monotonic()
    run_main(flow)
    cpu, wall = time.process_time() - cpu, time.monotonic() - wall
    result = {"cpu_secs": cpu, "wall_secs": wall, "answers": answers}
    Path(sys.argv[3]).write_text(json.dumps(result))


if __name__ == "__main__":
    main()
