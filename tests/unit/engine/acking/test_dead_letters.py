"""`topology.max.replays`: what keeps failing becomes a dead letter, with its reason and place; a
dead letter is delivered before its message ends; what a lost worker failed does not count."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from pathlib import Path
from typing import Any, ClassVar

import pytest
from tests.support.engine_cluster import EngineCluster

from squall import Bolt, Spout, TopologyBuilder
from squall.local import LocalCluster
from squall_common.names import DEAD_LETTER_FIELDS
from squall_engine.core.sections import TUPLES

LOG: dict[str, list[Any]] = {}


@pytest.fixture(autouse=True)
def _fresh_log() -> None:
    LOG.clear()
    Letters.fails_left = 0


def log(what: str, value: Any) -> None:
    LOG.setdefault(what, []).append(value)


class Source(Spout):
    """Numbers with ids; what fails is emitted again, as a source that keeps messages does."""

    outputs = ["number"]

    def __init__(self, count: int, first: int = 0) -> None:
        self.count = count
        self.first = first

    def open(self, conf: Any, context: Any) -> None:
        self.todo = list(range(self.first, self.first + self.count))

    def next_tuple(self) -> None:
        if self.todo:
            number = self.todo.pop(0)
            log("emitted", number)
            self.emit([number], message_id=f"m{number}")

    def ack(self, msg_id: Any) -> None:
        log("ack", msg_id)

    def fail(self, msg_id: Any) -> None:
        log("fail", msg_id)
        self.todo.append(int(msg_id[1:]))


class BlockingSource(Source):
    blocking = True


class ColumnSource(Source):
    def next_tuple(self) -> None:
        if self.todo:
            todo, self.todo = self.todo, []
            self.emit_columns([todo], message_ids=[f"m{number}" for number in todo])


class BatchSource(ColumnSource):
    """Emits and is acked in batches."""

    def ack_batch(self, msg_ids: Any) -> None:
        log("batch", len(msg_ids))
        for msg_id in msg_ids:
            log("ack", msg_id)


class ChangingSource(Source):
    """Changes the list of its fifth tuple after the emit."""

    def next_tuple(self) -> None:
        todo, self.todo = self.todo, []
        for number in todo:
            row = [number]
            self.emit(row, message_id=f"m{number}")
            if number == 4:
                row.append(0)


def is_bad(number: int) -> bool:
    return number % 5 == 3


class Raises(Bolt):
    outputs = ["number"]

    def execute(self, tup: Any) -> None:
        if is_bad(tup["number"]):
            raise ValueError(f"cannot bear {tup['number']}")
        self.emit([tup["number"]])


class Fails(Bolt):
    outputs = ["number"]
    auto_ack = False

    def execute(self, tup: Any) -> None:
        if is_bad(tup["number"]):
            self.fail(tup)
        else:
            self.ack(tup)


class RaisesAsync(Bolt):
    outputs = ["number"]

    async def execute(self, tup: Any) -> None:
        await asyncio.sleep(0.001)
        if is_bad(tup["number"]):
            raise ValueError(f"cannot bear {tup['number']}")


class RaisesOnThread(Raises):
    blocking = True


class RaisesInBatch(Bolt):
    outputs = ["number"]

    def execute_batch(self, tuples: Any) -> None:
        for tup in tuples:
            if is_bad(tup["number"]):
                self.fail(tup)
        if len(tuples) == 1 and tuples[0].settled:
            raise ValueError("too late: it was failed already")


class RaisesInColumns(Bolt):
    outputs = ["number"]

    def execute_columns(self, columns: Any) -> None:
        for row, number in enumerate(columns["number"]):
            if is_bad(number):
                columns.fail(row)


class Forgets(Bolt):
    outputs = ["number"]
    auto_ack = False

    def execute(self, tup: Any) -> None:
        if not is_bad(tup["number"]):
            self.ack(tup)


class Unsendable(Bolt):
    outputs = ["number"]

    def execute(self, tup: Any) -> None:
        self.emit([object() if is_bad(tup["number"]) else 1])


class Sink(Bolt):
    def execute(self, tup: Any) -> None:
        log("sunk", tup[0])


class Letters(Bolt):
    """Takes dead letters; fails the first `fails_left`."""

    fails_left: ClassVar[int] = 0

    def execute(self, tup: Any) -> None:
        log("acks before", list(LOG.get("ack", ())))
        if Letters.fails_left:
            Letters.fails_left -= 1
            raise RuntimeError("the shelf is full")
        log("letter", tup.as_dict())


def build(spout: Spout, bolt: Bolt, *, letters: bool = True) -> Any:
    builder = TopologyBuilder()
    builder.spout("source", spout)
    builder.bolt("work", bolt).shuffle("source")
    builder.bolt("sink", Sink()).shuffle("work")
    if letters:
        builder.bolt("letters", Letters()).shuffle("source", stream="__dead_letter")
    return builder.build()


def place_of(places: dict[str, int]) -> Any:
    return lambda executor, component: places.get(component, 0)


# Where the reasons must travel: to another worker by way of the acker's, or past it.
PLACES = {
    "one worker": {},
    "bolt elsewhere": {"work": 1, "letters": 1},
    "acker elsewhere": {"__acker": 1, "letters": 1},
    "bolt and acker elsewhere": {"work": 1, "__acker": 2},
    "spout alone": {"work": 1, "__acker": 1, "letters": 2, "sink": 2},
}


def cluster(topology: Any, replays: int | None, places: dict[str, int]) -> EngineCluster:
    conf = {
        "topology.max.replays": replays,
        "topology.acker.executors": 1,
        "topology.message.timeout.secs": 10,
    }
    workers = max(places.values(), default=0) + 1
    return EngineCluster(topology, workers, conf, place=place_of(places))


def all_done(count: int) -> Any:
    return lambda: len(LOG.get("ack", ())) == count


@pytest.mark.parametrize("places", PLACES.values(), ids=PLACES)
@pytest.mark.parametrize("replays", [0, 2])
def test_a_message_that_keeps_failing_becomes_a_dead_letter(
    replays: int, places: dict[str, int]
) -> None:
    with cluster(build(Source(10), Raises()), replays, places) as engines:
        engines.run_until(all_done(10))
        engines.run_for(1.0)
        assert sorted(LOG["ack"]) == sorted(f"m{i}" for i in range(10))
        assert sorted(row["message_id"] for row in LOG["letter"]) == ["m3", "m8"]
        (task,) = [task for task, name in engines.tasks.items() if name == "work"]
        for row in LOG["letter"]:
            number = int(row["message_id"][1:])
            assert tuple(row) == DEAD_LETTER_FIELDS
            assert row["values"] == [number]
            assert row["stream"] == "default"
            assert row["reason"] == f"ValueError: cannot bear {number}"
            assert (row["component"], row["task"]) == ("work", task)
            assert row["worker"] == f"node:{6700 + places.get('work', 0)}"
            # A fail may overtake its reason, here and by way of an acker elsewhere: at most one
            # replay more.
            late = places.get("work", 0) != 0
            assert row["replays"] in ((replays, replays + 1) if late else (replays,))
            assert LOG["emitted"].count(number) >= replays + 1
        assert not any(number for number in range(10) if not is_bad(number)
                       and LOG["emitted"].count(number) != 1)  # fmt: skip


@pytest.mark.parametrize("spout", [Source, BlockingSource, ColumnSource, BatchSource])
@pytest.mark.parametrize(
    ("bolt", "reason"),
    [
        (Raises, "ValueError: cannot bear 3"),
        (Fails, "failed by the bolt: fail() was called"),
        (RaisesAsync, "ValueError: cannot bear 3"),
        (RaisesOnThread, "ValueError: cannot bear 3"),
        (RaisesInBatch, "failed by the bolt: fail() was called"),
        (RaisesInColumns, "failed by the bolt: fail() was called"),
    ],
)
def test_each_kind_of_component_gives_its_reason(
    spout: type[Source], bolt: type[Bolt], reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a real loop: threads have no virtual time. Without the turn that is taken once a second
    whatever nobody told: it would hide that somebody should have."""
    monkeypatch.setattr("squall_engine.engine._LOADS_SECS", 1000.0)
    with LocalCluster() as local:
        local.submit_topology("replays", {"topology.max.replays": 1}, build(spout(6), bolt()))
        deadline = time.monotonic() + 30
        while not all_done(6)() and time.monotonic() < deadline:
            time.sleep(0.01)
    assert sorted(LOG["ack"]) == [f"m{i}" for i in range(6)]
    (row,) = LOG["letter"]
    assert (row["message_id"], row["values"], row["reason"]) == ("m3", [3], reason)
    assert (row["component"], row["replays"]) == ("work", 1)


