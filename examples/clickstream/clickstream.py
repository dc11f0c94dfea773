"""Sessions of a website's visitors, from a file of clicks to a table in SQLite.

    clicks --shuffle--> parse --fields on user--> sessions --shuffle--> store
                          └────────── stream "invalid" ──────────────────┘

A session ends when its user has not clicked for `gap` seconds. Until then its clicks are not acked:
if a worker dies, the source emits them again and the session is built anew. A click that comes
again counts once, and storing a session again, or a part of it, changes nothing: whichever worker
dies, the result is the same.
"""

import argparse
import json
import os
import sqlite3
import sys
from pathlib import Path

from squall import Bolt, ReplayingSpout, TopologyBuilder, WindowedBolt, submit_topology
from squall.windows import session

INVALID_CHARS_MAX = 200


class Clicks(ReplayingSpout):
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


def read_click(line):
    """The user, time and page of a click. Raises ValueError if the line is not a click."""
    try:
        click = json.loads(line)
        user, at, page = click["user"], click["at"], click["page"]
    except (ValueError, TypeError, KeyError) as error:
        raise ValueError(f"{type(error).__name__}: {error}") from None
    if not isinstance(user, str) or not user:
        raise ValueError(f"user is {user!r}")
    if not isinstance(at, (int, float)) or isinstance(at, bool) or at != at:
        raise ValueError(f"at is {at!r}")
    if not isinstance(page, str):
        raise ValueError(f"page is {page!r}")
    return user, float(at), page


class Parse(Bolt):
    """A line to a click; what is none goes to the stream "invalid", with the reason."""

    outputs = {"default": ["user", "at", "page"], "invalid": ["line", "reason"]}
    stateless = True

    def execute(self, tup):
        try:
            user, at, page = read_click(tup["line"])
        except ValueError as error:
            self.emit([tup["line"][:INVALID_CHARS_MAX], str(error)], stream="invalid")
            return
        self.emit([user, at, page])


class Sessions(WindowedBolt):
    """The clicks of each session, which ends when its user has not clicked for some seconds."""

    outputs = ["user", "first", "last", "clicks", "pages"]

    def execute_window(self, window):
        # By time: a click that came again is in the window twice, and counts once.
        pages = {click["at"]: click["page"] for click in window}
        times = sorted(pages)
        self.emit([window.key, times[0], times[-1], len(times), [pages[at] for at in times]])


# After a failure a session may come again, or a part of it: that changes nothing.
INSERT_SESSION = """
INSERT OR REPLACE INTO sessions SELECT :user, :first, :last, :clicks, :pages WHERE NOT EXISTS (
    SELECT 1 FROM sessions
    WHERE user = :user AND first <= :first AND last >= :last AND clicks >= :clicks)
"""


class Store(Bolt):
    """Writes to SQLite, one transaction for each batch, on its own thread."""

    blocking = True

    def __init__(self, database):
        self.database = database

    def prepare(self, conf, context):
        self.connection = sqlite3.connect(self.database, timeout=30)
        with self.connection as connection:
            connection.execute(
                "CREATE TABLE IF NOT EXISTS sessions (user TEXT, first REAL, last REAL, "
                "clicks INTEGER, pages TEXT, PRIMARY KEY (user, first))"
            )
            connection.execute(
                "CREATE TABLE IF NOT EXISTS invalid (line TEXT PRIMARY KEY, reason TEXT)"
            )

    def execute_batch(self, tuples):
        with self.connection as connection:
            for tup in tuples:
                if tup.source_stream == "invalid":
                    connection.execute("INSERT OR REPLACE INTO invalid VALUES (?, ?)", tup.values)
                else:
                    row = dict(zip(tup.fields, tup.values, strict=True))
                    row["pages"] = json.dumps(row["pages"])
                    connection.execute(INSERT_SESSION, row)

    def cleanup(self):
        self.connection.close()


def build(clicks, database, gap=5):
    """The topology."""
    builder = TopologyBuilder()
    builder.spout("clicks", Clicks(clicks))
    builder.bolt("parse", Parse(), parallelism=2).shuffle("clicks")
    sessions = builder.bolt("sessions", Sessions(), parallelism=2, tasks=8)
    sessions.windowed(session(gap_secs=gap, key="user")).fields("parse", "user")
    store = builder.bolt("store", Store(database))
    store.shuffle("sessions").shuffle("parse", stream="invalid")
    return builder.build()


def main():
    parser = argparse.ArgumentParser(description="Sessions of a website's visitors.")
    parser.add_argument("clicks", help="file of clicks, one JSON object a line")
    parser.add_argument("database", help="SQLite file for the sessions")
    parser.add_argument("--gap", type=int, default=5, help="seconds that end a session")
    parser.add_argument("--name", default="clickstream", help="name of the topology")
    options = parser.parse_args()
    if not Path(options.clicks).is_file():
        sys.exit(f"clickstream: file {options.clicks} was not found")
    # Workers run in folders of their own.
    clicks, database = os.path.abspath(options.clicks), os.path.abspath(options.database)
    conf = {"topology.workers": 2, "topology.message.timeout.secs": 30}
    submit_topology(options.name, conf, build(clicks, database, options.gap))


if __name__ == "__main__":
    main()
