"""Tables that fit their terminal: what matters least leaves first, and long names give way.

Without that, the longest name of a table takes the room of all figures beside it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderResult
    from rich.text import Text

_GAP = 2  # between two columns
# Few texts need more than this; from there on a column shares what is left with the others.
_NAME_MIN, _TEXT_MIN = 20, 16


def widths_within(
    total: int,
    wanted: Mapping[str, int],
    *,
    least: Mapping[str, int],
    leaving: Sequence[str] = (),
) -> dict[str, int]:
    """The width of each column that is shown. `least` are the widths down to which columns shrink,
    those that come first get what is left; if that is not enough, those of `leaving` are left out,
    in their order."""
    shown = {name: min(width, least.get(name, width)) for name, width in wanted.items()}
    gone = iter(leaving)
    while sum(shown.values()) + _GAP * (len(shown) - 1) > total:
        name = next(gone, None)
        if name is None:
            break
        shown.pop(name, None)
    spare = total - sum(shown.values()) - _GAP * (len(shown) - 1)
    for name in least:
        if name in shown and spare > 0:
            more = min(wanted[name] - shown[name], spare)
            shown[name] += more
            spare -= more
    return shown


def without_middle(text: str, width: int) -> str:
    """The text in at most `width` characters: names of one topology often begin alike."""
    if len(text) <= width or width < 1:
        return text
    end = (width - 1) // 2
    return f"{text[: width - 1 - end]}…{text[len(text) - end :]}"


@dataclass(slots=True)
class FittingTable:
    """Rows of texts. `name` is the column whose texts lose their middle, `texts` those that lose
    their ends; numbers stand to the right; `leaving` as in `widths_within`."""

    columns: Sequence[str]
    numbers: frozenset[str]
    name: str
    texts: Sequence[str] = ()
    leaving: Sequence[str] = ()
    rows: list[Sequence[str | Text]] = field(default_factory=list)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        from rich.cells import cell_len
        from rich.table import Table
        from rich.text import Text

        wanted = {
            name: max(cell_len(str(one)) for one in (name, *(row[at] for row in self.rows)))
            for at, name in enumerate(self.columns)
        }
        widths = widths_within(
            options.max_width,
            wanted,
            least={self.name: _NAME_MIN, **dict.fromkeys(self.texts, _TEXT_MIN)},
            leaving=self.leaving,
        )
        table = Table(box=None, pad_edge=False, padding=(0, _GAP, 0, 0), header_style="bold")
        for name, width in widths.items():
            table.add_column(
                name,
                justify="right" if name in self.numbers else "left",
                no_wrap=True,
                width=width,
            )
        for row in self.rows:
            cells = dict(zip(self.columns, row, strict=True))
            # Text, so that the brackets of a name are not read as markup.
            table.add_row(
                *(
                    Text(without_middle(str(cells[name]), width))
                    if name == self.name
                    else Text(cell)
                    if isinstance(cell := cells[name], str)
                    else cell
                    for name, width in widths.items()
                )
            )
        yield table
