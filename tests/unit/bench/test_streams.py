"""What the benchmark of streams makes of what was measured."""

from __future__ import annotations

import pytest
from bench import streamed, streams


def row(us: list[float]) -> dict[str, object]:
    return {"title": "one", "cpu_us_a_tuple": us[0], "cpu_us_all": us}


@pytest.mark.parametrize(("factor", "verdict"), [(1.1, "1.15x: yes"), (1.2, "1.15x: NO")])
def test_streams_are_compared_with_bolts_of_the_same_round(
    factor: float, verdict: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    bolts = [1.0, 2.0, 4.0]
    report = {
        "pairs": 3,
        "cases": {
            "words_bolts": row(bolts),
            "words_streams": row([factor * us for us in bolts]),
        },
    }
    monkeypatch.setattr(streams, "measure", lambda chosen, pairs: report)
    measured = streams.take(3, {"words_streams"})
    assert measured["cases"]["words_streams"]["ratio_to_bolts"] == factor
    (table,) = streams.tables(measured)
    assert table.rows[1][-2:] == [f"{factor:.2f}x", verdict]


@pytest.mark.parametrize("kind", ["bolts", "streams"])
def test_both_kinds_have_the_components_that_are_counted(kind: str) -> None:
    assert {"split", "count"} < set(streamed.word_count(kind, 1, 1).components)
    assert "add3" in streamed.chain(kind, 1).components
