"""`storm state inspect` reads what tasks have stored."""

from __future__ import annotations

import datetime as dt
import json
from pathlib import Path
from typing import Any

import pytest
from tests.support.fake_nimbus import FakeNimbus

from squall import AggregateBolt, LocalCluster, TopologyBuilder, Tuple, WindowedBolt
from squall.testing import ReplayableSpout
from squall.windows import TupleWindow, sliding, tumbling
from squall_common.state.checkpoint_store import CheckpointStore
from squall_common.state.errors import StateError
from squall_common.state.inspect import checkpoint_states, last_checkpoint
from squall_common.state.keyed import KeyedState
from squall_common.state.manifest import ComponentPart, Manifest, encode_manifest
from squall_common.state.savepoint import (
    HEAD_NAME,
    Savepoint,
    copy_segment,
    encode_savepoint,
    kept,
)
from squall_common.state.task_store import SegmentStore, TaskPlace
from squall_common.telemetry.live_state import Answer, Entry, TaskAnswer, encode_answer
from squall_engine.core.codec import ValueCodec
from squall_engine.epochs.messages import Name
from squall_engine.epochs.parts import PartStore, Snapshot
from squall_thrift import storm


def stored(url: Path, topology: str, component: str, values: dict[Any, Any], task: int = 0) -> None:
    store = SegmentStore(CheckpointStore(str(url)), TaskPlace(topology, component, task, 2, 128))
    state = KeyedState(128, ValueCodec())
    store.open(state)
    for key, value in values.items():
        state.current = key
        state.put(key, value)
        store.write(state.snapshot(store.epoch + 1), ValueCodec())
        state.completed(store.epoch)


@pytest.fixture
def url(tmp_path: Path) -> Path:
    folder = tmp_path / "store"
    stored(folder, "visits", "count", {"ann": 3, ("ann", 7): [1, {"page": "/"}]})
    stored(folder, "visits", "count", {"bob": dt.date(2026, 11, 24), 2**70: "big"}, task=1)
    stored(folder, "other topology", "sum", {b"x": 1.5})
    return folder


def test_tasks_are_a_table(command: Any, url: Path) -> None:
    status, out, err = command("state", "inspect", str(url))
    assert (status, err) == (0, "")
    rows = [line.split() for line in out.splitlines()]
    assert rows[0] == ["TOPOLOGY", "BOLT", "TASK", "KEYS", "BOUND", "BYTES", "SEGMENTS", "EPOCH"]
    assert [row[:1] for row in rows[1:]] == [["other"], ["visits"], ["visits"]]
    assert rows[2][:5] == ["visits", "count", "0", "2", "0"]


def test_tasks_as_json(command: Any, url: Path) -> None:
    status, out, _ = command("state", "inspect", str(url), "--topology", "visits", "--json")
    assert status == 0
    first, second = json.loads(out)
    assert first["bytes"] > 0
    del first["bytes"]
    assert first == {
        "topology": "visits",
        "component": "count",
        "task": 0,
        "tasks": 2,
        "max_parallelism": 128,
        "keys": 2,
        "bound_keys": 0,
        "segments": 2,
        "epoch": 2,
        "generation": 1,
    }
    assert second["task"] == 1


def test_keys_and_values_are_shown_without_the_topologys_code(command: Any, url: Path) -> None:
    status, out, _ = command(
        "state", "inspect", str(url), "--topology", "visits", "--keys", "--json"
    )
    assert status == 0
    found = [(row["task"], row["key"], row["value"]) for row in json.loads(out)]
    assert found == [
        (0, "ann", 3),
        (0, ["ann", 7], [1, {"page": "/"}]),
        (1, "bob", "date('2026-11-24')"),
        (1, 2**70, "big"),
    ]


