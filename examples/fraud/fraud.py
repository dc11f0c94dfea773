"""Fraud rules: payments with cards, and alerts for those that look like theft.

    payments --shuffle--> parse --fields: card--> habits ----fields: card--> decide --> store
                            |---fields: card--> velocity --fields: card--^
                            '---fields: shop--> tried    --fields: card--^

Four rules raise a *flag* for a card. `habits` keeps what is usual for each card (state): an amount
far above it, and two countries within two hours, are flags. `velocity` counts the payments of a
card in the last ten minutes, `tried` the cards with which a shop got tiny payments in a minute
(windows, by the time of the payments). `decide` adds up the flags of a card (state), and raises one
alert an hour at the most.

After a failure a payment may come again. It changes nothing that is known of its card, and what
was emitted for it is emitted again, because that may be what was lost. Flags, alerts and rows have
keys, so none of them counts twice.
"""

import argparse
import json
import math
import os
import sqlite3
import sys
from pathlib import Path

from squall import (
    Bolt,
    ReplayingSpout,
    StatefulBolt,
    TopologyBuilder,
    WindowedBolt,
    submit_topology,
)
from squall.windows import EventTime, sliding, tumbling

FLAG = ["card", "at", "rule", "id", "detail"]  # `at` in milliseconds; `rule` and `id` are a key
MINUTE, HOUR = 60_000, 3_600_000
POINTS = {"amount": 40, "travel": 60, "velocity": 50, "tried": 60}
POINTS_ALERT = 100

# The time is that of the payment, not of its arrival. Payments may be 5 s out of order.
BY_TIME = EventTime("at", lag_secs=5, late_stream="late")


class Payments(ReplayingSpout):
    """The lines of a file, also those that are appended later. Run it with one task."""

    outputs = ["line"]

    def __init__(self, path):
        self.path = path

    def open(self, conf, context):
        self.file = open(self.path, encoding="utf-8", errors="replace")
        self.part = ""

    def next_message(self):
        self.part += self.file.readline()
        if not self.part.endswith("\n"):  # the rest of the line is not written yet
            return None
        line, self.part = self.part.rstrip("\n"), ""
        return [line]

    def close(self):
        self.file.close()


def read_payment(line):
    """The values of a payment. Raises ValueError if the line is not one."""
    try:
        found = json.loads(line)
        values = [found[name] for name in ("id", "card", "at", "amount", "country", "shop")]
    except (ValueError, TypeError, KeyError) as error:
        raise ValueError(f"{type(error).__name__}: {error}") from None
    id, card, at, amount, country, shop = values
    if not all(isinstance(text, str) and text for text in (id, card, country, shop)):
        raise ValueError("id, card, country and shop must be texts")
    if type(at) is not int or at < 0:
        raise ValueError(f"at is {at!r}")
    if type(amount) not in (int, float) or not 0 < amount < 1e9:
        raise ValueError(f"amount is {amount!r}")
    return values


class Parse(Bolt):
    """A line to a payment. One task, so that payments keep their order."""

    outputs = {
        "default": ["id", "card", "at", "amount", "country", "shop"],
        "invalid": ["line", "reason"],
    }
    stateless = True

    def execute(self, tup):
        try:
            payment = read_payment(tup["line"])
        except ValueError as error:
            self.emit([tup["line"][:200], str(error)], stream="invalid")
            return
        self.emit(payment)


class Habits(StatefulBolt):
    """What is usual for each card, and flags for what is not."""

    outputs = FLAG
    state_ttl_secs = 90 * 86_400  # of a card that is not used any more
    learned = 5  # payments before an amount can be unusual
    remembered = 20  # payments by which one that comes again is known

    def execute(self, tup):
        card, at, amount = tup["card"], tup["at"], tup["amount"]
        usual = self.state.get(card) or {
            "count": 0, "mean": 0.0, "squares": 0.0, "at": at, "country": "", "seen": {},
        }  # fmt: skip
        if tup["id"] in usual["seen"]:  # it came again, and so do its flags
            for rule, detail in usual["seen"][tup["id"]]:
                self.emit([card, at, rule, tup["id"], detail])
            return
        flags = []
        detail = self.unusual_amount(usual, amount)
        if detail:
            flags.append(["amount", detail])
        away = usual["country"] not in ("", tup["country"])
        if away and abs(at - usual["at"]) < 2 * HOUR:
            minutes = abs(at - usual["at"]) // MINUTE
            flags.append(["travel", f"{usual['country']} to {tup['country']} in {minutes} minutes"])
        for rule, detail in flags:
            self.emit([card, at, rule, tup["id"], detail])
        # Mean and variance in one pass (Welford).
        count = usual["count"] + 1
        mean = usual["mean"] + (amount - usual["mean"]) / count
        self.state.put(card, {
            "count": count,
            "mean": mean,
            "squares": usual["squares"] + (amount - usual["mean"]) * (amount - mean),
            "at": at,
            "country": tup["country"],
            "seen": dict([*usual["seen"].items(), (tup["id"], flags)][-self.remembered :]),
        })  # fmt: skip

    def unusual_amount(self, usual, amount):
        if usual["count"] < self.learned:
            return None
        deviation = math.sqrt(usual["squares"] / usual["count"])
        if amount > usual["mean"] + 4 * deviation and amount > 3 * usual["mean"]:
            return f"{amount:.2f}, usually {usual['mean']:.2f}"
        return None


