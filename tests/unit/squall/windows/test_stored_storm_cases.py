"""What Apache Storm's tests of windows with state say: of checkpoints, and of windows larger than
memory. (test_storm_cases has the others.)"""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.support.window_cases import StormsTests

from squall import LocalCluster, RowBatch, TopologyBuilder, TransactionalSink, WindowedBolt
from squall.testing import BoltTest, ReplayableSpout
from squall.windows import EventTime, on_disk, tumbling
from squall.windows.on_disk import DiskRow, DiskRows
from squall_common.config.options.typed import TopologyOptions
from squall_common.errors import ConfigError
from squall_common.state.errors import StateStoreError
from squall_common.topology.serialization import Registry
from squall_engine.embed import ValueCodec

CODEC = ValueCodec(Registry(), allow_pickle=False)
IN_MEMORY = "topology.bolts.window.tuples.in.memory.max"
PERSISTENT = "PersistentWindowedBoltExecutorTest"
STATEFUL = "StatefulWindowedBoltExecutorTest"
STATE = "WindowStateTest"
CACHE = "SimpleWindowPartitionCacheTest"
storm = StormsTests(PERSISTENT, STATEFUL, STATE, CACHE)


def test_the_page_says_which_of_storms_tests_have_one_here() -> None:
    assert storm.tested == storm.listed()


# -- checkpoints --

written: dict[str, list[Any]] = {}
applied: dict[str, int] = {}


@pytest.fixture(autouse=True)
def _clean() -> None:
    written.clear()
    applied.clear()


class Rows(ReplayableSpout):
    outputs = ("item", "at")


class Write(TransactionalSink):
    def __init__(self, name: str) -> None:
        self.name = name

    def commit(self, batches: Sequence[RowBatch]) -> None:
        for batch in batches:
            if applied.get(batch.writer, 0) < batch.epoch:
                written.setdefault(self.name, []).extend(row[0] for row in batch.rows)
                applied[batch.writer] = batch.epoch


class Thrice(WindowedBolt):
    """Emits a window that it has gone through three times."""

    outputs = ("items",)

    def execute_window(self, window: Any) -> None:
        first, *again = ([tup["item"] for tup in window.get()] for _ in range(3))
        assert again == [first, first]
        self.emit([first])


def with_checkpoints(folder: Path, interval_secs: float = 0.05) -> dict[str, Any]:
    return {
        "topology.checkpoint.interval.secs": interval_secs,
        "topology.state.url": str(folder),
    }


def by_five(rows: int) -> Any:
    builder = TopologyBuilder()
    builder.spout("s", Rows([[item, 0] for item in range(rows)]))
    builder.bolt("w", Thrice()).windowed(tumbling(count=5)).shuffle("s")
    builder.bolt("write", Write("windows")).shuffle("w")
    return builder.build()


@storm(
    f"{PERSISTENT}.testExecuteTuple",
    f"{PERSISTENT}.testActivation",
    f"{PERSISTENT}.testRollbackAfterInit",
    f"{STATEFUL}.testPrepare",  # there is no message id
    f"{STATEFUL}.testExecute",
    f"{STATEFUL}.testRecovery",
)
def test_windows_go_on_from_their_checkpoint_and_tuples_are_acked_when_it_has_them(
    tmp_path: Path,
) -> None:
    conf = with_checkpoints(tmp_path)
    with LocalCluster() as cluster:
        cluster.submit_topology("five", conf, by_five(7))
        # All seven are acked, also the two that wait for a window.
        cluster.wait_until(lambda: cluster.totals("five")["w"]["acked"] == 7, 30.0)
        cluster.wait_until(lambda: written.get("windows") == [[0, 1, 2, 3, 4]], 30.0)
        assert cluster.totals("five")["w"]["failed"] == 0
    with LocalCluster() as cluster:
        cluster.submit_topology("five", conf, by_five(12))
        cluster.wait_until(lambda: len(written["windows"]) > 1, 30.0)
        assert written["windows"] == [[0, 1, 2, 3, 4], [5, 6, 7, 8, 9]]