@pytest.mark.parametrize(
    ("key", "shown"), [("ann", "3"), ('["ann", 7]', "[1, {'page': '/'}]"), ('"bob"', "date(")]
)
def test_the_value_of_a_key(command: Any, url: Path, key: str, shown: str) -> None:
    status, out, _ = command("state", "inspect", str(url), "--topology", "visits", "--key", key)
    assert status == 0
    assert shown in out
    assert len(out.splitlines()) == 2


def test_more_keys_than_the_limit_are_counted(command: Any, url: Path) -> None:
    status, out, err = command("state", "inspect", str(url), "--keys", "--limit", "2")
    assert status == 0
    assert len(out.splitlines()) == 3
    assert "3 more keys are not shown" in err


def test_a_running_topology_is_asked_for_its_store(
    command: Any, url: Path, nimbus: FakeNimbus
) -> None:
    nimbus.answers["getTopologySummaryByName"] = storm.TopologySummary(
        id="visits-1-17",
        name="visits",
        num_tasks=2,
        num_executors=2,
        num_workers=1,
        uptime_secs=1,
        status="ACTIVE",
    )
    conf = {"topology.state.provider": "store", "topology.state.url": str(url)}
    nimbus.answers["getTopologyConf"] = json.dumps(conf)
    status, out, _ = command("state", "inspect", "visits")
    assert status == 0
    assert "other" not in out
    assert len(out.splitlines()) == 3
    nimbus.answers["getTopologyConf"] = "{}"
    status, _, err = command("state", "inspect", "visits")
    assert status == 1
    assert "its topology.state.provider is 'memory'" in err


def test_what_is_not_there_is_said(command: Any, url: Path) -> None:
    status, _, err = command("state", "inspect", str(url), "--topology", "none")
    assert status == 1
    assert f"state of topology 'none' was not found in {url}" in err
    status, _, err = command("state", "inspect", str(url), "--key", "none")
    assert status == 1
    assert "the key none was not found in any task's state" in err


def test_a_damaged_file_is_named_and_the_others_are_shown(command: Any, url: Path) -> None:
    newest = sorted((url / "visits" / "count" / "00000").glob("*.segment"))[-1]
    data = bytearray(newest.read_bytes())
    data[-30] ^= 1
    newest.write_bytes(bytes(data))
    status, out, err = command("state", "inspect", str(url), "--topology", "visits")
    assert status == 1
    assert newest.name in err
    assert "is damaged" in err
    assert [line.split()[2:4] for line in out.splitlines()[1:]] == [["0", "damaged"], ["1", "2"]]


