"""The queries of Nexmark in Flink's SQL, with the answers of `examples/nexmark/plain.py`.

Flink's windows hold the times from their start up to, and without, their end; those of Squall hold
their end and not their start. The column `moment`, Flink's time of an event, is therefore a
millisecond before the event.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Row = Sequence[str]

VIEWS = [
    "CREATE TEMPORARY VIEW person AS SELECT p.id, p.name, p.email, p.card, p.city, p.state,"
    " p.at_ms, p.extra, moment FROM events WHERE kind = 0",
    "CREATE TEMPORARY VIEW auction AS SELECT a.id, a.item, a.description, a.initial_bid,"
    " a.reserve, a.at_ms, a.expires, a.seller, a.category, a.extra, moment FROM events"
    " WHERE kind = 1",
    "CREATE TEMPORARY VIEW bid AS SELECT b.auction, b.bidder, b.price, b.channel, b.url, b.at_ms,"
    " b.extra, moment FROM events WHERE kind = 2",
    "CREATE TEMPORARY VIEW valid AS SELECT A.id, A.category, B.auction, B.bidder, B.price,"
    " B.at_ms, B.extra FROM auction A JOIN bid B ON A.id = B.auction"
    " WHERE B.at_ms BETWEEN A.at_ms AND A.expires",
]
_HEAD = "auction, bidder, price, at_ms, extra"
_UTC = "TIMESTAMPADD(SECOND, CAST(at_ms / 1000 AS INT), TIMESTAMP '1970-01-01 00:00:00')"
_RANKS = ("price < 10000", "price >= 10000 AND price < 1000000", "price >= 1000000")
_BIDS = ", ".join(f"COUNT(*) FILTER (WHERE {rank})" for rank in _RANKS)


def _distinct(name: str) -> str:
    ranks = (f"COUNT(DISTINCT {name}) FILTER (WHERE {rank})" for rank in _RANKS)
    return f"COUNT(DISTINCT {name}), {', '.join(ranks)}"


_REPORT = f"MAX(at_ms), COUNT(*), {_BIDS}, {_distinct('bidder')}, {_distinct('auction')}"
_DAY = "at_ms / 86400000"


def _head(row: Row) -> tuple[Any, ...]:
    return int(row[0]), int(row[1]), int(row[2]), int(row[3]), row[4]


def _numbers(row: Row) -> tuple[int, ...]:
    return tuple(map(int, row))


def _last(of: Callable[[Row], tuple[Any, Any]]) -> Callable[[list[Row]], Any]:
    return lambda rows: dict(map(of, rows))


def _all(of: Callable[[Row], Any]) -> Callable[[list[Row]], Any]:
    return lambda rows: Counter(map(of, rows))


def _by_end(of: Callable[[Row], Any]) -> Callable[[list[Row]], Any]:
    def ends(rows: list[Row]) -> Any:
        found: dict[int, list[Any]] = {}
        for end, *row in rows:
            found.setdefault(int(end), []).append(of(row))
        return {end: sorted(mine) for end, mine in found.items()}

    return ends


def _best(rows: list[Row]) -> Any:
    found: dict[int, list[int]] = {}
    for auction, price in map(_numbers, rows):
        found.setdefault(auction, []).append(price)
    return {auction: sorted(prices, reverse=True) for auction, prices in found.items()}


def _same(answers: Any) -> Any:
    return answers


@dataclass(frozen=True, slots=True)
class Query:
    """SQL on one line; what its rows (without those that were withdrawn) say; and the same of the
    plain answers, where not all of them can be compared."""

    sql: str
    read: Callable[[list[Row]], Any]
    plain: Callable[[Any], Any] = _same


def _millis(column: str) -> str:
    """Milliseconds since the epoch of a time of whole seconds."""
    return (
        f"CAST(TIMESTAMPDIFF(SECOND, TIMESTAMP '1970-01-01 00:00:00', {column}) AS BIGINT) * 1000"
    )


_HOP = "TABLE(HOP(TABLE bid, DESCRIPTOR(moment), INTERVAL '2' SECOND, INTERVAL '10' SECOND))"
_COUNTS = (
    f"SELECT auction, COUNT(*) AS n, window_start, window_end FROM {_HOP}"
    " GROUP BY auction, window_start, window_end"
)


def _tumble(table: str) -> str:
    return f"TABLE(TUMBLE(TABLE {table}, DESCRIPTOR(moment), INTERVAL '10' SECOND))"


QUERIES: Mapping[str, Query] = {
    "q0": Query(f"SELECT {_HEAD} FROM bid", _all(_head)),
    "q1": Query(
        "SELECT auction, bidder, CAST(0.908 AS DOUBLE) * price, at_ms, extra FROM bid",
        _all(lambda row: (int(row[0]), int(row[1]), float(row[2]), int(row[3]), row[4])),
    ),
    "q2": Query("SELECT auction, price FROM bid WHERE MOD(auction, 123) = 0", _all(_numbers)),
    "q3": Query(
        "SELECT P.name, P.city, P.state, A.id FROM auction A JOIN person P ON A.seller = P.id"
        " WHERE A.category = 10 AND P.state IN ('OR', 'ID', 'CA')",
        _all(lambda row: (*row[:3], int(row[3]))),
    ),
    "q4": Query(
        "SELECT category, AVG(CAST(best AS DOUBLE)) FROM (SELECT id, category, MAX(price) AS best"
        " FROM valid GROUP BY id, category) GROUP BY category",
        _last(lambda row: (int(row[0]), float(row[1]))),
    ),
    "q5": Query(
        f"SELECT {_millis('C.window_end')}, C.auction, C.n FROM ({_COUNTS}) C JOIN (SELECT MAX(n)"
        f" AS most, window_start, window_end FROM ({_COUNTS}) GROUP BY window_start, window_end) M"
        " ON C.window_start = M.window_start AND C.window_end = M.window_end AND C.n = M.most",
        _by_end(_numbers),
    ),
    "q7": Query(
        f"SELECT {_millis('B.window_end')}, {_HEAD} FROM (SELECT * FROM {_tumble('bid')}) B"
        f" JOIN (SELECT MAX(price) AS most, window_start, window_end FROM {_tumble('bid')}"
        " GROUP BY window_start, window_end) M ON B.window_start = M.window_start"
        " AND B.window_end = M.window_end AND B.price = M.most",
        _by_end(_head),
    ),
    "q8": Query(
        f"SELECT P.id, P.name, {_millis('P.window_end')} FROM (SELECT id, name, window_start,"
        f" window_end FROM {_tumble('person')} GROUP BY id, name, window_start, window_end) P JOIN"
        f" (SELECT seller, window_start, window_end FROM {_tumble('auction')} GROUP BY seller,"
        " window_start, window_end) A ON P.id = A.seller AND P.window_start = A.window_start"
        " AND P.window_end = A.window_end",
        _all(lambda row: (int(row[0]), row[1], int(row[2]))),
    ),
    "q9": Query(
        f"SELECT id, {_HEAD} FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY id"
        " ORDER BY price DESC, at_ms ASC) AS place FROM valid) WHERE place = 1",
        _last(lambda row: (int(row[0]), _head(row[1:]))),
    ),
    "q10": Query(
        f"SELECT {_HEAD}, DATE_FORMAT({_UTC}, 'yyyy-MM-dd'), DATE_FORMAT({_UTC}, 'HH:mm') FROM bid",
        _all(lambda row: (*_head(row), row[5], row[6])),
    ),
    "q11": Query(
        # Flink joins sessions that touch; those of Squall have to overlap.
        "SELECT bidder, COUNT(*) FROM TABLE(SESSION(TABLE bid PARTITION BY bidder,"
        " DESCRIPTOR(moment), INTERVAL '9.999' SECOND)) GROUP BY bidder, window_start, window_end",
        _all(_numbers),
        lambda sessions: _added(sessions, lambda session: session[:2]),
    ),
    "q14": Query(
        "SELECT * FROM (SELECT auction, bidder, CAST(0.908 AS DOUBLE) * price AS euros, CASE"
        f" WHEN HOUR({_UTC}) BETWEEN 8 AND 18 THEN 'dayTime' WHEN HOUR({_UTC}) IN (7, 19) THEN"
        " 'otherTime' ELSE 'nightTime' END, at_ms, CHAR_LENGTH(extra) - CHAR_LENGTH(REPLACE(extra,"
        " 'c', '')) FROM bid) WHERE euros > 1000000 AND euros < 50000000",
        _all(
            lambda row: (int(row[0]), int(row[1]), float(row[2]), row[3], int(row[4]), int(row[5]))
        ),
    ),
    "q15": Query(
        f"SELECT {_DAY}, {_REPORT} FROM bid GROUP BY {_DAY}",
        _last(lambda row: (int(row[0]), _numbers(row[1:]))),
    ),
    "q16": Query(
        f"SELECT channel, {_DAY}, {_REPORT} FROM bid GROUP BY channel, {_DAY}",
        _last(lambda row: ((row[0], int(row[1])), _numbers(row[2:]))),
    ),
    "q17": Query(
        f"SELECT auction, {_DAY}, COUNT(*), {_BIDS}, MIN(price), MAX(price),"
        f" AVG(CAST(price AS DOUBLE)), SUM(price) FROM bid GROUP BY auction, {_DAY}",
        _last(
            lambda row: (
                (int(row[0]), int(row[1])),
                (*_numbers(row[2:8]), float(row[8]), int(row[9])),
            )
        ),
    ),
    "q18": Query(
        "SELECT bidder, auction, price, at_ms FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY"
        " bidder, auction ORDER BY moment DESC) AS place FROM bid) WHERE place = 1",
        _last(lambda row: ((int(row[0]), int(row[1])), int(row[3]))),
        # Of two bids in one millisecond each system may keep another.
        lambda bids: {key: bid[5] for key, bid in bids.items()},
    ),
    "q19": Query(
        "SELECT auction, price FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY auction"
        " ORDER BY price DESC) AS place FROM bid) WHERE place <= 10",
        _best,
        lambda best: {auction: [bid[2] for bid in bids] for auction, bids in best.items()},
    ),
    "q20": Query(
        f"SELECT {_HEAD}, item, seller FROM (SELECT B.auction, B.bidder, B.price, B.at_ms, B.extra,"
        " A.item, A.seller FROM bid B JOIN auction A ON B.auction = A.id WHERE A.category = 10)",
        _all(lambda row: (*_head(row), row[5], int(row[6]))),
    ),
    "q21": Query(
        "SELECT * FROM (SELECT auction, bidder, price, channel, CASE LOWER(channel) WHEN 'apple'"
        " THEN '0' WHEN 'google' THEN '1' WHEN 'facebook' THEN '2' WHEN 'baidu' THEN '3'"
        " ELSE REGEXP_EXTRACT(url, '(&|^)channel_id=([^&]*)', 2) END AS channel_id FROM bid)"
        " WHERE channel_id IS NOT NULL",
        _all(lambda row: (*_numbers(row[:3]), row[3], row[4])),
    ),
    "q22": Query(
        "SELECT auction, bidder, price, channel, SPLIT_INDEX(url, '/', 3), SPLIT_INDEX(url, '/',"
        " 4), SPLIT_INDEX(url, '/', 5) FROM bid",
        _all(lambda row: (*_numbers(row[:3]), *row[3:])),
    ),
}


def _added(counter: Mapping[Any, int], of: Callable[[Any], Any]) -> Counter[Any]:
    found: Counter[Any] = Counter()
    for key, n in counter.items():
        found[of(key)] += n
    return found


def standing(lines: Sequence[str]) -> list[Row]:
    """The rows that stand at the end of a changelog: `KIND` and the fields of each, by tabs."""
    found: dict[tuple[str, ...], int] = {}
    for line in lines:
        kind, *row = line.split("\t")
        # A dictionary keeps the order of the first row: what stands is put at the end again.
        n = found.pop(tuple(row), 0) + (1 if kind in ("+I", "+U") else -1)
        if n:
            found[tuple(row)] = n
    return [row for row, n in found.items() for _ in range(n)]
