"""Writes the corpus that the fuzzer begins with: `python -m tests.fuzz.seeds`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from squall_engine.core import MANY, pure, sections
from squall_engine.core.codec import ValueCodec

CORPUS = Path(__file__).with_name("corpus")


def seeds() -> Iterator[tuple[str, bytes]]:
    """One section of each kind and shape, by name."""
    one, two = (pure.Source("c", task, "default", ["x", "y"]) for task in (4, 5))
    rows = [["a", 1], ["b", 2**70], [None, (1, [2])], [b"c", {"d": 0.5}]]

    def batch(roots: list[int], sources: list[pure.Source]) -> pure.Batch:
        tuples = []
        for i, row in enumerate(rows):
            root = roots[i % len(roots)]
            anchors = {7 << 16: 5, 9 << 16 | 1: 6} if root == MANY else None
            id_ = 0 if root in (0, MANY) else 100 + i
            source = sources[i % len(sources)]
            tuples.append(pure.Tuple(row, id_, root, source, False, anchors))
        return pure.Batch.of(sources[0], tuples)

    roots = {"plain": [0], "anchored": [7 << 16, 8 << 16], "several": [MANY, 7 << 16, 0]}
    for name, some in roots.items():
        for senders in ([one], [one, two]):
            for tasks in ([7], [7, 9]):
                data = pure.encode_batches(
                    one, [(task, batch(some, senders)) for task in tasks], ValueCodec()
                )
                yield f"tuples-{name}-{len(senders)}-senders-{len(tasks)}-tasks", data
    columns = {
        "numbers": [[7, -200, 70_000, 2**40], [0.5, -1.0, float("inf"), 0.0]],
        "bytes": [["a", "a", "é", ""], [b"x" * 300, b"", b"", b"y"]],
        "values": [[True, False, True, True], [None, 1, "a", (2,)]],
    }
    for name, (first, second) in columns.items():
        for roots_of, senders in (([0], [one]), ([7 << 16, 8 << 16], [one, two])):
            rows = [list(row) for row in zip(first * 3, second * 3, strict=True)]
            data = pure.encode_batches(
                one, [(7, batch(roots_of, senders))], ValueCodec(), columns=True
            )
            yield f"columns-{name}-{len(senders)}-senders", data
    yield "acks", sections.serialize_acks(0, {7 << 16: 5, 8 << 16: 9}, {})
    yield "inits", sections.serialize_acks(0, {7 << 16: 5, 9 << 16: 9}, {9 << 16: 3, 7 << 16: 4})
    yield "late-init", sections.serialize_acks(1, {1 << 16 | 1: 5}, {1 << 16 | 1: 3})
    yield "no-acks", sections.serialize_acks(1, {}, {})
    for kind in (sections.FAILS, sections.RESETS, sections.DONE, sections.FAILED, sections.RESET):
        yield f"roots-{kind}", sections.serialize_roots(kind, 1, [7 << 16, 1 << 16 | 1, 0])


def main() -> None:
    CORPUS.mkdir(exist_ok=True)
    for name, data in seeds():
        (CORPUS / name).write_bytes(data)


if __name__ == "__main__":
    main()
