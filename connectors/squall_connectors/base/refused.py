"""Rows that a database refuses for what they are, in the transaction of a transactional sink.

The rows of a complete checkpoint are written in one transaction. If the database refuses it because
of a row, `search` finds the row: it says which part of a batch to write next, each part in a
savepoint, and halves a part that was refused until it is one row. Parts come in the order of their
rows, so that of two rows with one key the last still wins.

A refused row holds up its task (`refused_error`), unless the sink has a table for such rows: then
it is written there, in the same transaction as the others (`refused_values`). Pure.
"""

from __future__ import annotations

import json
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import Any

from squall import RowBatch
from squall_common.errors import InvalidTopologyError, SquallError, describe

REFUSED_MAX = 1_000
"""So many refused rows of one commit are taken for a fault of the table. It also bounds the time of
a commit: each of them costs some ten statements."""

REFUSED_COLUMNS = ("writer", "epoch", "position", "target", "fields", "reason")
"""The columns of a table of refused rows: `fields` is a JSON object, and `position` the place of
the row in its batch, from 0."""

_SHOWN_CHARS = 200
_HELD = (
    "it and all later rows of its task wait: change the table, or give the sink a refused_table, "
    "which takes such rows, so that the others are written"
)


@dataclass(frozen=True, slots=True)
class Part:
    """The rows `start` to `end` (exclusive) of a batch."""

    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Refused:
    """A row that the database has refused: its place in its batch, and why."""

    position: int
    error: Exception


class RowRefusedError(SquallError):
    """A database refuses a row of a complete checkpoint."""


def search(count: int, refused_max: int) -> Generator[Part, Exception | None, list[Refused]]:
    """Find the refused rows among `count`. Yields the part to write next; send the error if it was
    refused and undone, otherwise None. Returns the refused rows, at most `refused_max`: what
    follows the last of them is not written then."""
    found: list[Refused] = []
    parts = [Part(0, count)] if count else []
    while parts and len(found) < refused_max:
        part = parts.pop()
        error = yield part
        if error is None:
            continue
        if part.end - part.start == 1:
            found.append(Refused(part.start, error))
            continue
        middle = (part.start + part.end) // 2
        parts += [Part(middle, part.end), Part(part.start, middle)]
    return found


def values_to_put_aside(
    batch: RowBatch,
    found: Sequence[Refused],
    refused_max: int,
    target: str,
    aside: str | None,
    fields: Sequence[str],
) -> list[tuple[str, int, int, str, str, str]]:
    """Rows for `REFUSED_COLUMNS` of the table `aside`. Raises RowRefusedError if there is a refused
    row and no such table, or if there are `refused_max` of them."""
    if found and aside is None:
        raise refused_error(batch, found[0], target, fields)
    if len(found) >= refused_max:
        raise too_many_error(target, found[-1])
    return [refused_values(batch, one, target, fields) for one in found]


def refused_values(
    batch: RowBatch, one: Refused, target: str, fields: Sequence[str]
) -> tuple[str, int, int, str, str, str]:
    """A row for `REFUSED_COLUMNS`. Values without a form in JSON are shown as text. It is ASCII
    without NUL, which every database takes."""
    reason = describe(one.error).replace("\0", "\\0").encode("ascii", "backslashreplace").decode()
    shown = _as_json(fields, batch.rows[one.position])
    return (batch.writer, batch.epoch, one.position, target, shown, reason)


def _as_json(fields: Sequence[str], row: Sequence[Any]) -> str:
    values = dict(zip(fields, row, strict=True))
    try:
        return json.dumps(values, default=repr)
    except (TypeError, ValueError):  # a key that is not a string; a circle
        return json.dumps({name: repr(value) for name, value in values.items()})


def refused_error(
    batch: RowBatch, one: Refused, target: str, fields: Sequence[str]
) -> RowRefusedError:
    """A row holds up its task."""
    shown = _shown(fields, batch.rows[one.position])
    message = f"table {target!r} refuses the row {shown} of checkpoint {batch.epoch}: {one.error}"
    error = RowRefusedError(message, hint=_HELD)
    error.__cause__ = one.error
    return error


def too_many_error(target: str, last: Refused) -> RowRefusedError:
    """More rows are refused than are put aside."""
    error = RowRefusedError(
        f"table {target!r} refuses {REFUSED_MAX:,} rows of one commit, the last one because of "
        f"{last.error}",
        hint="so many are taken for a fault of the table, and none is put aside: change the table",
    )
    error.__cause__ = last.error
    return error


def put_aside_error(
    found: Sequence[tuple[RowBatch, Refused]], target: str, aside: str, fields: Sequence[str]
) -> RowRefusedError:
    """What is reported once rows were put aside, at least one."""
    batch, first = found[0]
    shown = _shown(fields, batch.rows[first.position])
    count = "1 row" if len(found) == 1 else f"{len(found):,} rows"
    first_is = "it is" if len(found) == 1 else "the first one is"
    error = RowRefusedError(
        f"table {target!r} refused {count}, now in {aside!r}; {first_is} {shown} of checkpoint "
        f"{batch.epoch}: {first.error}"
    )
    error.__cause__ = first.error
    return error


def checked_table(sink: str, table: str, refused_table: str | None) -> str | None:
    """The name of the table for refused rows. Raises InvalidTopologyError if it is empty, or the
    table that refuses."""
    if refused_table is not None and (not refused_table or refused_table == table):
        raise InvalidTopologyError(f"{sink}: refused_table is {refused_table!r}, not another table")
    return refused_table


def _shown(fields: Sequence[str], row: Sequence[Any]) -> str:
    text = repr(dict(zip(fields, row, strict=True)))
    return text if len(text) <= _SHOWN_CHARS else text[:_SHOWN_CHARS] + "..."
