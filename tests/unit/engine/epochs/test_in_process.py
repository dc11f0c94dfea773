"""A topology with checkpoints in one process: stopped, ended by a fault, started again."""

from __future__ import annotations

import asyncio
import re
import shutil
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import pytest

from squall import (
    AggregateBolt,
    Bolt,
    LocalCluster,
    RowBatch,
    SquallError,
    StatefulBolt,
    TopologyBuilder,
    TransactionalSink,
    Tuple,
)
from squall.testing import ReplayableSpout
from squall.windows import tumbling
from squall_common.state.checkpoint_store import CheckpointStore
from squall_common.state.errors import SnapshotError, StateDamagedError, StateStoreError
from squall_common.state.inspect import last_checkpoint
from squall_common.state.manifest import decode_manifest
from squall_engine.core.codec import CodecError
from squall_engine.epochs import coordinating, in_process
from squall_engine.epochs.driver import EpochDriver
from squall_engine.epochs.in_process import InProcessEpochs
from squall_engine.epochs.messages import Completed, Release, ToWorker
from squall_engine.epochs.parts import PartStore
from squall_engine.epochs.record import RecordFile
from squall_engine.epochs.taking_part import TakingPart
from squall_engine.loading import ComponentStartError

WORDS = ("the", "cow", "jumped", "over", "the", "moon", "and", "ran", "away")
ROWS: list[list[Any]] = [[WORDS[i % len(WORDS)], i] for i in range(2_000)]

# What the sinks of this process have written: (word, count), and up to which epoch.
written: list[tuple[str, int]] = []
applied: dict[str, int] = {}
# What bolts do with a tuple, by its number.
on_tuple: dict[int, Callable[[], None]] = {}


@pytest.fixture(autouse=True)
def _clean() -> None:
    written.clear()
    applied.clear()
    on_tuple.clear()


class Words(ReplayableSpout):
    outputs = ["word", "number"]


class Count(StatefulBolt):
    outputs = ["word", "count"]

    def execute(self, tup: Tuple) -> None:
        count = self.state.get(tup["word"], 0) + 1
        self.state.put(tup["word"], count)
        self.emit([tup["word"], count])
        on_tuple.get(tup["number"], lambda: None)()


class CountInPlace(StatefulBolt):
    outputs = ["word", "count"]
    blocking = True

    def execute(self, tup: Tuple) -> None:
        counts = self.state.get("all")
        if counts is None:
            counts = {}
            self.state.put("all", counts)
        counts[tup["word"]] = counts.get(tup["word"], 0) + 1
        self.emit([tup["word"], counts[tup["word"]]])
        on_tuple.get(tup["number"], lambda: None)()


class Write(TransactionalSink):
    def commit(self, batches: Sequence[RowBatch]) -> None:
        for batch in batches:
            if applied.get(batch.writer, 0) < batch.epoch:
                written.extend((word, count) for word, count in batch.rows)
                applied[batch.writer] = batch.epoch


def topology(*, rows: int = len(ROWS), tasks: int = 3, count: Bolt | None = None) -> Any:
    builder = TopologyBuilder()
    builder.spout("words", Words(ROWS[:rows], splits=4), parallelism=2)
    builder.bolt("count", count or Count(), parallelism=tasks).fields("words", "word")
    builder.bolt("write", Write(), parallelism=2).shuffle("count")
    return builder.build()


def conf(folder: Path, **more: Any) -> dict[str, Any]:
    return {
        "topology.checkpoint.interval.secs": 0.05,
        "topology.state.url": str(folder),
        **{key.replace("_", "."): value for key, value in more.items()},
    }


def counts_of(rows: int) -> Counter[tuple[str, int]]:
    totals = Counter(word for word, _ in ROWS[:rows])
    return Counter((word, at) for word, total in totals.items() for at in range(1, total + 1))


def run(folder: Path, **shape: Any) -> None:
    """Run a topology until all its rows are written, then stop it."""
    wanted = counts_of(shape.get("rows", len(ROWS)))
    with LocalCluster() as cluster:
        cluster.submit_topology("words", conf(folder), topology(**shape))
        cluster.wait_until(lambda: len(written) >= wanted.total(), 60.0)
    assert Counter(written) == wanted


