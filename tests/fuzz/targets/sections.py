"""Sections: what workers send each other.

Both cores either refuse an input, with CodecError and no other effect, or read the same from it.
"""

from __future__ import annotations

import importlib
import random
from collections.abc import Iterator
from types import ModuleType
from typing import Any

from squall_engine.core import MANY, pure, sections
from squall_engine.core.codec import CodecError, ValueCodec

_CODEC = ValueCodec()
_ACKERS = 2
REFUSED = "refused"


# A core with sanitizers keeps what it frees.
GROWTH_BYTES_MAX = 64 * 1024 * 1024


def check(data: bytes) -> str:
    """Give an input to all readers of both cores."""
    cores = (pure, importlib.import_module("squall_engine.core.compiled"))
    sections.addressee(data)
    try:
        kind = type(sections.parse(data, _CODEC)).__name__
    except CodecError:
        kind = REFUSED
    found = [(_tuples(data, core), _acks(data, core), _roots(data, core)) for core in cores]
    for other in found[1:]:
        assert other == found[0], f"the cores differ: {found[0]} and {other}"
    return f"{kind} {found[0][0] == REFUSED} {found[0][1] == REFUSED} {found[0][2] == REFUSED}"


def _tuples(data: bytes, core: ModuleType) -> str:
    def source_of(task: int, stream: str) -> Any:
        if task % 7 == 6:
            return None
        return core.Source("c", task, stream, ["x", "y"], local=False)

    try:
        batches = core.decode_batches(data, _CODEC, source_of)
    except CodecError:
        return REFUSED
    found = {}
    for task, batch in batches.items():
        assert len(batch) <= len(data)
        head = batch.take(len(batch) // 2)
        found[task] = ([_read(part) for part in (head, batch)], sorted(batch.roots()))
        # It can be sent on, as rows and as columns.
        if len(batch):
            for columns in (False, True):
                again = core.encode_batches(batch.source, [(task, batch)], _CODEC, columns=columns)
                (copy,) = core.decode_batches(again, _CODEC, source_of).values()
                assert repr(list(map(list, copy.rows()))) == repr(list(map(list, batch.rows())))
    return repr(found)


def _read(batch: Any) -> list[Any]:
    return [(t.source_task, t.id, t.root, t.anchors, list(t.values)) for t in batch.as_tuples()]


def _acks(data: bytes, core: ModuleType) -> str:
    """The input, and what may come before and after it."""
    trees = core.Trees(_ACKERS, range(_ACKERS), random.Random(1).getrandbits)
    known = sections.serialize_acks(0, {7 << 16: 5, 8 << 16: 9}, {7 << 16: 3})
    outcomes = [trees.receive_acks(known), trees.fail(1, [1 << 16 | 1])]
    try:
        outcomes += [trees.receive_acks(data), trees.receive_acks(data)]
    except CodecError:
        assert len(trees) == 3
        return REFUSED
    trees.rotate_ackers()
    outcomes += [trees.receive_acks(data), trees.receive_acks(known), trees.give_up()]
    assert len(trees) <= 3 + len(data)
    counts = [(trees.counts(i).inits, trees.counts(i).done) for i in range(_ACKERS)]
    return repr((outcomes, len(trees), counts))


def _roots(data: bytes, core: ModuleType) -> str:
    try:
        section = sections.parse_roots(data)
    except CodecError:
        return REFUSED
    trees = core.Trees(_ACKERS, range(_ACKERS), random.Random(1).getrandbits)
    trees.ledger.fail(section.roots)
    trees.ledger.reset(section.roots)
    found = [
        trees.settle(),
        trees.fail(section.target, section.roots),
        trees.reset_timeout(section.target, section.roots),
        len(trees),
    ]
    trees.rotate_ackers()
    trees.rotate_ackers()
    assert len(trees) == 0
    return repr(found)


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