@pytest.mark.parametrize("places", [{}, {"work": 1}], ids=["one worker", "bolt elsewhere"])
def test_a_list_that_was_changed_is_the_reason_of_its_own_message_only(
    places: dict[str, int],
) -> None:
    with cluster(build(ChangingSource(6), RaisesInColumns()), 0, places) as engines:
        engines.run_until(all_done(6))
        reasons = {row["message_id"]: row["reason"] for row in LOG["letter"]}
    assert set(reasons) == {"m3", "m4"}
    assert reasons["m3"] == "failed by the bolt: fail() was called"
    assert "a tuple of source has 2 values for the 1 fields of stream" in reasons["m4"]


def test_a_timeout_counts_and_has_no_place() -> None:
    with cluster(build(Source(5), Forgets()), 1, {}) as engines:
        engines.run_until(all_done(5), 60)
        (row,) = LOG["letter"]
        assert row["reason"] == "timed out: neither ack nor fail within 10 s"
        assert (row["component"], row["task"], row["worker"]) == (None, None, None)


def test_a_value_that_cannot_be_sent_is_reported_with_its_emitter() -> None:
    places = {"sink": 1}
    with cluster(build(Source(5), Unsendable()), 0, places) as engines:
        engines.run_until(all_done(5), 60)
        (row,) = LOG["letter"]
        assert "object" in row["reason"]
        assert (row["component"], row["values"]) == ("work", [3])