@storm(f"{PERSISTENT}.testRollbackBeforeInit")
def test_windows_without_a_checkpoint_begin_anew(tmp_path: Path) -> None:
    with LocalCluster() as cluster:
        cluster.submit_topology("five", with_checkpoints(tmp_path, 3600), by_five(7))
        cluster.wait_until(lambda: cluster.totals("five")["w"]["executed"] == 7, 30.0)
    with LocalCluster() as cluster:
        cluster.submit_topology("five", with_checkpoints(tmp_path), by_five(12))
        cluster.wait_until(lambda: len(written.get("windows", ())) > 1, 30.0)
        assert written["windows"] == [[0, 1, 2, 3, 4], [5, 6, 7, 8, 9]]


@storm(f"{PERSISTENT}.testExecuteLatetuple")
def test_a_late_tuple_is_acked_once_and_goes_to_its_stream_with_checkpoints(tmp_path: Path) -> None:
    times = [1000, 2000, 500]

    def build(rows: int) -> Any:
        builder = TopologyBuilder()
        builder.spout("s", Rows([[at, at] for at in times[:rows]]))
        event_time = EventTime("at", watermark_interval_secs=0.01, late_stream="late")
        builder.bolt("w", Thrice()).windowed(tumbling(secs=1, event_time=event_time)).shuffle("s")
        builder.bolt("write", Write("windows")).shuffle("w")
        builder.bolt("late", Write("late")).shuffle("w", stream="late")
        return builder.build()

    conf = with_checkpoints(tmp_path)
    with LocalCluster() as cluster:
        cluster.submit_topology("late", conf, build(2))
        cluster.wait_until(lambda: written.get("windows") == [[1000], [2000]], 30.0)
    with LocalCluster() as cluster:
        cluster.submit_topology("late", conf, build(3))
        cluster.wait_until(lambda: "late" in written, 30.0)
        (late,) = written["late"]
        assert late["values"] == {"item": 500, "at": 500}
        totals = cluster.totals("late")["w"]
        assert (totals["acked"], totals["failed"]) == (1, 0)
    assert written["windows"] == [[1000], [2000]]


@storm(f"{STATEFUL}.testPrepareWithMsgid")
def test_a_bolt_may_name_a_field_that_identifies_tuples() -> None:
    conf = {"topology.bolts.message.id.field.name": "item"}
    with BoltTest(Thrice(), {"s": ["item", "at"]}, conf, windows=tumbling(count=5)) as test:
        for item in (0, 1, 2, 2, 1, 3, 4):  # two of them come again
            test.execute([item, 0])
        assert [one.values[0] for one in test.test.emitted("bolt")] == [[0, 1, 2, 3, 4]]


# -- windows larger than memory --


def read(bolt: WindowedBolt) -> dict[str, int]:
    return bolt._squall_shell.sizes()


@storm(f"{PERSISTENT}.testCacheEviction", f"{STATE}.testAdd", f"{STATE}.testIterator")
def test_tuples_above_the_bound_are_on_disk_and_in_their_windows(tmp_path: Path) -> None:
    windows = tumbling(count=5, event_time=EventTime("at", watermark_interval_secs=60))
    conf = {IN_MEMORY: 1000, "topology.state.backend.folder": str(tmp_path)}
    with BoltTest(Thrice(), {"s": ["item", "at"]}, conf, windows=windows) as test:
        for item in range(1500):
            test.test.feed("s", [item, 1000], message_id=item)
        test.test.run_until(lambda: len(test.test.emitted("s")) == 1500)
        (bolt,) = test.test.instances("bolt")
        assert (read(bolt)["tuples"], read(bolt)["tuples_on_disk"]) == (1500, 500)
        test.run_for(60)
        found = [one.values[0] for one in test.test.emitted("bolt")]
        assert found == [list(range(first, first + 5)) for first in range(0, 1500, 5)]
        assert (read(bolt)["tuples"], read(bolt)["tuples_on_disk"]) == (0, 0)
        assert test.test.acked("s") == list(range(1500))
        assert test.test.errors == []


