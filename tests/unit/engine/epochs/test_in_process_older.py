"""Topologies that go on from what older versions of Squall have stored (`tests.support.old_formats`
writes it), exactly."""

from __future__ import annotations

import base64
import json
import struct
import zlib
from collections import Counter
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.support.old_formats import GROUPS, OldFolder, Task, sealed, task_of

from squall import (
    LocalCluster,
    RowBatch,
    Spout,
    SquallError,
    StatefulBolt,
    TopologyBuilder,
    TransactionalSink,
    Tuple,
    WindowedBolt,
)
from squall.testing import ReplayableSpout
from squall.windows import tumbling
from squall_common.state.checkpoint_store import CheckpointStore
from squall_common.state.errors import StateVersionError
from squall_common.state.inspect import last_checkpoint
from squall_common.state.savepoint import check_segments, open_savepoint
from squall_common.topology.serialization import Registry
from squall_engine.core.codec import ValueCodec
from squall_engine.epochs.background import Background
from squall_engine.epochs.parts import PartStore
from squall_engine.epochs.record import RecordFile
from squall_engine.epochs.savepoints import begin_with

WORDS = ("the", "cow", "jumped", "over", "the", "moon", "and", "ran", "away")
ROWS: list[list[Any]] = [[WORDS[i % len(WORDS)], i] for i in range(600)]
BEFORE = 100  # rows that the epoch has
SPLITS = 4
WINDOWS = Path(__file__).parent / "fixtures" / "windows-1.json"

NOTE = "note of the"  # a key of the owner "the"
TIMES = (None, 1_700_000_000_000)  # of a put; read only with a TTL

written: list[tuple[Any, ...]] = []
notes: set[Any] = set()
writers: set[str] = set()
applied: dict[str, int] = {}


@pytest.fixture(autouse=True)
def _clean() -> None:
    written.clear()
    notes.clear()
    writers.clear()
    applied.clear()


class Words(ReplayableSpout):
    outputs = ["word", "number"]


class Count(StatefulBolt):
    outputs = ["word", "count"]

    def execute(self, tup: Tuple) -> None:
        if tup["word"] == "the":
            notes.add(self.state.get(NOTE))
        count = self.state.get(tup["word"], 0) + 1
        self.state.put(tup["word"], count)
        self.emit([tup["word"], count])


class Fours(WindowedBolt):
    outputs = ["word", "numbers"]
    windows = tumbling(count=4, key="word")

    def execute_window(self, window: Any) -> None:
        self.emit([window.key, [tup["number"] for tup in window]])


class Write(TransactionalSink):
    def commit(self, batches: Sequence[RowBatch]) -> None:
        for batch in batches:
            writers.add(batch.writer)
            if applied.get(batch.writer, 0) < batch.epoch:
                written.extend((row[0], str(row[1])) for row in batch.rows)
                applied[batch.writer] = batch.epoch


def topology(*, tasks: int = 3) -> Any:
    builder = TopologyBuilder()
    builder.spout("words", Words(ROWS, splits=SPLITS), parallelism=2)
    builder.bolt("count", Count(), parallelism=tasks).fields("words", "word")
    builder.bolt("write", Write(), parallelism=2).shuffle("count")
    return builder.build()


def of_windows(*, tasks: int = 1, grouping: str = "fields") -> Any:
    """From one source, so that its order says which windows there are."""
    builder = TopologyBuilder()
    builder.spout("words", Words(ROWS))
    declarer = builder.bolt("count", Fours(), parallelism=tasks)
    declarer.fields("words", "word") if grouping == "fields" else declarer.shuffle("words")
    builder.bolt("write", Write()).shuffle("count")
    return builder.build()


def epoch_of_windows(folder: Path, entry: bytes) -> None:
    """An epoch in which this is the entry of all windows."""
    windows = Task([([["$windows", entry]], [], True)], keys=1, bound=1)
    words = Task(positions={0: BEFORE})
    OldFolder(folder).epoch({"words": [words], "count": [windows], "write": [Task()]})


def totals(rows: int) -> Counter[str]:
    return Counter(word for word, _ in ROWS[:rows])


def counts(first: int, last: int) -> Counter[tuple[str, str]]:
    """What the counts emit of rows from `first` to `last`."""
    before, after = totals(first), totals(last)
    return Counter((w, str(n)) for w in after for n in range(before[w] + 1, after[w] + 1))


def spouts() -> list[Task]:
    """Where two tasks read on. (A split is the task's of its number, by the stable hash of it.)"""
    positions = {split: BEFORE + split for split in range(SPLITS)}
    return [Task(positions=positions), Task()]  # whichever has it: each reads all