def test_the_spout_is_notified_when_the_dead_letter_was_processed() -> None:
    """A dead letter that fails is emitted again until it does not; its message stays open."""
    Letters.fails_left = 3
    with cluster(build(Source(5), Raises()), 0, {"letters": 1}) as engines:
        engines.run_until(lambda: Letters.fails_left == 0, 60)
        assert "m3" not in LOG["ack"]
        engines.run_until(all_done(5), 60)
        assert [row["message_id"] for row in LOG["letter"]] == ["m3"]
        assert all("m3" not in acks for acks in LOG["acks before"])
        assert "fail" not in LOG  # the spout never heard of one


class RaisesOften(Bolt):
    """Twenty times, then no more."""

    outputs = ["number"]

    def execute(self, tup: Any) -> None:
        log("tried", tup["number"])
        if len(LOG["tried"]) <= 20:
            raise ValueError("not yet")


def test_without_a_limit_a_message_is_replayed_forever() -> None:
    with cluster(build(Source(1), RaisesOften()), None, {}) as engines:
        engines.run_until(all_done(1))
        assert LOG["fail"] == ["m0"] * 20
        assert "letter" not in LOG
        assert all(engine.dead_letters is None for engine in engines.engines)


@pytest.mark.parametrize("source", [Source, BlockingSource])
def test_a_dead_letter_that_no_bolt_consumes_goes_to_a_file(
    source: type[Source], tmp_path: Path
) -> None:
    topology = build(source(10), Raises(), letters=False)
    conf = {"topology.max.replays": 2, "topology.acker.executors": 1}
    with EngineCluster(topology, 1, conf, settings={"log_dir": tmp_path}) as engines:
        engines.run_until(all_done(10))
        [engine] = engines.engines
        assert sorted(LOG["fail"]) == ["m3", "m3", "m8", "m8"]
        assert engine.failed_messages() == 2
        [spout] = [one.task for one in engine.built if one.task.component == "source"]
        emitted = {out.source.stream: out.emitted_total() for out in spout.outputs}
        assert emitted == {"default": 14, "__dead_letter": 2}
    lines = (tmp_path / "dead-letters.jsonl").read_text().splitlines()
    found = sorted((json.loads(line) for line in lines), key=lambda one: one["values"])
    assert [one["values"] for one in found] == [[3], [8]]
    assert found[0]["message_id"] == "m3"
    assert found[0]["reason"] == "ValueError: cannot bear 3"
    assert (found[0]["spout"], found[0]["component"], found[0]["replays"]) == ("source", "work", 2)


class Repairs(Source):
    """Makes the missing folder at the fifth failure."""

    def fail(self, msg_id: Any) -> None:
        super().fail(msg_id)
        assert msg_id not in LOG.get("ack", ())
        if len(LOG["fail"]) == 5:
            LOG["folder"][0].mkdir()


def test_a_message_whose_dead_letter_cannot_be_written_is_replayed_until_it_can(
    tmp_path: Path,
) -> None:
    folder = tmp_path / "logs"  # not there at first, as if the disk were broken
    log("folder", folder)
    builder = TopologyBuilder()
    builder.spout("source", Repairs(4))
    builder.bolt("work", Raises()).shuffle("source")
    conf = {"topology.max.replays": 0, "topology.acker.executors": 1}
    with EngineCluster(builder.build(), 1, conf, settings={"log_dir": folder}) as engines:
        engines.run_until(all_done(4))
    assert LOG["fail"] == ["m3"] * 5
    [line] = (folder / "dead-letters.jsonl").read_text().splitlines()
    assert json.loads(line)["values"] == [3]


