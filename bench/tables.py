"""Tables of figures: one form, shown on a terminal or written into the documentation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Table:
    """`rows` hold one text a column. The first column is words, the others mostly numbers."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    notes: Sequence[str] = field(default_factory=tuple)  # sentences below it

    def markdown(self) -> str:
        lines = [self.columns, ["---", *["---:"] * (len(self.columns) - 1)], *self.rows]
        text = "\n".join("| " + " | ".join(line) + " |" for line in lines)
        return "\n\n".join([text, *self.notes])


def show(tables: Sequence[Table]) -> None:
    """Print them for people."""
    from rich import box
    from rich.console import Console
    from rich.table import Table as RichTable

    # Wrapped it cannot be read: files and narrow terminals get it whole.
    console = Console(highlight=False, width=400)
    for table in tables:
        # Without a title's centring and colours it reads the same in a file.
        shown = RichTable(title=table.title, title_justify="left", box=box.SIMPLE_HEAD)
        for number, column in enumerate(table.columns):
            shown.add_column(column, justify="right" if number else "left", no_wrap=True)
        for row in table.rows:
            shown.add_row(*row)
        console.print(shown)
        for note in table.notes:
            console.print(note, soft_wrap=True)


def number(value: float | None, digits: int = 3) -> str:
    """Three significant digits, or a dash: 0.0471, 1.35, 12,400."""
    if value is None:
        return "-"
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    if value == 0:
        return "0"
    return f"{value:#.{digits}g}".rstrip(".")


def met(value: float, goal: float | None, limit: float | None, *, at_most: bool) -> str:
    """The last column: whether a figure is as good as it should be."""
    if goal is None and limit is None:
        return ""

    def within(bound: float) -> bool:
        return value <= bound if at_most else value >= bound

    if goal is not None and within(goal):
        return "yes"
    if limit is not None and within(limit):
        return "limit"
    return "NO"
