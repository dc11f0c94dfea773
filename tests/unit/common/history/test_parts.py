"""The pure parts of the history: latencies in buckets, the heaviest keys, rows in files."""

from __future__ import annotations

import importlib.util
import math
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as some

from squall_common.history.heavy import KEY_CHARS_MAX, HeavyKeys, key_text
from squall_common.history.histogram import (
    BUCKET_MAX,
    bucket_of,
    less,
    merge,
    pack,
    percentile,
    secs_of,
    unpack,
    upper_secs,
)
from squall_common.history.schema import OtherVersionError, Row, from_parquet, to_parquet

needs_pyarrow = pytest.mark.skipif(
    importlib.util.find_spec("pyarrow") is None, reason="no PyArrow: pip install -e '.[history]'"
)
SECS = some.floats(min_value=2e-6, max_value=1e5)
HISTOGRAMS = some.dictionaries(some.integers(0, BUCKET_MAX), some.integers(1, 2**40))


@given(SECS)
def test_a_bucket_stands_for_its_values_to_within_five_percent(secs: float) -> None:
    assert abs(secs_of(bucket_of(secs)) / secs - 1) < 0.05


def test_latencies_at_both_ends_have_a_bucket() -> None:
    assert bucket_of(0.0) == bucket_of(-3.0) == bucket_of(1e-6) == 0
    assert bucket_of(1e30) == BUCKET_MAX
    assert secs_of(0) == 1e-6


@given(some.lists(SECS, min_size=1), some.integers(0, 5), some.floats(0, 1))
def test_a_percentile_of_merged_parts_is_that_of_the_whole(
    values: list[float], parts: int, share: float
) -> None:
    histogram: dict[int, int] = {}
    for part in range(parts + 1):
        merge(histogram, Counter(bucket_of(v) for v in values[part :: parts + 1]))
    found = percentile(histogram, share)
    exact = sorted(values)[max(1, math.ceil(share * len(values))) - 1]
    assert found is not None
    assert abs(found / exact - 1) < 0.05


@given(SECS)
def test_a_bucket_holds_the_values_up_to_its_upper_bound(secs: float) -> None:
    bucket = bucket_of(secs)
    assert upper_secs(bucket - 1) * 0.999999 <= secs <= upper_secs(bucket) * 1.000001


@given(HISTOGRAMS)
def test_a_packed_histogram_comes_back(histogram: dict[int, int]) -> None:
    assert unpack(pack(histogram)) == histogram


@given(HISTOGRAMS, HISTOGRAMS)
def test_what_was_in_a_histogram_before_is_taken_out(
    before: dict[int, int], since: dict[int, int]
) -> None:
    whole = dict(before)
    merge(whole, since)
    assert unpack(less(pack(whole), pack(before))) == since


@given(some.binary(max_size=40))
def test_bytes_of_anybody_are_a_histogram_or_refused(data: bytes) -> None:
    try:
        found = unpack(data)
    except ValueError:
        return
    assert all(0 <= bucket <= BUCKET_MAX and count > 0 for bucket, count in found.items())


def test_nothing_has_no_percentile() -> None:
    assert percentile({}, 0.5) is None
    assert percentile({3: 0}, 0.5) is None


@given(some.lists(some.sampled_from("abcdefgh"), max_size=300), some.integers(1, 6))
def test_counts_of_heavy_keys_are_too_low_by_no_more_than_their_error(
    keys: list[str], keys_max: int
) -> None:
    heavy, exact = HeavyKeys(keys_max), Counter(keys)
    for key in keys:
        heavy.add(key)
    assert heavy.total == len(keys)
    assert len(heavy.counts) <= keys_max
    assert heavy.error <= len(keys) / (keys_max + 1)
    for key, count in exact.items():
        assert count - heavy.error <= heavy.counts.get(key, 0) <= count
    assert set(heavy.counts) <= set(exact)
    assert [n for _, n in heavy.top(3)] == sorted(heavy.counts.values(), reverse=True)[:3]


def test_a_key_is_text_of_bounded_length() -> None:
    class Rude:
        def __repr__(self) -> str:
            raise RuntimeError("no")

    assert key_text("a b") == "a b"
    assert key_text(("a", 1)) == "('a', 1)"
    assert key_text(Rude()) == "<RuntimeError in repr>"
    assert len(key_text("x" * 10_000)) == KEY_CHARS_MAX


@needs_pyarrow
def test_rows_come_back_from_a_file() -> None:
    rows = [
        Row(1, "latency", "execute", "b", 3, 2, "a:default", 0.5, 7, 0.25, buckets={4: 5, 9: 2}),
        Row(2, "key", text="half a \ud800 pair"),
        Row(3, "event", "submitted"),
    ]
    table = from_parquet(to_parquet(rows, worker="h:1", incarnation="a.1"), "x").to_pylist()
    assert [(r["at_ms"], r["kind"], r["worker"]) for r in table] == [
        (1, "latency", "h:1"),
        (2, "key", "h:1"),
        (3, "event", "h:1"),
    ]
    assert table[0]["buckets"] == [(4, 5), (9, 2)]
    assert table[0]["n"] == 7
    assert table[1]["text"] == "half a ? pair"
    assert table[2]["buckets"] is None
    assert from_parquet(to_parquet([], worker="", incarnation=""), "x").num_rows == 0


@needs_pyarrow
def test_a_file_of_another_version_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("squall_common.history.schema.VERSION", "999")
    data = to_parquet([Row(1, "event")], worker="", incarnation="")
    monkeypatch.undo()
    with pytest.raises(OtherVersionError, match=r"f\.parquet .*another version.* 999; .* reads 1"):
        from_parquet(data, "f.parquet")


@needs_pyarrow
def test_a_parquet_file_that_squall_did_not_write_is_not_a_history() -> None:
    import io

    import pyarrow as pa
    import pyarrow.parquet as pq

    out = io.BytesIO()
    pq.write_table(pa.table({"x": [1]}), out)
    with pytest.raises(OtherVersionError, match="not a file of a topology's history"):
        from_parquet(out.getvalue(), "f")
    with pytest.raises(pa.ArrowException):
        from_parquet(out.getvalue()[:-20], "half")
