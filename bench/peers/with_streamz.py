"""streamz: one process, each line emitted in turn."""

from __future__ import annotations

import peer
from streamz import Stream


def count(lines: list[str], rounds: int) -> dict[str, int]:
    counts: dict[str, int] = {}

    def add(word: str) -> None:
        counts[word] = counts.get(word, 0) + 1

    source = Stream()
    source.map(str.split).flatten().sink(add)
    for _ in range(rounds):
        for line in lines:
            source.emit(line)
    return counts


if __name__ == "__main__":
    peer.main(count)