def states(tasks: int = 3) -> list[Task]:
    """The counts of the first rows: a base of half of them with an entry more, and what has changed
    since, which deletes it. Rows of each form that a segment can have."""
    half, all_ = totals(BEFORE // 2), totals(BEFORE)
    found = []
    for index in range(tasks):
        mine = [word for word in all_ if task_of(word, tasks) == index]
        gone = [w for w in ("gone", "lost", "past") if task_of(w, tasks) == index]
        base: list[list[Any]] = [[word, half[word]] for word in mine] + [
            [word, 99] for word in gone
        ]
        since: list[list[Any]] = [
            [word, all_[word], TIMES[at % len(TIMES)]] for at, word in enumerate(mine)
        ]
        if "the" in mine:
            since.append([NOTE, "kept", None, "the"])
        segments = [(base, [], True), (since, gone, False)] if base else []
        found.append(Task(segments, keys=len(mine) + ("the" in mine)))
    return found


def sinks(*history: str) -> list[Task]:
    """Rows of the first epochs that are not written yet."""
    rows = [[word, int(n)] for word, n in counts(0, BEFORE)]
    return [
        Task(batches={(0, 6, *history): rows[:10], (0, 7, *history): rows[10:50]}),
        Task(batches={(1, 7, *history): rows[50:]}),
    ]


def parts(*history: str) -> dict[str, list[Task]]:
    return {"words": spouts(), "count": states(), "write": sinks(*history)}


def has_written(least: int) -> bool:
    return len(written) >= least


def run(folder: Path, made: Any, wanted: Counter[tuple[str, str]]) -> None:
    conf = {"topology.checkpoint.interval.secs": 0.05, "topology.state.url": str(folder)}
    with LocalCluster() as cluster:
        cluster.submit_topology("words", conf, made)
        cluster.wait_until(partial(has_written, wanted.total()), 60.0)
    assert Counter(written) == wanted


@pytest.mark.parametrize("tasks", [3, 5])
def test_a_manifest_of_version_1_without_a_time_or_a_history(tmp_path: Path, tasks: int) -> None:
    """As the first version wrote it: writers of sinks are those that it has named."""
    OldFolder(tmp_path).epoch(parts())
    run(tmp_path, topology(tasks=tasks), counts(0, len(ROWS)))
    assert notes == {"kept"}
    assert writers == {"words/write/0", "words/write/1"}


def test_a_manifest_of_version_1_with_a_history(tmp_path: Path) -> None:
    OldFolder(tmp_path).epoch(parts("words@5be0117d9f31"), timed=True, history="words@5be0117d9f31")
    run(tmp_path, topology(), counts(0, len(ROWS)))
    assert writers == {"words@5be0117d9f31/write/0", "words@5be0117d9f31/write/1"}


def test_a_manifest_of_version_2(tmp_path: Path) -> None:
    OldFolder(tmp_path).epoch(
        parts("words@5be0117d9f31"), version=2, timed=True, history="words@5be0117d9f31"
    )
    run(tmp_path, topology(), counts(0, len(ROWS)))


def test_an_old_epoch_is_inspected_without_its_topology(tmp_path: Path) -> None:
    OldFolder(tmp_path).epoch(parts())
    found = last_checkpoint(CheckpointStore(str(tmp_path)), "words")
    assert found is not None
    assert (found.epoch, found.time_ms, found.version) == (7, 0, 1)
    assert sum(task.keys for task in found.components["count"].tasks) == len(totals(BEFORE)) + 1


@pytest.mark.parametrize("version", [1, 2])
async def test_a_savepoint_without_the_time_of_its_request(tmp_path: Path, version: int) -> None:
    place, folder = tmp_path / "kept", tmp_path / "state"
    OldFolder(place).savepoint(parts("words@5be0117d9f31"), version=version)
    check_segments(str(place), open_savepoint(str(place), "words"))
    store, background = (
        CheckpointStore(str(folder)),
        Background("words", on_failure=print, on_fault=print),
    )
    shape = {"words": 2, "count": 3, "write": 2}
    codec = ValueCodec(Registry(), allow_pickle=False, modules=())
    await begin_with(
        str(place),
        topology="words",
        start="words-1-1",
        record=RecordFile(store, "words", background),
        parts=PartStore(store, "words", shape, codec),
        store=store,
        background=background,
    )
    await background.close()
    run(folder, topology(), counts(0, len(ROWS)))


# ---- windows


def fours(first: int) -> Counter[tuple[str, str]]:
    """The windows of four that are full after the first rows."""
    found: Counter[tuple[str, str]] = Counter()
    for word in set(WORDS):
        numbers = [n for w, n in ROWS if w == word]
        for at in range(0, len(numbers) - 3, 4):
            if numbers[at + 3] >= first:
                found[word, str(numbers[at : at + 4])] += 1
    return found


@pytest.mark.parametrize("grouping", ["fields", "shuffle"])
def test_windows_as_one_entry_of_their_task(tmp_path: Path, grouping: str) -> None:
    """Also those that would be an entry for each key group now."""
    stored = json.loads(WINDOWS.read_text())
    data = base64.b64decode(stored["windows"])
    sources = [["words", stored["first_task"], 1]]
    epoch_of_windows(tmp_path, msgspec.msgpack.encode([[data, sources]]))
    run(tmp_path, of_windows(grouping=grouping), fours(BEFORE))


def test_windows_as_one_entry_keep_their_number_of_tasks(tmp_path: Path) -> None:
    epoch_of_windows(tmp_path, b"")
    conf = {"topology.checkpoint.interval.secs": 1, "topology.state.url": str(tmp_path)}
    with LocalCluster() as cluster, pytest.raises(SquallError, match="belongs to its tasks"):
        cluster.submit_topology("words", conf, of_windows(tasks=2))


def test_windows_of_before_they_named_their_sources_are_refused_by_name(tmp_path: Path) -> None:
    """They were [format, windows, rows, objects], and no pair with the tasks of their sources."""
    epoch_of_windows(tmp_path, msgspec.msgpack.encode([[1, "WindowPlan()", [], b""]]))
    conf = {"topology.checkpoint.interval.secs": 1, "topology.state.url": str(tmp_path)}
    with LocalCluster() as cluster, pytest.raises(SquallError, match="an older version of Squall"):
        cluster.submit_topology("words", conf, of_windows())


# ---- state without checkpoints


@pytest.mark.parametrize("tasks", [3, 2])
def test_a_first_layout_without_a_marker(tmp_path: Path, tasks: int) -> None:
    before = totals(BEFORE)
    rows = [[[w, n] for w, n in before.items() if task_of(w, 3) == index] for index in range(3)]
    OldFolder(tmp_path).stored("seen", rows)
    builder = TopologyBuilder()
    builder.spout("numbers", Numbers())
    conf = {"topology.state.max.parallelism": GROUPS}
    builder.bolt("seen", Seen(), parallelism=tasks, conf=conf).fields("numbers", "word")
    stored = {"topology.state.provider": "store", "topology.state.url": str(tmp_path)}
    with LocalCluster() as cluster:
        cluster.submit_topology("words", stored, builder.build())
        cluster.wait_until(partial(has_written, len(before)), 60.0)
    assert dict(written) == {word: str(count) for word, count in before.items()}


class Numbers(Spout):
    outputs = ["word"]

    def open(self, conf: Any, context: Any) -> None:
        self.left = sorted(set(WORDS))

    def next_tuple(self) -> None:
        if self.left:
            self.emit([self.left.pop()], message_id=len(self.left))


class Seen(StatefulBolt):
    def execute(self, tup: Tuple) -> None:
        written.append((tup["word"], str(self.state.get(tup["word"]))))


# ---- what is newer


def test_a_record_of_a_newer_version_is_not_called_damaged(tmp_path: Path) -> None:
    folder = OldFolder(tmp_path)
    folder.epoch(parts())
    folder.write("words/record", sealed(b"SQREC\0\0\x02", b"whatever it will be"))
    conf = {"topology.checkpoint.interval.secs": 1, "topology.state.url": str(tmp_path)}
    with LocalCluster() as cluster, pytest.raises(StateVersionError, match="has version 2"):
        cluster.submit_topology("words", conf, topology())


def test_a_manifest_of_a_newer_version_is_refused_by_name(tmp_path: Path) -> None:
    folder = OldFolder(tmp_path)
    folder.epoch(parts())
    name = "words/manifests/00000001-000000000007"
    body = (tmp_path / name).read_bytes()[12:]
    head = b"SQSTMAN\x03" + struct.pack("<I", zlib.crc32(body))
    folder.write(name, head + body)
    conf = {"topology.checkpoint.interval.secs": 1, "topology.state.url": str(tmp_path)}
    with LocalCluster() as cluster, pytest.raises(StateVersionError, match="has version 3"):
        cluster.submit_topology("words", conf, topology())