def test_state_positions_and_rows_go_on_after_a_stop(tmp_path: Path) -> None:
    run(tmp_path, rows=700)
    run(tmp_path)


def test_it_has_finished_once_a_checkpoint_has_all_rows_and_they_are_written(
    tmp_path: Path,
) -> None:
    """That checkpoint is begun at once, and no second one."""
    with LocalCluster() as cluster:
        hourly = {**conf(tmp_path), "topology.checkpoint.interval.secs": 3600}
        cluster.submit_topology("words", hourly, topology())
        cluster.wait_finished("words", 60.0)
        assert Counter(written) == counts_of(len(ROWS))
        assert cluster.wait(0.5, until_finished=True)
        counts = cluster.checkpoints("words")
        assert counts is not None
        assert counts.completed <= 2


def test_it_has_not_finished_while_rows_cannot_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    may_write = threading.Event()
    commit = Write.commit

    def later(self: Write, batches: Sequence[RowBatch]) -> None:
        if not may_write.is_set():
            raise OSError("the database is away")
        commit(self, batches)

    monkeypatch.setattr(Write, "commit", later)
    with LocalCluster() as cluster:
        cluster.submit_topology("words", conf(tmp_path), topology(rows=20))
        cluster.wait_until(lambda: cluster.checkpoints("words").epoch > 3, 60.0)  # type: ignore[union-attr]
        assert cluster.wait(0.5, until_finished=True) is False
        may_write.set()
        cluster.wait_finished("words", 60.0)
        assert Counter(written) == counts_of(20)


def test_a_stop_takes_a_last_checkpoint(tmp_path: Path) -> None:
    with LocalCluster() as cluster:
        hourly = {**conf(tmp_path), "topology.checkpoint.interval.secs": 3600}
        cluster.submit_topology("words", hourly, topology())
        cluster.wait_until(lambda: cluster.totals("words")["write"]["executed"] == len(ROWS), 60.0)
        assert written == []
        cluster.kill_topology("words")
    assert Counter(written) == counts_of(len(ROWS))


@pytest.mark.parametrize("count", [Count(), CountInPlace()], ids=["on_loop", "on_thread_in_place"])
def test_a_fault_that_ends_the_topology_leaves_nothing_behind(tmp_path: Path, count: Bolt) -> None:
    def fail() -> None:
        raise ValueError("row 1234")

    on_tuple[1234] = fail
    tasks = 1 if isinstance(count, CountInPlace) else 3
    with LocalCluster() as cluster:
        cluster.submit_topology("words", conf(tmp_path), topology(count=count, tasks=tasks))
        with pytest.raises(SquallError, match="row 1234"):
            cluster.wait(60.0)
    on_tuple.clear()
    run(tmp_path, count=count, tasks=tasks)


