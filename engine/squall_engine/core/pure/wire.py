"""Batches as sections and back (see `sections` for the format)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from squall_engine.core.codec import CodecError, ValueCodec
from squall_engine.core.pure.tuples import Batch, Source, Tuple
from squall_engine.core.sections import parse_tuples, serialize_tuples
from squall_engine.core.values import changed_row


def encode_batches(
    source: Source,
    batches: Sequence[tuple[int, Batch]],
    codec: ValueCodec,
    *,
    columns: bool = False,
) -> bytes:
    """Batches of one stream, each with its receiving task, as one TUPLES section; `source` is of
    some task that emits on it. `columns`: the receiver knows columns, and a single batch may be
    such. Raises ValueNotEncodableError when some value cannot travel, and ChangedRowError for a
    row with other than one value for each field, which no receiver takes."""
    tasks = [task for task, batch in batches for _ in range(len(batch))]
    tuples = [tup for _, batch in batches for tup in batch.as_tuples()]
    for tup in tuples:
        if len(tup.values) != len(source.fields):
            raise changed_row(source.component, source.stream, len(source.fields), tup.values)
    sources = [tup.source.task for tup in tuples]
    fields = len(source.fields) if columns and len(batches) == 1 else None
    return serialize_tuples(
        source.task, source.stream, tasks, tuples, codec, sources, fields=fields
    )


def decode_batches(
    data: bytes, codec: ValueCodec, source_of: Callable[[int, str], Source | None]
) -> dict[int, Batch]:
    """The inverse: batches by receiving task; none when `source_of(task, stream)` knows no source.
    Raises CodecError."""
    section = parse_tuples(data, codec)
    senders = section.sources or [section.source_task] * len(section.rows)
    known = {
        task: source_of(task, section.stream)
        for task in dict.fromkeys((section.source_task, *senders))
    }
    source = known[section.source_task]
    if source is not None:
        fields = len(source.fields)
        for row in section.rows:
            if len(row) != fields:
                raise CodecError(
                    f"a section has {len(row)} values for the {fields} fields of {section.stream!r}"
                )
    by_task: dict[int, Batch] = {}
    for i, (row, receiver) in enumerate(zip(section.rows, section.tasks, strict=True)):
        sender = known[senders[i]]
        if source is None or sender is None:
            return {}
        batch = by_task.setdefault(receiver, Batch(source, []))
        batch._tuples.append(
            Tuple(row, section.ids[i], section.roots[i], sender, False, section.anchors.get(i))
        )
    return by_task
