"""Batches as sections and back (see `sections` for the format)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from squall_engine.core.codec import ValueCodec
from squall_engine.core.pure.tuples import Batch, Tuple
from squall_engine.core.sections import parse_tuples, serialize_tuples
from squall_engine.core.values import Source


def encode_batches(
    source: Source, batches: Sequence[tuple[int, Batch]], codec: ValueCodec
) -> bytes:
    """Batches of one stream for several tasks as one TUPLES section; `source` is of some task that
    emits on it. Raises
    ValueNotEncodableError when some value cannot travel."""
    tasks: list[int] = []
    tuples: list[Tuple] = []
    for task, batch in batches:
        tasks += [task] * len(batch)
        tuples += batch.tuples
    sources = [tup.source.task for tup in tuples]
    return serialize_tuples(source.task, source.stream, tasks, tuples, codec, sources)


def decode_batches(
    data: bytes, codec: ValueCodec, source_of: Callable[[int, str], Source | None]
) -> dict[int, Batch]:
    """The inverse: batches by task; none when `source_of(task, stream)` knows no source. Raises
    CodecError."""
    section = parse_tuples(data, codec)
    source = source_of(section.source_task, section.stream)
    if source is None:
        return {}
    known = {
        task: source_of(task, section.stream)
        for task in dict.fromkeys((section.source_task, *section.sources))
    }
    tuples = []
    of_each = section.sources or [section.source_task] * len(section.rows)
    for row, id_, root, task in zip(section.rows, section.ids, section.roots, of_each, strict=True):
        one = known[task]
        if one is None:
            return {}
        tuples.append(Tuple(row, id_, root, one))
    for index, anchors in section.anchors.items():
        tuples[index].anchors = anchors
    tasks = section.tasks
    first = tasks[0] if tasks else None
    if first is not None and tasks.count(first) == len(tasks):
        return {first: Batch(source, tuples)}
    by_task: dict[int, Batch] = {}
    for task, tup in zip(tasks, tuples, strict=True):
        batch = by_task.get(task)
        if batch is None:
            batch = by_task[task] = Batch(source, [])
        batch.tuples.append(tup)
    return by_task