def test_the_tuple_that_ends_the_topology_is_in_no_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is the last before a barrier, so that its bolt settles by failing it."""
    found: list[InProcessEpochs] = []
    begin, take = InProcessEpochs.begin, EpochDriver._take
    faults: list[bool] = []

    def noting_begin(epochs: InProcessEpochs, engine: Any) -> None:
        begin(epochs, engine)
        found.append(epochs)

    def noting_take(driver: EpochDriver, kept: Any, epoch: int) -> None:
        faults.append(driver._host.has_fault)
        take(driver, kept, epoch)

    def fail() -> None:
        found[0].begin_epoch()
        raise ValueError("boom")

    monkeypatch.setattr(InProcessEpochs, "begin", noting_begin)
    monkeypatch.setattr(EpochDriver, "_take", noting_take)
    on_tuple[0] = fail
    with LocalCluster() as cluster:
        hourly = {**conf(tmp_path), "topology.checkpoint.interval.secs": 3600}
        cluster.submit_topology("words", hourly, topology(rows=1, tasks=1))
        with pytest.raises(SquallError, match="boom"):
            cluster.wait(60.0)
    assert not any(faults)
    on_tuple.clear()
    run(tmp_path, rows=1)


@pytest.mark.parametrize("count", [Count(), CountInPlace()], ids=["on_loop", "on_thread_in_place"])
def test_a_tuple_that_fails_is_tried_again_from_the_state_before_it(
    tmp_path: Path, count: Bolt
) -> None:
    left = Counter(dict.fromkeys(range(0, 2000, 50), 2))

    def fail(number: int) -> None:
        left[number] -= 1
        if left[number] >= 0:
            raise ValueError("not yet")

    for number in list(left):
        on_tuple[number] = lambda number=number: fail(number)  # type: ignore[misc]
    run(tmp_path, count=count, tasks=1)


def test_key_groups_move_to_another_number_of_tasks_and_back(tmp_path: Path) -> None:
    run(tmp_path, rows=600, tasks=2)
    run(tmp_path, rows=1_300, tasks=5)
    run(tmp_path, tasks=2)


class Pass(Bolt):
    outputs = ["word", "count"]

    def execute(self, tup: Tuple) -> None:
        self.emit([tup["word"], 0])


class Stuck(TransactionalSink):
    def commit(self, batches: Sequence[RowBatch]) -> None:
        raise OSError("the database is away")


class CannotSeek(Words):
    error: ClassVar[Exception]

    def seek(self, positions: Any) -> None:
        if positions:
            raise self.error
        super().seek(positions)


@pytest.mark.parametrize(
    "error", [OSError("no such topic"), SquallError("no such topic", hint="make it")], ids=repr
)
def test_an_error_of_seek_and_of_commit_names_the_task_and_the_checkpoint(
    tmp_path: Path, error: Exception
) -> None:
    run(tmp_path, rows=100)
    builder = TopologyBuilder()
    builder.spout("words", CannotSeek(ROWS))
    builder.bolt("count", Count(), parallelism=3).fields("words", "word")
    builder.bolt("write", Write(), parallelism=2).shuffle("count")
    CannotSeek.error = error
    with LocalCluster() as cluster, pytest.raises(ComponentStartError) as caught:
        cluster.submit_topology("words", conf(tmp_path), builder.build())
    where = r"seek\(\) of 'words' \(task \d+\) from checkpoint \d+"
    assert re.fullmatch(rf"{where} failed: .*no such topic", caught.value.message)
    assert caught.value.hint == getattr(error, "hint", None)
    (note,) = error.__notes__  # with its traceback in the report
    assert re.fullmatch(f"in {where}", note)

    def failed() -> bool:
        return len(cluster.errors("stuck")) > 1

    builder = TopologyBuilder()
    builder.spout("words", Words(ROWS[:10]))
    builder.bolt("write", Stuck()).shuffle("words")
    with LocalCluster() as cluster:
        cluster.submit_topology("stuck", conf(tmp_path), builder.build())
        cluster.wait_until(failed, 60.0)
        (note,) = cluster.errors("stuck")[0].error.__notes__
    assert re.fullmatch(r"in commit\(\) of 'write' \(task \d+\), checkpoints? \d+.*", note)


class KeepsReference(StatefulBolt):
    outputs = ["word", "count"]

    def execute(self, tup: Tuple) -> None:
        before = getattr(self, "before", None)
        if before is not None:
            before.append(object())  # a reference of the last call, which is not watched
        self.before = [1]
        self.state.put(tup["word"], self.before)


class ListsOfWindows(AggregateBolt):
    outputs = ["word", "count"]
    windows = tumbling(count=1_000)

    def init(self) -> list[Any]:
        return []

    def add(self, total: list[Any], tup: Tuple) -> list[Any]:
        return [object()] if total else [1]  # in the place of another

    def merge(self, first: list[Any], second: list[Any]) -> list[Any]:
        return first + second

    def result(self, total: list[Any], window: Any) -> None:
        raise NotImplementedError


@pytest.mark.parametrize(
    ("bolt", "what"),
    [
        (KeepsReference, "the state of key '.*' cannot be stored: a value of type builtins:object"),
        (ListsOfWindows, "the windows of .* cannot be stored: its type builtins:object"),
    ],
)
def test_what_only_a_checkpoint_can_find_is_named_with_what_happens_then(
    tmp_path: Path, bolt: Callable[[], Bolt], what: str
) -> None:
    builder = TopologyBuilder()
    builder.spout("words", Words(ROWS[:20]))
    builder.bolt("keep", bolt()).fields("words", "word")
    with LocalCluster() as cluster:
        cluster.submit_topology("words", conf(tmp_path), builder.build())
        with pytest.raises(SquallError, match="'words' died") as caught:
            cluster.wait(60.0)
    error = caught.value.__cause__
    assert isinstance(error, SnapshotError)
    where = r"checkpoint \d+ cannot be taken, because of 'keep' \(task \d+\): "
    assert re.match(where + what, error.message)
    assert "make it a dataclass" in str(error.hint)
    assert "goes on from the last checkpoint" in str(error.hint)
    assert error.component == "keep"


def test_a_component_of_another_kind_does_not_drop_what_it_had(tmp_path: Path) -> None:
    """State and rows would be in no checkpoint after the first one of the new kind."""

    def build(sink: Bolt, count: Bolt) -> Any:
        builder = TopologyBuilder()
        builder.spout("words", Words(ROWS[:100]))
        builder.bolt("count", count).fields("words", "word")
        builder.bolt("write", sink).shuffle("count")
        return builder.build()

    with LocalCluster() as cluster:
        cluster.submit_topology("words", conf(tmp_path), build(Stuck(), Count()))
        cluster.wait_until(
            lambda: all(_has_any(tmp_path, name) for name in ("count", "write")), 60.0
        )
        cluster.kill_topology("words", 0.2)  # its rows cannot be written
    for sink, count, what in (
        (Pass(), Count(), "'write' has rows that are not written yet"),
        (Write(), Pass(), "'count' has state"),
    ):
        with LocalCluster() as cluster, pytest.raises(SquallError, match=what):
            cluster.submit_topology("words", conf(tmp_path), build(sink, count))
    dropped = {"topology.checkpoint.allow.non.restored.state": True}
    with LocalCluster() as cluster:
        cluster.submit_topology("words", conf(tmp_path) | dropped, build(Pass(), Pass()))


def _has_any(folder: Path, component: str) -> bool:
    """Whether a component has state or rows in the last checkpoint."""
    store = CheckpointStore(str(folder))
    manifest = last_checkpoint(store, "words")
    if manifest is None:
        return False
    part = manifest.components[component].tasks[0]
    return bool(part.keys or part.batches)


def test_rows_that_cannot_be_written_are_written_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = Counter[str]()
    commit = Write.commit

    def sometimes(self: Write, batches: Sequence[RowBatch]) -> None:
        calls["all"] += 1
        if calls["all"] % 3 == 1:
            raise OSError("the database is away")
        commit(self, batches)
        if calls["all"] % 3 == 2:
            raise OSError("its answer was lost")

    monkeypatch.setattr(Write, "commit", sometimes)
    run(tmp_path)


def test_old_segments_and_manifests_are_deleted(tmp_path: Path) -> None:
    with LocalCluster() as cluster:
        cluster.submit_topology("words", conf(tmp_path), topology())
        cluster.wait_until(lambda: len(written) == len(ROWS), 60.0)
        first = cluster.checkpoints("words")
        assert first is not None
        cluster.wait_until(lambda: cluster.checkpoints("words").epoch >= first.epoch + 30, 60.0)  # type: ignore[union-attr]
        found = cluster.checkpoints("words")
        assert found is not None
        assert found.given_up == 0
        assert found.size_bytes > 0
    assert len(list((tmp_path / "words" / "manifests").iterdir())) <= 2


def test_a_task_that_hears_late_of_complete_epochs_needs_no_deleted_segment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hear = TakingPart.hear
    held: list[ToWorker] = []

    def late(part: TakingPart, message: ToWorker) -> None:
        """That an epoch is complete is heard after the next snapshots were taken."""
        if isinstance(message, Completed):
            held.append(message)
            return
        if isinstance(message, Release):
            while held:
                hear(part, held.pop())
        hear(part, message)

    monkeypatch.setattr(TakingPart, "hear", late)
    on_tuple.update(dict.fromkeys(range(len(ROWS)), partial(time.sleep, 0.002)))
    few = conf(tmp_path, topology_max_spout_pending=20)  # so that there are tuples for many epochs
    with LocalCluster() as cluster:
        cluster.submit_topology("words", few, topology())
        cluster.wait_until(lambda: cluster.checkpoints("words").epoch >= 8, 60.0)  # type: ignore[union-attr]
        cluster.kill_topology("words", 0.1)
    manifests = sorted((tmp_path / "words" / "manifests").iterdir())
    needed = decode_manifest(manifests[-1].read_bytes(), "the last").segments
    assert [ref.name for ref in needed if not (tmp_path / ref.name).exists()] == []
    on_tuple.clear()
    monkeypatch.undo()
    run(tmp_path)


def test_nothing_is_kept_of_each_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    confirm = EpochDriver.confirm
    kept: list[int] = []

    def noting(driver: EpochDriver, epoch: int) -> None:
        confirm(driver, epoch)
        kept.append(max(len(one.chain.written) for one in driver._kept.values()))

    monkeypatch.setattr(EpochDriver, "confirm", noting)
    with LocalCluster() as cluster:
        cluster.submit_topology("words", conf(tmp_path), topology(rows=1))
        cluster.wait_until(lambda: len(kept) > 4, 60.0)
    assert set(kept) == {0}


def test_a_second_process_is_held_off(tmp_path: Path) -> None:
    with LocalCluster() as one, LocalCluster() as other:
        one.submit_topology("words", conf(tmp_path), topology())
        with pytest.raises(SquallError, match="'words' is running with its checkpoints"):
            other.submit_topology("words", conf(tmp_path), topology())


@pytest.mark.parametrize("what", ["record", "manifests/*", "segments/count/00000/*"])
def test_a_damaged_file_is_named(tmp_path: Path, what: str) -> None:
    run(tmp_path, rows=100)
    names = []
    for path in (tmp_path / "words").glob(what):
        data = bytearray(path.read_bytes())
        data[-3] ^= 0x55
        data[len(data) // 2] ^= 0x55
        path.write_bytes(data)
        names.append(str(path.relative_to(tmp_path)))
    # Of manifests, there may be an older one.
    with LocalCluster() as cluster, pytest.raises(SquallError, match="|".join(names)) as caught:
        cluster.submit_topology("words", conf(tmp_path), topology())
    if what.startswith("manifests"):
        assert re.match(
            r"'words' cannot start from checkpoint \d+: the manifest", str(caught.value)
        )
    named = isinstance(caught.value, ComponentStartError)
    assert named == what.startswith("segments")
    assert isinstance(caught.value.__cause__ if named else caught.value, StateDamagedError)


def test_a_missing_part_is_named_with_what_to_do(tmp_path: Path) -> None:
    run(tmp_path, rows=100)
    for path in (tmp_path / "words").glob("segments/count/00000/*"):
        path.unlink()
    with (
        LocalCluster() as cluster,
        pytest.raises(ComponentStartError, match="is missing in") as caught,
    ):
        cluster.submit_topology("words", conf(tmp_path), topology())
    assert re.match(
        r"component 'count' \(task \d+\) cannot start from checkpoint \d+: words/segments/count/",
        caught.value.message,
    )
    assert "savepoint" in str(caught.value.hint)
    assert "begins anew" in str(caught.value.hint)


@pytest.mark.parametrize(
    ("error", "message", "hint"),
    [
        (StateStoreError("the store is away"), "the store is away", "see that the store answers"),
        (StateStoreError("refused", hint="write there"), "refused", "write there"),
        (CodecError("no such class"), "CodecError: no such class", "the classes of its values"),
        (KeyError("mine"), "KeyError: 'mine'", None),
    ],
)
def test_a_task_that_cannot_be_restored_is_named(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    error: Exception,
    message: str,
    hint: str | None,
) -> None:
    run(tmp_path, rows=100)

    def fails(*_: object) -> None:
        raise error

    monkeypatch.setattr(PartStore, "positions_of", fails)
    with LocalCluster() as cluster, pytest.raises(ComponentStartError) as caught:
        cluster.submit_topology("words", conf(tmp_path), topology())
    assert re.fullmatch(
        rf"component 'words' \(task \d+\) cannot start from checkpoint \d+: {message}",
        caught.value.message,
    )
    assert caught.value.component == "words"
    assert caught.value.hint == hint if hint is None else hint in str(caught.value.hint)


# -- what is refused, by name


class ByHand(Bolt):
    def __init__(self) -> None:
        self.auto_ack = False

    def execute(self, tup: Tuple) -> None:
        pass


def test_what_is_refused_leaves_the_folder_free(tmp_path: Path) -> None:
    """Its constructor says how it acks, so it is seen only when the engine has the folder."""
    builder = TopologyBuilder()
    builder.spout("words", Words(ROWS))
    builder.bolt("bolt", ByHand()).shuffle("words")
    with LocalCluster() as cluster, pytest.raises(SquallError, match=r"'bolt' .*acks .*by hand"):
        cluster.submit_topology("words", conf(tmp_path), builder.build())
    with LocalCluster() as cluster:  # the folder is free again
        cluster.submit_topology("words", conf(tmp_path), topology())


class Grouped(Bolt):
    outputs = ["word", "count"]
    blocking = True

    def prepare(self, conf: Any, context: Any) -> None:
        self.held: list[Any] = []

    def execute(self, tup: Tuple) -> None:
        self.held.append(list(tup.values))

    def flush(self) -> None:
        for values in self.held:
            self.emit(values)
        self.held.clear()


def test_what_a_bolt_holds_back_is_flushed_before_each_checkpoint(tmp_path: Path) -> None:
    builder = TopologyBuilder()
    builder.spout("words", BlockingWords(ROWS, splits=4), parallelism=2)
    builder.bolt("count", Count(), parallelism=2).fields("words", "word")
    builder.bolt("hold", Grouped(), parallelism=2).shuffle("count")
    builder.bolt("write", Write()).shuffle("hold")
    for least in (len(ROWS) // 3, len(ROWS)):
        with LocalCluster() as cluster:
            cluster.submit_topology("words", conf(tmp_path), builder.build())
            cluster.wait_until(partial(has_written, least), 60.0)
    assert Counter(written) == counts_of(len(ROWS))


class Exhausted(Bolt):
    outputs = ["word", "count"]
    blocking = True

    def execute(self, tup: Tuple) -> None:
        pass

    def flush(self) -> None:
        next(iter(()))


def test_a_flush_on_a_thread_that_ends_an_iterator_ends_the_topology(tmp_path: Path) -> None:
    with LocalCluster() as cluster:
        cluster.submit_topology("words", conf(tmp_path), topology(count=Exhausted()))
        with pytest.raises(
            SquallError, match=r"flush\(\) of 'count' \(task \d+\) failed.*StopIteration"
        ):
            cluster.wait(60.0)


def has_written(least: int) -> bool:
    return len(written) >= least


class BlockingWords(Words):
    blocking = True


class SlowlyIdle(BlockingWords):
    """Has nothing to emit, and takes its time to find that out."""

    def next_tuple(self) -> None:
        super().next_tuple()
        time.sleep(0.02)


def test_a_blocking_spout_without_tuples_holds_up_no_checkpoint(tmp_path: Path) -> None:
    """Nothing that it emits wakes the engine, whose barrier waits for its call."""
    builder = TopologyBuilder()
    builder.spout("words", SlowlyIdle([]))
    builder.bolt("count", Count()).fields("words", "word")
    with LocalCluster() as cluster:
        cluster.submit_topology("words", conf(tmp_path), builder.build())
        cluster.wait_until(lambda: cluster.checkpoints("words").epoch >= 40, 60.0)  # type: ignore[union-attr]


def test_the_folder_is_free_only_after_the_last_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A record that is written late would replace that of the next process."""
    put = CheckpointStore.put
    writing = threading.Event()
    ended: list[str] = []

    def slowly(store: CheckpointStore, name: str, data: Any) -> None:
        if name.endswith("record") and written:
            writing.set()
            time.sleep(0.3)
        put(store, name, data)
        ended.append(name)

    monkeypatch.setattr(CheckpointStore, "put", slowly)
    with LocalCluster() as cluster:
        cluster.submit_topology("words", conf(tmp_path), topology())
        assert writing.wait(60.0)
    written_before = len(ended)
    time.sleep(0.4)  # longer than a write takes
    assert len(ended) == written_before


