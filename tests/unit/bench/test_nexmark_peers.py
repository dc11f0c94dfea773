"""The queries of Nexmark on other systems: what is asked, what is compared, and the table."""

from __future__ import annotations

import pytest
from bench import nexmark_peers
from bench.peers.nexmark import flink
from bench.peers.nexmark.queries import QUERIES, standing


def test_all_queries_but_two_are_measured_on_flink() -> None:
    assert {case.name for case in nexmark_peers.cases()} == set(QUERIES)
    assert len(QUERIES) == 20
    assert all(case.messages == nexmark_peers.TOTAL for case in nexmark_peers.cases())


@pytest.mark.parametrize("query", QUERIES)
def test_a_query_is_one_line(query: str) -> None:
    assert not set(QUERIES[query].sql) & {"\n", "\t"}


def test_a_row_that_was_withdrawn_does_not_stand() -> None:
    changelog = ["+I\ta\t1", "-U\ta\t1", "+U\ta\t2", "+I\tb\t5", "-D\tb\t5", "+I\tc\t3"]
    assert standing(changelog) == [("a", "2"), ("c", "3")]


def test_events_are_written_for_java(tmp_path) -> None:
    from events import Generator  # type: ignore[import-not-found]

    event = Generator().event(0)
    flink.write_events([event], tmp_path / "events.tsv")
    kind, moment, *fields = (tmp_path / "events.tsv").read_text().rstrip("\n").split("\t")
    assert (kind, int(moment), fields) == ("0", event.at - 1, list(map(str, event)))


def test_a_system_that_was_left_out_has_empty_cells() -> None:
    row = {"title": "All bids", "squall": [0.2, 0.4, 0.2], "flink": [0.4], "bytewax": []}
    report = {"pairs": 3, "cases": {"q0": row}, "skipped": ["Bytewax: left out (no wheel)."]}
    (table,) = nexmark_peers.tables(report)
    assert table.rows == [["q0", "All bids", "1.00", "2.00", "0.50x", "", ""]]
    assert table.notes[-1] == "Bytewax: left out (no wheel)."
