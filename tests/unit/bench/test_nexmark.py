"""What the benchmark of Nexmark measures, and its table."""

from __future__ import annotations

import pytest
from bench import auctions, nexmark


def test_every_query_with_event_time_or_none_is_measured() -> None:
    names = [case.name for case in nexmark.cases()]
    assert len(names) == 22
    assert "q12" not in names
    assert all(case.messages == case.tuples == nexmark.TOTAL for case in nexmark.cases())


@pytest.mark.parametrize("case", nexmark.cases(), ids=lambda case: case.name)
def test_a_case_builds(case: nexmark.Case) -> None:
    assert "answers" in auctions.query(case.name, 10).components


def test_the_table_has_events_a_core_second() -> None:
    row = {"title": "Hot items", "cpu_us_a_tuple": 12.5, "millions_a_core_sec": 0.08}
    (table,) = nexmark.tables({"pairs": 3, "cases": {"q5": row}})
    assert table.rows == [["q5", "Hot items", "12.5", "80"]]
