"""What a filter saves, by the names of folders."""

from __future__ import annotations

import pytest

from squall_spark.view.pruning import folders_of, remaining

FILES = [f"/in/day={day}/sku={sku}/a.parquet" for day in (1, 2, 10) for sku in ("a", "b%20c")]


def test_folders_name_columns() -> None:
    assert folders_of("/in/day=1/sku=b%20c/x=y.parquet") == {"day": "1", "sku": "b c"}
    assert folders_of("/in/a.parquet") == {}


@pytest.mark.parametrize(
    ("condition", "read"),
    [
        ("day = 1", 2),
        ("DAY >= 2 AND price < 6", 4),
        ("day > 1 and sku = 'b c'", 2),
        ("sku <> 'a'", 3),
        ("`day` <= 1.5", 2),
        ("price < 6", 6),
        # Spark's to decide:
        ("day = 1 or price < 6", 6),
        ("not (day = 1)", 6),
        ("day = '1'", 6),
        ("sku <> 'x and day = 1 and y'", 6),
        ("case when true and day = 1 and true then true else true end", 6),
        ("year(day) = 1", 6),
        ("sku > 'a'", 6),
        ("day between 1 and 2", 6),
    ],
)
def test_files_that_a_filter_leaves(condition: str, read: int) -> None:
    assert len(remaining(FILES, condition)) == read


def test_a_folder_without_a_value_matches_no_comparison() -> None:
    assert remaining(["/in/day=__HIVE_DEFAULT_PARTITION__/a"], "day <> 1") == []
