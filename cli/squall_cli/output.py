"""Output: tables and messages for people, JSON for programs.

Data goes to stdout, messages to stderr. Nothing that comes from a topology reaches the terminal
with its control characters.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, TextIO

from squall_common.daemon.output.printing import print_if_possible

if TYPE_CHECKING:
    from rich.console import Console

    from squall_common.errors import SquallError

# A table in a pipe is not wrapped: grep and awk need one row per line.
_PIPE_WIDTH_COLUMNS = 1000


def console(stream: TextIO | None = None) -> Console:
    """A rich console that prints what it is given: no markup, no guessed highlights."""
    from rich.console import Console

    file = stream or sys.stdout
    width = None if file.isatty() else _PIPE_WIDTH_COLUMNS
    return Console(file=file, width=width, markup=False, highlight=False, emoji=False)


def printable(text: str) -> str:
    """`text` without anything that moves a cursor or forges a line, line breaks aside."""
    return "".join(
        c if c.isprintable() or c in "\n\t" else c.encode("unicode_escape").decode() for c in text
    )


def print_json(value: Any) -> None:
    """One JSON document on stdout."""
    sys.stdout.write(json.dumps(value, indent=2, ensure_ascii=False, sort_keys=False) + "\n")
    sys.stdout.flush()


def print_table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """A table on stdout; numbers are set right."""
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold")
    listed = [list(row) for row in rows]
    for index, column in enumerate(columns):
        numeric = bool(listed) and all(isinstance(row[index], int) for row in listed)
        table.add_column(column, justify="right" if numeric else "left", no_wrap=True)
    for row in listed:
        table.add_row(*(printable(str(cell)) for cell in row))
    console().print(table)


def say(message: str) -> None:
    """A message to the person at the terminal (stderr). One that cannot be written is dropped, and
    the command continues."""
    print_if_possible(printable(message), sys.stderr)


def print_error(error: SquallError) -> None:
    """An expected failure: what happened, and what to do about it."""
    from rich.text import Text

    out = console(sys.stderr)
    out.print(Text.assemble(("error: ", "bold red"), printable(error.message)), soft_wrap=True)
    if error.hint is not None:
        out.print(Text.assemble(("hint: ", "bold cyan"), printable(error.hint)), soft_wrap=True)


def duration(secs: int) -> str:
    """`95` as `1m 35s`, in at most two units."""
    units = (("d", 86_400), ("h", 3_600), ("m", 60), ("s", 1))
    parts: list[str] = []
    for name, size in units:
        if secs >= size or (name == "s" and not parts):
            parts.append(f"{secs // size}{name}")
            secs %= size
        elif parts:
            break
        if len(parts) == 2:
            break
    return " ".join(parts)