@pytest.mark.parametrize("what", ["footers", "entries"])
def test_a_task_that_writes_a_base_meanwhile_is_read_again(
    command: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    """It deletes the segments that were just listed, or opened."""
    folder = tmp_path / "store"
    stored(folder, "visits", "count", {"ann": 3, "bob": 4})
    get_part = CheckpointStore.get_part
    reads = 0

    def interrupted(store: CheckpointStore, name: str, start: int, length: int) -> bytes:
        nonlocal reads
        reads += 1
        if reads == (1 if what == "footers" else 3):
            place = TaskPlace("visits", "count", 0, 2, 128)
            with monkeypatch.context() as patched:
                patched.setattr(CheckpointStore, "get_part", get_part)
                task, state = SegmentStore(store, place), KeyedState(128, ValueCodec())
                task.open(state)
                state.current = "cid"
                state.put("cid", 5)
                task.write(state.snapshot(task.epoch + 1, base=True), ValueCodec())
        return get_part(store, name, start, length)

    monkeypatch.setattr(CheckpointStore, "get_part", interrupted)
    status, out, err = command("state", "inspect", str(folder), "--keys", "--json")
    assert (status, err) == (0, "")
    assert {row["key"]: row["value"] for row in json.loads(out)} == {"ann": 3, "bob": 4, "cid": 5}
    assert reads >= 3


def checkpoint(url: Path, epoch: int, count: int, *, name: str = "words") -> Manifest:
    """A checkpoint whose bolt has one key."""
    store = CheckpointStore(str(url))
    state = KeyedState(128, ValueCodec())
    state.current = "ann"
    state.put("ann", count)
    parts = PartStore(store, name, {"count": 1}, ValueCodec())
    snapshot = Snapshot(("count", 0), 3, epoch, state.snapshot(epoch, base=True))
    part = parts.write(snapshot, 128)
    manifest = Manifest(name, 3, epoch, {"count": ComponentPart(128, (part,))}, 1000)
    parts.write_manifest(Name(3, epoch, "manifest"), encode_manifest(manifest))
    return manifest


def test_the_last_complete_checkpoint_is_shown(command: Any, tmp_path: Path) -> None:
    """It is the oldest: those before it were deleted when it was complete."""
    checkpoint(tmp_path, 7, 5)
    checkpoint(tmp_path, 8, 6)  # is being completed
    status, out, _ = command("state", "inspect", str(tmp_path), "--json")
    (task,) = json.loads(out)
    assert (status, task["component"], task["keys"], task["epoch"]) == (0, "count", 1, 7)
    status, out, _ = command("state", "inspect", str(tmp_path), "--key", "ann", "--json")
    assert [row["value"] for row in json.loads(out)] == [5]


def test_the_checkpoint_of_a_running_topology_is_the_reported_one(
    command: Any, nimbus: FakeNimbus, tmp_path: Path
) -> None:
    checkpoint(tmp_path, 7, 5)
    checkpoint(tmp_path, 8, 6)
    conf = {"topology.checkpoint.interval.secs": 1, "topology.state.url": str(tmp_path)}
    report = storm.CheckpointReport(
        epoch=8, interval_ms=1000, completed=8, given_up=0, waiting_ms=5, rollbacks=0
    )
    nimbus.answers["getTopologySummaryByName"] = storm.TopologySummary(
        "words-1", "words", 1, 1, 1, 9, "ACTIVE"
    )
    nimbus.answers["getTopologyConf"] = json.dumps(conf)
    nimbus.answers["getTopologyPageInfo"] = storm.TopologyPageInfo(id="words-1", checkpoints=report)
    status, out, _ = command("state", "inspect", "words", "--key", "ann", "--json")
    assert (status, [row["value"] for row in json.loads(out)]) == (0, [6])


def test_a_savepoint_is_a_store(command: Any, tmp_path: Path) -> None:
    found, copies = kept(checkpoint(tmp_path / "state", 7, 5))
    target = CheckpointStore(str(tmp_path / "one"))
    for ref, copy in copies:
        copy_segment(CheckpointStore(str(tmp_path / "state")), ref, target, copy)
    target.put(HEAD_NAME, encode_savepoint(Savepoint("words", "one", "words@1", found)))
    status, out, _ = command("state", "inspect", str(tmp_path / "one"), "--keys", "--json")
    (row,) = json.loads(out)
    assert (status, row["key"], row["value"]) == (0, "ann", 5)
    for path in (tmp_path / "one" / "segments").rglob("0*-*"):
        path.write_bytes(b"nonsense")
    status, out, err = command("state", "inspect", str(tmp_path / "one"), "--json")
    assert (status, "damage" in json.loads(out)[0]) == (1, True)
    assert "is damaged" in err


# ---- of windows ----


class Pairs(WindowedBolt):
    windows = tumbling(count=3, key="word")

    def execute_window(self, window: TupleWindow) -> None:
        pass


class Totals(AggregateBolt):
    windows = sliding(secs=600, every_secs=60)

    def init(self) -> int:
        return 0

    def add(self, total: int, tup: Tuple) -> int:
        return total + 1

    def merge(self, first: int, second: int) -> int:
        return first + second

    def result(self, window: Any, total: int) -> None:
        pass


class Words(ReplayableSpout):
    outputs = ["word", "number"]


def test_windows_are_shown_with_the_tuples_that_wait_in_them(command: Any, tmp_path: Path) -> None:
    builder = TopologyBuilder()
    builder.spout("words", Words([["ann", 1], ["ann", 2], ["bob", 3], ["ann", 4], ["ann", 5]]))
    builder.bolt("pairs", Pairs()).fields("words", "word")
    builder.bolt("totals", Totals()).shuffle("words")
    conf = {"topology.checkpoint.interval.secs": 0.05, "topology.state.url": str(tmp_path)}

    def are_stored() -> bool:
        try:
            manifest = last_checkpoint(CheckpointStore(str(tmp_path)), "words")
            states = checkpoint_states(CheckpointStore(str(tmp_path)), manifest) if manifest else []
            return sum(len(value.tuples) for one in states for _, value in one.entries()) == 2 + 5
        except StateError:  # a later one has replaced it meanwhile
            return False

    with LocalCluster() as cluster:
        cluster.submit_topology("words", conf, builder.build())
        cluster.wait_until(are_stored, 30.0)

    status, out, err = command("state", "inspect", str(tmp_path), "--keys", "--json")
    rows = json.loads(out)
    tuples = [{"component": "words", "stream": "default", "values": ["ann", 5]}]
    of_ann = next(row for row in rows if row["value"]["tuples"] == tuples)
    assert (status, err, len(rows)) == (0, "", 3)
    assert (of_ann["component"], of_ann["key"][0]) == ("pairs", "$windows")
    assert of_ann["value"]["windows"] == "tumbling windows of 3 tuples by word"
    assert rows[-1]["key"] == "$windows"
    assert rows[-1]["value"]["windows"] == "windows of 600 s every 60 s"

    status, out, _ = command("state", "inspect", str(tmp_path), "--key", json.dumps(of_ann["key"]))
    size = of_ann["value"]["bytes"]
    shown = f"<tumbling windows of 3 tuples by word: 1 tuple, {size} bytes more: ['ann', 5]>"
    assert out.splitlines()[1].endswith(shown)


def test_what_only_has_the_name_of_windows_is_shown_as_it_is(command: Any, tmp_path: Path) -> None:
    packed = ValueCodec().encode_rows([[b"\xc1", 1]])
    values = {"$windows": packed, ("$windows", 1): b"no rows", ("$windows", 2): 3}
    stored(tmp_path, "visits", "count", values)
    status, out, _ = command("state", "inspect", str(tmp_path), "--keys", "--json")
    assert (status, [row["value"] for row in json.loads(out)]) == (
        0,
        [repr(packed), "b'no rows'", 3],
    )


# ---- of running tasks ----


def answers(nimbus: FakeNimbus, *found: Answer | str) -> None:
    """What the workers of a topology answer, or why they do not."""
    nimbus.answers["getTopologySummaryByName"] = storm.TopologySummary(
        "words-1", "words", 1, 1, 1, 9, "ACTIVE"
    )
    nimbus.answers["readState"] = [
        storm.WorkerStateAnswer(
            supervisor_id="sup-a",
            host="host-a",
            port=6700 + number,
            answer=None if isinstance(one, str) else encode_answer(one),
            trouble=one if isinstance(one, str) else None,
        )
        for number, one in enumerate(found)
    ]


def entry(key: Any, value: Any = 1, **more: Any) -> Entry:
    return Entry(key, value, f"str:{key}", **more)


def test_the_sizes_of_running_tasks_are_a_table(command: Any, nimbus: FakeNimbus) -> None:
    counts = TaskAnswer("count", 0, 7, 100, 1, 2, 17)
    windows = TaskAnswer("sums", 1, windows={"tuples": 5, "key_groups": 3})
    answers(nimbus, Answer((windows,)), Answer((counts,)))
    status, out, err = command("state", "inspect", "words", "--live")
    assert (status, err) == (0, "")
    rows = [line.split() for line in out.splitlines()]
    assert rows[1] == ["count", "0", "host-a:6701", "7", "1", "100", "2", "17"]
    assert rows[2] == ["sums", "1", "host-a:6700", "5", "tuples,", "3", "key", "groups"]
    status, out, _ = command("state", "inspect", "words", "--live", "--json")
    assert (status, [one["keys"] for one in json.loads(out)]) == (0, [7, None])
    assert [json.loads(question) for _, question in nimbus.called("readState")] == [{}, {}]


def test_a_value_is_shown_beside_the_one_in_the_checkpoint(
    command: Any, nimbus: FakeNimbus, tmp_path: Path
) -> None:
    checkpoint(tmp_path, 7, 5)
    conf = {"topology.checkpoint.interval.secs": 1, "topology.state.url": str(tmp_path)}
    report = storm.CheckpointReport(
        epoch=7, interval_ms=1000, completed=7, given_up=0, waiting_ms=5, rollbacks=0
    )
    nimbus.answers["getTopologyConf"] = json.dumps(conf)
    nimbus.answers["getTopologyPageInfo"] = storm.TopologyPageInfo(id="words-1", checkpoints=report)
    task = TaskAnswer("count", 0, 1, epoch=7, entries=(entry("ann", 6, stored=False),))
    answers(nimbus, Answer((task,)))
    asked = ("state", "inspect", "words", "--live", "--key", "ann", "--stored")
    status, out, _ = command(*asked)
    assert status == 0
    now, kept = out.splitlines()[1:]
    assert "6" in now
    assert now.rstrip().endswith("now; not stored yet")
    assert "5" in kept
    assert kept.rstrip().endswith("checkpoint 7")
    status, out, _ = command(*asked, "--json")
    found = [(one["value"], one["as_of"]) for one in json.loads(out)]
    assert (status, found) == (0, [(6, "now"), (5, "checkpoint 7")])


def test_pages_of_workers_become_one(command: Any, nimbus: FakeNimbus) -> None:
    first = TaskAnswer("count", 0, 9, entries=(entry("a"), entry("c")), more=True)
    second = TaskAnswer("count", 1, 9, entries=(entry("b"), entry("d")))
    answers(nimbus, Answer((first,)), Answer((second,)))
    options = ("--component", "count", "--prefix", "", "--limit", "2", "--after", "str:9")
    status, out, err = command("state", "inspect", "words", "--live", *options, "--json")
    assert (status, [one["key"] for one in json.loads(out)]) == (0, ["a", "b"])
    assert "--after str:b" in err
    ((_, question),) = nimbus.called("readState")
    assert json.loads(question) == {
        "component": "count",
        "lists": True,
        "prefix": "",
        "limit": 2,
        "after": "str:9",
    }


def test_who_does_not_answer_is_named_and_the_others_are_shown(
    command: Any, nimbus: FakeNimbus
) -> None:
    stuck = TaskAnswer("count", 1, trouble="its run loop is stuck")
    answers(nimbus, Answer((TaskAnswer("count", 0, 7), stuck)), "its supervisor is away")
    status, out, err = command("state", "inspect", "words", "--live")
    assert status == 1
    assert len(out.splitlines()) == 3
    assert "worker host-a:6701: its supervisor is away" in err
    assert "task 1 of 'count': its run loop is stuck" in err


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["words", "--prefix", "a"], "are for --live"),
        (["/store", "--live"], "asks a running topology"),
        (["words", "--live", "--stored"], "--stored is for --key"),
        (["words", "--live", "--keys", "--limit", "5000"], "at most 1000 keys"),
    ],
)
def test_options_that_do_not_go_together_are_refused(
    command: Any, options: list[str], said: str
) -> None:
    status, _, err = command("state", "inspect", *options)
    assert (status, said in err) == (2, True)


def test_a_key_that_no_task_has_is_an_error(command: Any, nimbus: FakeNimbus) -> None:
    answers(nimbus, Answer((TaskAnswer("count", 0, 7),)))
    status, _, err = command("state", "inspect", "words", "--live", "--key", "no")
    assert (status, "the key no was not found in any task's state" in err) == (1, True)
