"""What one input is given to, and what must hold.

Both cores either refuse it, with CodecError and no other effect, or read the same from it. Nothing
else is raised, and memory stays within a multiple of the input.
"""

from __future__ import annotations

import random
from types import ModuleType
from typing import Any

from squall_engine.core import sections
from squall_engine.core.codec import CodecError, ValueCodec

_CODEC = ValueCodec()
_ACKERS = 2
REFUSED = "refused"


def check(data: bytes, cores: tuple[ModuleType, ...]) -> str:
    """Give an input to all readers. Returns a word about the outcome; raises AssertionError when
    the cores differ, and lets through all errors but CodecError."""
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