def test_without_ackers_there_are_no_dead_letters(caplog: pytest.LogCaptureFixture) -> None:
    topology = build(Source(4), Raises(), letters=False)
    conf = {"topology.max.replays": 0, "topology.acker.executors": 0}
    with EngineCluster(topology, 1, conf) as engines:
        engines.run_until(all_done(4))
    assert "max_replays_without_effect" in caplog.text


def test_failures_caused_by_a_lost_worker_do_not_count() -> None:
    """Ten losses while the message is under way, then a timeout: the first that counts."""
    with cluster(build(Source(1, 3), Forgets()), 0, {"work": 1}) as engines:
        lost = [task for task, name in engines.tasks.items() if name == "work"]
        for losses in range(1, 11):
            engines.run_until(lambda n=losses: LOG.get("emitted", []).count(3) == n)  # type: ignore[misc]
            engines.run_for(0.05)
            engines.engines[0].worker_lost(lost)
            engines.run_until(lambda n=losses: LOG.get("fail", []).count("m3") == n)  # type: ignore[misc]
        assert "letter" not in LOG
        engines.run_until(all_done(1), 60)
        assert len(LOG["letter"]) == 1


class Sleeps(Bolt):
    outputs: ClassVar[list[str]] = ["number"]

    async def execute(self, tup: Any) -> None:
        log("holds", tup["number"])
        await asyncio.sleep(3600)


class SleepsOnThread(Sleeps):
    blocking = True
    awake = threading.Event()

    def execute(self, tup: Any) -> None:  # type: ignore[override]
        log("holds", tup["number"])
        self.awake.wait(60)


@pytest.mark.parametrize("bolt", [Sleeps, SleepsOnThread])
def test_tuples_in_hand_of_a_stopping_worker_do_not_count(bolt: type[Bolt]) -> None:
    """It was a dead letter at once, and the reason said that the bolt had called fail()."""
    SleepsOnThread.awake.clear()
    try:
        conf = {
            "topology.max.replays": 0,
            "topology.acker.executors": 1,
            "topology.message.timeout.secs": 10_000_000,  # time flies while a thread is waited for
        }
        topology = build(Source(1, 3), bolt())
        with EngineCluster(topology, 2, conf, place=place_of({"work": 1})) as engines:
            deadline = time.monotonic() + 20
            while "holds" not in LOG and time.monotonic() < deadline:
                engines.run_for(0.001)
                time.sleep(0.001)
            engines.run(engines.engines[1].stop(0.1))
            engines.run_for(0.1)
            assert LOG["fail"] == ["m3"]
            assert "letter" not in LOG
    finally:
        SleepsOnThread.awake.set()


def test_tuples_that_never_reached_their_worker_do_not_count() -> None:
    """Sections that a link gave up (its peer was replaced): also when the acker is elsewhere."""
    engines = cluster(build(Source(1, 4), Raises()), 0, {"work": 1, "__acker": 2})
    carry = engines.network.carry
    dropped = 0

    def lose(slot: Any, peer: Any, sections: Any) -> None:
        nonlocal dropped
        tuples = [data for data in sections if peer == engines.slots[1] and data[0] == TUPLES]
        if tuples and dropped < 5:
            dropped += 1
            loop = asyncio.get_running_loop()
            loop.call_soon(engines.engines[0].sections_dropped, tuples)
            sections = [data for data in sections if data not in tuples]
        carry(slot, peer, sections)

    engines.network.carry = lose  # type: ignore[method-assign]
    with engines:
        engines.run_until(all_done(1), 60)
        assert dropped == 5
        assert LOG["fail"] == ["m4"] * 5
        assert "letter" not in LOG
        assert LOG["sunk"] == [4]


class BigSource(Source):
    def next_tuple(self) -> None:
        if self.todo:
            self.todo.pop()
            self.emit([object], message_id=("m", 1.5))


class RefusesAll(Bolt):
    outputs = ["number"]

    def execute(self, tup: Any) -> None:
        raise ValueError("x" * 10_000)


def test_a_dead_letter_can_always_be_sent() -> None:
    """What cannot be encoded becomes text, and a reason has an end."""
    conf = {
        "topology.max.replays": 0,
        "topology.acker.executors": 1,
        "topology.testing.always.try.serialize": False,
    }
    topology = build(BigSource(1), RefusesAll())
    with EngineCluster(topology, 2, conf, place=place_of({"letters": 1})) as engines:
        engines.run_until(all_done(1), 60)
        (row,) = LOG["letter"]
        assert row["values"] == ["<class 'object'>"]
        assert row["message_id"] == ("m", 1.5)
        assert len(row["reason"]) == 500