def test_a_new_folder_begins_a_new_history_so_that_sinks_leave_out_no_rows(tmp_path: Path) -> None:
    run(tmp_path / "one", rows=500)
    written.clear()
    run(tmp_path / "other", rows=500)  # counts its checkpoints from 1 again
    histories = {writer.partition("/")[0] for writer in applied}
    assert len(histories) == 2
    assert all(history.startswith("words@") for history in histories)


def test_a_copy_of_a_folder_goes_on_with_its_history(tmp_path: Path) -> None:
    run(tmp_path / "one", rows=500)
    before = {writer.partition("/")[0] for writer in applied}
    shutil.copytree(tmp_path / "one", tmp_path / "copy")
    run(tmp_path / "copy")
    assert {writer.partition("/")[0] for writer in applied} == before


def test_a_record_from_before_histories_had_names_keeps_the_writers(tmp_path: Path) -> None:
    run(tmp_path, rows=500)
    record = RecordFile(CheckpointStore(str(tmp_path)), "words")
    read = record.read_now()
    assert record.replace_now(replace(read, version=read.version + 1, history=""))
    applied.clear()
    run(tmp_path)
    assert {writer for writer in applied if "@" not in writer} <= {"words/write/0", "words/write/1"}
    assert "words/write/0" in applied


