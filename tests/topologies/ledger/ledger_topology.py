"""Word count between two ends that lie outside the cluster (`tests/support/ledger.py`).

The source hands out numbered lines and keeps each until it is acked; the sink records every word
as (line number, place in the line). Whatever is killed in between, each word must be recorded at
least once.

    storm jar tests/topologies/ledger ledger_topology.py NAME [HOST:]PORT WORKERS [CONF_JSON]

With a HOST the network may be cut: then the sink's word is waited for before a word is acked, since
what was sent need not arrive.
"""

from __future__ import annotations

import json
import socket
import sys
import time
from typing import Any

from squall import Bolt, Spout, TopologyBuilder, submit_topology


class Connection:
    """Lines of text to the ledger's server, and its answers."""

    def __init__(self, address: tuple[str, int], role: str) -> None:
        self._socket = socket.create_connection(address, timeout=30)
        self._file = self._socket.makefile("rw", encoding="utf-8", newline="\n")
        self.send(role)
        self.flush()

    def send(self, *words: object) -> None:
        self._file.write("\t".join(map(str, words)) + "\n")

    def flush(self) -> None:
        self._file.flush()

    def ask(self, *words: object) -> Any:
        self.send(*words)
        self.flush()
        return json.loads(self._file.readline())

    def close(self) -> None:
        self._file.close()
        self._socket.close()


class Lines(Spout):
    """Takes lines from the source, and tells it which ones are done."""

    outputs = ["number", "line"]

    def __init__(self, port: int, host: str = "127.0.0.1") -> None:
        self.address = (host, port)

    def open(self, conf: Any, context: Any) -> None:
        self.source = Connection(self.address, "source")
        self.fetched: list[Any] = []
        self.idle_until = 0.0

    def next_tuple(self) -> None:
        if not self.fetched:
            # An empty source is asked again only now and then: each question is a round trip.
            if time.monotonic() < self.idle_until:
                return
            self.fetched = self.source.ask("next", 200)
            if not self.fetched:
                self.idle_until = time.monotonic() + 0.05
                return
        number, line = self.fetched.pop()
        self.emit([number, line], message_id=number)

    def ack(self, msg_id: Any) -> None:
        self.source.send("ack", msg_id)
        self.source.flush()

    def fail(self, msg_id: Any) -> None:
        self.source.send("fail", msg_id)
        self.source.flush()

    def close(self) -> None:
        self.source.close()


class Split(Bolt):
    outputs = ["number", "place", "word"]

    def execute(self, tup: Any) -> None:
        for place, word in enumerate(tup["line"].split()):
            self.emit([tup["number"], place, word])


class Record(Bolt):
    """Writes each word to the sink before it is acked."""

    outputs: list[str] = []

    def __init__(self, port: int, host: str = "127.0.0.1", confirmed: bool = False) -> None:
        self.address = (host, port)
        self.confirmed = confirmed

    def prepare(self, conf: Any, context: Any) -> None:
        self.sink = Connection(self.address, "sink")

    def execute(self, tup: Any) -> None:
        self.sink.send("record", tup["number"], tup["place"], tup["word"])
        if self.confirmed:
            self.sink.ask("confirm")
        else:
            self.sink.flush()

    def cleanup(self) -> None:
        self.sink.close()


def main() -> None:
    name, workers = sys.argv[1], int(sys.argv[3])
    host, _, port = sys.argv[2].rpartition(":")
    ends = (int(port), host or "127.0.0.1")
    conf = json.loads(sys.argv[4]) if len(sys.argv) > 4 else {}
    builder = TopologyBuilder()
    builder.spout("lines", Lines(*ends))
    builder.bolt("split", Split(), parallelism=2, tasks=4).shuffle("lines")
    builder.bolt("record", Record(*ends, confirmed=bool(host)), parallelism=2).fields(
        "split", "word"
    )
    submit_topology(
        name,
        {"topology.workers": workers, "topology.max.spout.pending": 500, **conf},
        builder.build(),
    )


if __name__ == "__main__":
    main()
