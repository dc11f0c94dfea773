"""Pathway: one thread, no persistence. Lines come from a Python connector, committed by the
thousand."""

from __future__ import annotations

import os

os.environ.setdefault("PATHWAY_THREADS", "1")

import pathway as pw
import peer


class Line(pw.Schema):
    line: str


@pw.udf
def split(line: str) -> list[str]:
    return line.split()


def count(lines: list[str], rounds: int) -> dict[str, int]:
    counts: dict[str, int] = {}

    class Lines(pw.io.python.ConnectorSubject):
        def run(self) -> None:
            for _ in range(rounds):
                for line in lines:
                    self.next(line=line)

    def on_change(key: object, row: dict[str, object], time: int, is_addition: bool) -> None:
        if is_addition:
            counts[row["word"]] = row["n"]

    table = pw.io.python.read(Lines(), schema=Line, autocommit_duration_ms=100)
    words = table.select(word=split(pw.this.line)).flatten(pw.this.word)
    found = words.groupby(pw.this.word).reduce(pw.this.word, n=pw.reducers.count())
    pw.io.subscribe(found, on_change)
    pw.run(monitoring_level=pw.MonitoringLevel.NONE)
    return counts


if __name__ == "__main__":
    peer.main(count)