def test_a_base_that_takes_long_to_write_is_written_and_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put = CheckpointStore.put

    def slowly(store: CheckpointStore, name: str, data: Any) -> None:
        if "/segments/" in name:
            time.sleep(0.3)  # longer than the limit
        put(store, name, data)

    monkeypatch.setattr(CheckpointStore, "put", slowly)
    monkeypatch.setattr(coordinating, "_LIMIT_SECS", 0.0)
    monkeypatch.setattr(coordinating, "_LIMIT_INTERVALS", 4)
    with LocalCluster() as cluster:
        cluster.submit_topology("words", conf(tmp_path), topology(rows=200))
        cluster.wait_until(lambda: len(written) >= counts_of(200).total(), 60.0)
        counts = cluster.checkpoints("words")
        assert counts is not None
        assert counts.given_up == 0
        errors = [str(error.error) for error in cluster.errors("words")]
        assert any("is still being written" in error for error in errors)
    assert Counter(written) == counts_of(200)


def test_a_failure_of_the_store_is_known_until_a_checkpoint_is_complete(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put, full = CheckpointStore.put, threading.Event()
    full.set()

    def fail(store: CheckpointStore, name: str, data: Any) -> None:
        if full.is_set():
            raise StateStoreError("cannot write: No space left on device")
        put(store, name, data)

    with LocalCluster() as cluster:
        cluster.submit_topology("words", conf(tmp_path), topology(rows=20))
        monkeypatch.setattr(CheckpointStore, "put", fail)

        def known() -> str:
            counts = cluster.checkpoints("words")
            return "" if counts is None else counts.failure

        cluster.wait_until(lambda: known() == "cannot write: No space left on device", 60.0)
        full.clear()
        cluster.wait_until(lambda: not known(), 60.0)
    assert Counter(written) == counts_of(20)


class Hanging(Write):
    def commit(self, batches: Sequence[RowBatch]) -> None:
        began.set()
        assert released.wait(60.0)
        super().commit(batches)
        ended.append(time.monotonic())

    def cleanup(self) -> None:
        cleaned.append(time.monotonic())


began, released = threading.Event(), threading.Event()
ended: list[float] = []
cleaned: list[float] = []


def hanging(rows: int) -> Any:
    began.clear()
    released.clear()
    ended.clear()
    cleaned.clear()
    builder = TopologyBuilder()
    builder.spout("words", Words(ROWS[:rows]))
    builder.bolt("count", Count()).fields("words", "word")
    builder.bolt("write", Hanging()).shuffle("count")
    return builder.build()


def test_a_sink_is_closed_after_its_commit(tmp_path: Path) -> None:
    with LocalCluster() as cluster:
        cluster.submit_topology("words", conf(tmp_path), hanging(100))
        assert began.wait(60.0)
        threading.Timer(0.5, released.set).start()
        cluster.kill_topology("words", 0.1)
    assert ended
    assert cleaned[0] > ended[-1]


def test_a_sink_that_hangs_keeps_the_folder_and_not_the_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(in_process, "_CLOSE_SECS", 0.2)
    with LocalCluster() as cluster:
        cluster.submit_topology("words", conf(tmp_path), hanging(100))
        assert began.wait(60.0)
        cluster.kill_topology("words", 0.1)
        assert not ended
        with pytest.raises(SquallError, match="is running with its checkpoints in"):
            cluster.submit_topology("words", conf(tmp_path), topology(rows=100))
        assert "_commit" not in repr(asyncio.all_tasks(cluster._loop))  # which will be gone
    released.set()
