"""Tables that fit their terminal."""

from __future__ import annotations

import io

from rich.console import Console
from rich.text import Text

from squall_cli.observe.fitting import FittingTable, widths_within, without_middle


def test_a_long_column_gives_way_before_another_leaves() -> None:
    wanted = {"NAME": 60, "STATUS": 8, "RATE": 6}
    least = {"NAME": 20}
    assert widths_within(100, wanted, least=least, leaving=["RATE"]) == wanted
    assert widths_within(50, wanted, least=least, leaving=["RATE"]) == {**wanted, "NAME": 32}
    assert widths_within(37, wanted, least=least, leaving=["RATE"]) == {"NAME": 27, "STATUS": 8}


def test_the_first_of_two_that_shrink_gets_what_is_left() -> None:
    wanted = {"NAME": 30, "RATE": 6, "ERROR": 200}
    found = widths_within(80, wanted, least={"NAME": 20, "ERROR": 16})
    assert found == {"NAME": 30, "RATE": 6, "ERROR": 40}


def test_a_terminal_that_is_too_narrow_for_anything_keeps_what_does_not_leave() -> None:
    wanted = {"NAME": 30, "STATUS": 8, "RATE": 6}
    found = widths_within(10, wanted, least={"NAME": 20}, leaving=["RATE", "OTHER"])
    assert found == {"NAME": 20, "STATUS": 8}


def test_the_middle_of_a_name_is_left_out() -> None:
    assert without_middle("short", 5) == "short"
    assert without_middle("enrich-step-03", 9) == "enri…p-03"
    assert without_middle("enrich-step-03", 8) == "enri…-03"
    assert without_middle("enrich", 1) == "…"
    assert without_middle("enrich", 0) == "enrich"


def test_what_looks_like_markup_is_shown_as_it_is() -> None:
    table = FittingTable(("NAME", "STATUS"), frozenset(), name="NAME")
    table.rows.append(("[red]x[/red]", Text("ACTIVE")))
    out = io.StringIO()
    Console(file=out, width=40).print(table)
    assert [line.split() for line in out.getvalue().splitlines()] == [
        ["NAME", "STATUS"],
        ["[red]x[/red]", "ACTIVE"],
    ]