@storm(f"{CACHE}.testBuildInvalid1", f"{CACHE}.testBuildInvalid2")
@pytest.mark.parametrize("bound", [0, -1])
def test_a_bound_below_one_is_refused(bound: int) -> None:
    with pytest.raises(ConfigError, match=re.escape(IN_MEMORY)):
        TopologyOptions.read({IN_MEMORY: bound})


@storm(f"{CACHE}.testBuildOk")
def test_a_bound_of_one_is_enough() -> None:
    with BoltTest(Thrice(), {"s": ["item"]}, {IN_MEMORY: 1}, windows=tumbling(count=3)) as test:
        for item in range(3):
            test.execute([item])
        assert [one.values[0] for one in test.test.emitted("bolt")] == [[0, 1, 2]]


def rows_of(folder: Path, count: int, first: int = 0) -> tuple[DiskRows, list[DiskRow]]:
    rows = DiskRows(CODEC, str(folder))
    return rows, more(rows, count, first)


def more(rows: DiskRows, count: int, first: int) -> list[DiskRow]:
    found = rows.add([([item, "x" * 100], None, None) for item in range(first, first + count)])
    rows.settle()
    assert all(isinstance(one, DiskRow) for one in found)
    return found  # type: ignore[return-value]


def in_memory(rows: Sequence[DiskRow]) -> list[int]:
    return [at for at, row in enumerate(rows) if row._loaded is not None]


@storm(f"{CACHE}.testGet", f"{CACHE}.testEvictNoRemovalListener")
def test_of_what_was_read_a_few_are_in_memory_and_then_none(tmp_path: Path) -> None:
    rows, found = rows_of(tmp_path, 20)
    for at in range(20):
        assert found[at][0] == at
        assert in_memory(found) == list(range(max(0, at - on_disk._RECENT + 1), at + 1))
    rows.settle()
    assert in_memory(found) == []
    assert found[3][0] == 3


@storm(f"{CACHE}.testPinAndGet", f"{CACHE}.testInvalidate", f"{CACHE}.testEviction")
def test_what_the_bolt_holds_on_to_stays_whatever_else_is_read(tmp_path: Path) -> None:
    rows, found = rows_of(tmp_path, 20)
    held = found[0].__iter__()
    assert next(held) == 0
    for row in found[1:]:
        assert len(row) == 2
    rows.settle()
    assert in_memory(found) == []
    assert next(held) == "x" * 100
    assert found[0] == [0, "x" * 100]  # and is read again


@storm(f"{STATE}.testIteratorPartitionNotEvicted")
def test_tuples_may_be_written_while_others_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(on_disk, "_FILE_BYTES_MIN", 1_000)
    monkeypatch.setattr(on_disk, "_WASTE_BYTES_MIN", 1_000)
    rows, found = rows_of(tmp_path, 100)
    going = iter(found)
    half = [next(going)[0] for _ in range(50)]
    added = more(rows, 100, 100)
    del added[::2]
    rows.compact([*found, *added])  # the files are others now
    assert half + [row[0] for row in going] == list(range(100))
    assert [row[0] for row in added] == list(range(101, 200, 2))


@storm(f"{CACHE}.testConcurrentGet")
def test_two_threads_read_the_same_row(tmp_path: Path) -> None:
    _, found = rows_of(tmp_path, 50)
    start = threading.Barrier(2)
    seen: list[list[int]] = []

    def go_through() -> None:
        start.wait()
        seen.append([row[0] for row in found for _ in range(3)])

    threads = [threading.Thread(target=go_through) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert seen == [[at for at in range(50) for _ in range(3)]] * 2
    assert len(in_memory(found)) <= on_disk._RECENT


@storm(f"{CACHE}.testGetNull")
def test_a_row_that_cannot_be_read_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, (row,) = rows_of(tmp_path, 1)
    with monkeypatch.context() as patch:
        patch.setattr(os, "pread", lambda *_: b"")
        with pytest.raises(StateStoreError, match="could not read"):
            row[0]
    assert row[0] == 0
