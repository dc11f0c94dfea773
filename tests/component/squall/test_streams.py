"""Streams on the local engine: real time, several tasks, and failures that are replayed."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support import stream_steps as steps

from squall import InvalidTopologyError, LocalCluster, SquallError, StreamBuilder
from squall._import_check import ImportCheck, recorded_in
from squall.windows import tumbling

COUNT = 500
WORDS = Counter(word for n in range(COUNT) for word in steps.line_of(n).split())


@pytest.fixture(autouse=True)
def _forget() -> Iterator[None]:
    steps.KEPT.clear()
    steps.FAILED.clear()
    yield
    steps.KEPT.clear()
    steps.FAILED.clear()


def test_running_counts_reach_the_totals() -> None:
    builder = StreamBuilder(parallelism=3)
    words = builder.source("lines", steps.FiniteLines(COUNT)).flat_map(steps.line_in)
    words.key_by().count().to("keep", steps.Keep(), fields=["word", "count"])
    with LocalCluster() as cluster:
        cluster.submit_topology("words", {}, builder.build())
        cluster.wait_until(lambda: len(steps.KEPT) == WORDS.total(), 60)
        assert cluster.failed_messages("words") == 0
    largest: Counter[str] = Counter()
    for row in steps.KEPT:
        largest[row["word"]] = max(largest[row["word"]], row["count"])
    assert largest == WORDS


@pytest.mark.parametrize("sinks", [1, 3])
def test_the_last_row_of_a_key_is_its_last_count(sinks: int) -> None:
    """A table that keeps a row for each key is wrong if counts overtake each other."""
    builder = StreamBuilder(parallelism=3)
    words = builder.source("lines", steps.FiniteLines(COUNT)).flat_map(steps.line_in)
    counts = words.key_by().count().map(steps.unchanged)
    counts.to("keep", steps.Keep(), fields=["word", "count"], parallelism=sinks)
    with LocalCluster() as cluster:
        cluster.submit_topology("words", {}, builder.build())
        cluster.wait_until(lambda: len(steps.KEPT) == WORDS.total(), 60)
    last: dict[str, int] = {}
    for row in steps.KEPT:
        assert row["count"] > last.get(row["word"], 0)
        last[row["word"]] = row["count"]
    assert last == WORDS


def test_a_dead_letter_has_the_exception_of_the_function_as_its_reason(tmp_path: Path) -> None:
    builder = StreamBuilder()
    numbers = builder.source("numbers", steps.ManyNumbers([[n] for n in range(20)]), of=int)
    numbers.map(steps.fail_on_three).named("picky").print()
    topology = builder.to_topology_builder()
    topology.bolt("morgue", steps.Keep()).shuffle("picky", stream="__dead_letter")
    conf = {"topology.checkpoint.interval.secs": 0.1, "topology.state.url": str(tmp_path)}
    with LocalCluster() as cluster:
        cluster.submit_topology("picky", conf, topology.build())
        cluster.wait_until(lambda: bool(steps.KEPT), 60)
    (letter,) = steps.KEPT
    assert letter["values"] == [3]
    assert re.fullmatch(
        r"ValueError: three is not allowed \(in map\(fail_on_three\), test_streams.py:\d+, "
        r"for the value 3\)",
        letter["reason"],
    )


@pytest.mark.parametrize(
    ("call", "add"),
    [
        (lambda keyed: keyed.aggregate(list, steps.collect), "aggregate(collect)"),
        (
            lambda keyed: keyed.update_state_by_key(steps.collect, list),
            "update_state_by_key(collect)",
        ),
        (lambda keyed: keyed.process(steps.collect_in_state), "process(collect_in_state)"),
    ],
    ids=["aggregate", "update_state_by_key", "process"],
)
def test_a_total_that_gets_a_value_without_an_encoding_fails_with_that_value_alone(
    tmp_path: Path, call: Callable[[Any], Any], add: str
) -> None:
    """The other values of the key count, those that come later, too, and checkpoints complete."""
    builder = StreamBuilder()
    numbers = builder.source("numbers", steps.ManyNumbers([[n] for n in range(20)]), of=int)
    call(numbers.key_by(steps.parity)).named("totals")
    topology = builder.to_topology_builder()
    topology.bolt("morgue", steps.Keep()).shuffle("totals", stream="__dead_letter")
    topology.bolt("kept", steps.Keep()).shuffle("totals")
    conf = {"topology.checkpoint.interval.secs": 0.1, "topology.state.url": str(tmp_path)}
    with LocalCluster() as cluster:
        cluster.submit_topology("totals", conf, topology.build())
        cluster.wait_until(lambda: len(steps.KEPT) == 20, 60)
        epoch = cluster.checkpoints("totals").epoch
        cluster.wait_until(lambda: cluster.checkpoints("totals").epoch > epoch + 1, 60)
    (letter,) = [row for row in steps.KEPT if "reason" in row]
    assert letter["values"] == ["odd", 3]
    assert letter["component"] == "totals"
    where = rf"\(in {re.escape(add)}, test_streams.py:\d+, for the value 3\)"
    said = (
        "StateValueError: the state of key 'odd' cannot be stored: a value of type builtins:object "
    )
    assert re.fullmatch(rf"{said}has no encoding\n.*{where}", letter["reason"])


def test_an_error_that_ends_a_topology_names_the_function_and_its_line(tmp_path: Path) -> None:
    builder = StreamBuilder()
    numbers = builder.source("numbers", steps.ManyNumbers([[n] for n in range(20)]), of=int)
    numbers.map(steps.fail_on_three).print()
    conf = {"topology.checkpoint.interval.secs": 0.1, "topology.state.url": str(tmp_path)}
    with LocalCluster() as cluster:
        cluster.submit_topology("picky", conf, builder.build())
        with pytest.raises(SquallError) as caught:
            cluster.wait(60)
    assert "three is not allowed (in map(fail_on_three), test_streams.py:" in str(caught.value)


def test_without_checkpoints_a_reason_names_the_function_as_well() -> None:
    builder = StreamBuilder()
    lines = builder.source("lines", steps.FiniteLines(20))
    lines.map(steps.fails_once).named("picky").print()
    topology = builder.to_topology_builder()
    topology.bolt("morgue", steps.Keep()).shuffle("lines", stream="__dead_letter")
    with LocalCluster() as cluster:
        cluster.submit_topology("picky", {"topology.max.replays": 0}, topology.build())
        cluster.wait_until(lambda: bool(steps.KEPT), 60)
    assert "(in map(fails_once), test_streams.py:" in steps.KEPT[0]["reason"]


def test_counts_of_windows_are_exact() -> None:
    """Ten lines a window; the last window waits for what comes after it."""
    builder = StreamBuilder(parallelism=2)
    lines = builder.source("lines", steps.FiniteLines(COUNT + 1)).event_time(
        steps.row_time, watermark_interval_secs=0.1
    )
    words = lines.flat_map(steps.line_in).named("split", parallelism=1)
    words.key_by().window(tumbling(secs=0.01)).count().to("keep", steps.Keep())
    expected = Counter(
        ((n + 9) // 10 * 10, word) for n in range(COUNT) for word in steps.line_of(n).split()
    )
    last = max(end for end, _ in expected)
    expected = Counter({key: count for key, count in expected.items() if key[0] < last})
    with LocalCluster() as cluster:
        cluster.submit_topology("words", {}, builder.build())
        cluster.wait_until(lambda: len(steps.KEPT) >= len(expected), 60)
    found = {(row["end_ms"], row["key"]): row["value"] for row in steps.KEPT}
    assert {key: count for key, count in found.items() if key[0] < last} == expected


def test_a_value_that_fails_once_is_replayed() -> None:
    builder = StreamBuilder()
    lines = builder.source("lines", steps.FiniteLines(20)).map(steps.fails_once)
    lines.to("keep", steps.Keep())
    with LocalCluster() as cluster:
        cluster.submit_topology("words", {}, builder.build())
        cluster.wait_until(lambda: len(steps.KEPT) == 20, 60)
        errors = cluster.errors("words")
    assert sorted(row["value"] for row in steps.KEPT) == sorted(map(steps.line_of, range(20)))
    assert len(errors) == 1
    assert "map(fails_once)" in errors[0].error.__notes__[0]


def test_a_function_that_no_worker_could_import_is_refused_before_the_upload(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "only_here.py").write_text("def shout(line):\n    return line.upper()\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    import only_here  # type: ignore[import-not-found]

    builder = StreamBuilder()
    builder.source("lines", steps.Lines()).map(only_here.shout).print()
    recorded = [one for one in recorded_in(builder.build()) if "StepsBolt" in one.object.class_path]
    check = ImportCheck(None, recorded)
    check.start()
    with pytest.raises(InvalidTopologyError, match="only_here"):
        check.wait_result()