class Velocity(WindowedBolt):
    """Too many payments with one card in ten minutes."""

    outputs = FLAG
    windows = sliding(secs=600, every_secs=60, key="card", event_time=BY_TIME)

    def __init__(self, payments_max=7):
        self.payments_max = payments_max

    def execute_window(self, window):
        payments = sorted({(tup["at"], tup["id"]) for tup in window})
        if len(payments) > self.payments_max:
            # Windows overlap: the payment that was one too many is the key.
            at, id = payments[self.payments_max]
            detail = f"{len(payments)} payments in 10 minutes"
            self.emit([window.key, at, "velocity", id, detail])


class TriedCards(WindowedBolt):
    """A shop at which somebody tries out stolen cards: tiny payments, each with another card."""

    outputs = FLAG
    windows = tumbling(secs=60, key="shop", event_time=BY_TIME)

    def __init__(self, amount_max=2.0, cards_max=4):
        self.amount_max = amount_max
        self.cards_max = cards_max

    def execute_window(self, window):
        tiny = [tup for tup in window if tup["amount"] <= self.amount_max]
        cards = {tup["card"] for tup in tiny}
        if len(cards) > self.cards_max:
            detail = f"{len(cards)} cards tried at {window.key}"
            for card in sorted(cards):
                key = f"{window.key}/{window.end_ms}"
                self.emit([card, window.end_ms, "tried", key, detail])


class Decide(StatefulBolt):
    """Adds up the points of a card's flags of the last hour, and raises an alert."""

    outputs = {"default": ["card", "at", "points", "rules"], "flags": FLAG}
    state_ttl_secs = 86_400

    def execute(self, tup):
        card, at, rule, id, _ = tup.values
        flags, alerted_at = self.state.get(card, ([], None))
        self.emit(tup.values, stream="flags")
        for _, known_rule, known_id, alert in flags:
            if (known_rule, known_id) == (rule, id):  # it came again, and so does its alert
                if alert:
                    self.emit(alert)
                return
        # Flags come a little out of order: windows end later than their payments.
        flags = [flag for flag in flags if abs(flag[0] - at) < HOUR]
        rules = sorted({rule, *(flag[1] for flag in flags)})  # each counts once
        points = sum(POINTS[rule] for rule in rules)
        alert = None
        if points >= POINTS_ALERT and (alerted_at is None or at - alerted_at >= HOUR):
            alerted_at, alert = at, [card, at, points, rules]
            self.emit(alert)
        self.state.put(card, ([*flags, [at, rule, id, alert]], alerted_at))


TABLES = """
CREATE TABLE IF NOT EXISTS alerts (card TEXT, at INTEGER, points INTEGER, rules TEXT,
    PRIMARY KEY (card, at));
CREATE TABLE IF NOT EXISTS flags (card TEXT, at INTEGER, rule TEXT, id TEXT, detail TEXT,
    PRIMARY KEY (card, rule, id));
CREATE TABLE IF NOT EXISTS left_out (line TEXT PRIMARY KEY, reason TEXT);
"""


class Store(Bolt):
    """Writes to SQLite, one transaction for each batch, on its own thread."""

    blocking = True

    def __init__(self, database):
        self.database = database

    def prepare(self, conf, context):
        self.connection = sqlite3.connect(self.database, timeout=30)
        self.connection.executescript(TABLES)

    def execute_batch(self, tuples):
        with self.connection as connection:
            for tup in tuples:
                table, row = self.row(tup)
                places = ", ".join("?" * len(row))
                connection.execute(f"INSERT OR REPLACE INTO {table} VALUES ({places})", row)

    def row(self, tup):
        if tup.source_stream == "flags":
            return "flags", tup.values
        if tup.source_stream == "invalid":
            return "left_out", tup.values
        if tup.source_stream == "late":
            return "left_out", [json.dumps(tup["late_tuple"]["values"]), "late"]
        card, at, points, rules = tup.values
        return "alerts", [card, at, points, " ".join(rules)]

    def cleanup(self):
        self.connection.close()


def build(payments, database):
    """The topology."""
    builder = TopologyBuilder()
    builder.spout("payments", Payments(payments))
    builder.bolt("parse", Parse()).shuffle("payments")
    builder.bolt("habits", Habits(), parallelism=2, tasks=8).fields("parse", "card")
    builder.bolt("velocity", Velocity(), parallelism=2, tasks=8).fields("parse", "card")
    builder.bolt("tried", TriedCards(), tasks=8).fields("parse", "shop")
    decide = builder.bolt("decide", Decide(), parallelism=2, tasks=8)
    for rules in ("habits", "velocity", "tried"):
        decide.fields(rules, "card")
    store = builder.bolt("store", Store(database))
    store.shuffle("decide").shuffle("decide", stream="flags").shuffle("parse", stream="invalid")
    store.shuffle("velocity", stream="late").shuffle("tried", stream="late")
    return builder.build()


def main():
    parser = argparse.ArgumentParser(description="Alerts for stolen cards.")
    parser.add_argument("payments", help="file of payments, one JSON object a line")
    parser.add_argument("database", help="SQLite file for flags and alerts")
    parser.add_argument("--name", default="fraud", help="name of the topology")
    options = parser.parse_args()
    if not Path(options.payments).is_file():
        sys.exit(f"fraud: file {options.payments} was not found")
    # Workers run in folders of their own.
    payments, database = os.path.abspath(options.payments), os.path.abspath(options.database)
    submit_topology(options.name, {"topology.workers": 2}, build(payments, database))


if __name__ == "__main__":
    main()
