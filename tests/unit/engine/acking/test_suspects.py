"""`topology.max.worker.kills`: what was in hand at so many unexpected ends becomes a dead letter,
alone; the spout beside the bolt, or in another worker. A death is a snapshot of what the worker had
noted, and a new engine in its place."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from tests.support.engine_cluster import EngineCluster

from squall import Bolt, Spout, TopologyBuilder
from squall_common.names import DEAD_LETTER_FIELDS
from squall_common.topology.serialization import Registry
from squall_engine.tasks.in_hand import MAGIC, SIZE, Before, InHand, key_of

LOG: dict[str, list[Any]] = {}
DIE: list[Callable[[int, int], None]] = []
COUNT = 200


@pytest.fixture(autouse=True)
def _fresh() -> None:
    LOG.clear()
    DIE.clear()


def log(what: str, value: Any) -> None:
    LOG.setdefault(what, []).append(value)


class Killed(BaseException):
    """The process is gone."""


class Source(Spout):
    """A source that keeps its messages until they are acked, whoever reads it."""

    outputs = ["number"]

    def open(self, conf: Any, context: Any) -> None:
        done = set(LOG.get("acked", ()))
        self.todo = [number for number in range(COUNT) if number not in done]

    def next_tuple(self) -> None:
        if self.todo:
            number = self.todo.pop(0)
            self.emit([number], message_id=number)

    def ack(self, msg_id: Any) -> None:
        log("acked", msg_id)

    def fail(self, msg_id: Any) -> None:
        self.todo.append(msg_id)


class ColumnSource(Source):
    def next_tuple(self) -> None:
        if self.todo:
            todo, self.todo = self.todo, []
            self.emit_columns([todo], message_ids=todo)


class DirectSource(Source):
    def next_tuple(self) -> None:
        if self.todo:
            number = self.todo.pop(0)
            (task,) = self.context.component_tasks("price")
            self.emit_direct(task, [number], message_id=number)


class _Price(Bolt):
    outputs = ["number"]

    def __init__(self, bad: list[int]) -> None:
        self.bad = bad

    def one(self, number: int) -> None:
        if number in self.bad:
            DIE[0](self.context.this_worker_port, number)
            raise Killed
        log("priced", number)


class Price(_Price):
    def execute(self, tup: Any) -> None:
        self.one(tup["number"])


class PriceUnanchored(Price):
    auto_anchor = False


class PriceInBatch(_Price):
    def execute_batch(self, tuples: Any) -> None:
        for tup in tuples:
            self.one(tup["number"])


class PriceInColumns(_Price):
    def execute_columns(self, columns: Any) -> None:
        for number in columns["number"]:
            self.one(number)


class PriceAsync(_Price):
    async def execute(self, tup: Any) -> None:
        await asyncio.sleep(0.001)
        self.one(tup["number"])


class Morgue(Bolt):
    outputs = ["number"]

    def execute(self, tup: Any) -> None:
        log("letters", tup.as_dict())


class Killing:
    """A cluster whose workers can be killed while they execute a tuple."""

    def __init__(self, topology: Any, workers: int, conf: Any, place: Any) -> None:
        self.hands: dict[int, bytearray] = {}
        self.left: dict[int, bytes] = {}  # by worker, since it died
        self.cluster = EngineCluster(topology, workers, conf, place=place)
        for index in range(workers):
            self._replace(index, None)
        DIE.append(self.die)

    def _replace(self, index: int, before: Before | None) -> Any:
        cluster = self.cluster
        buffer = self.hands[index] = bytearray(SIZE)
        cluster.in_hand = {"in_hand": InHand(buffer), "before": before}
        by_worker, prepared = cluster._made_of
        engine = cluster._make(index, by_worker[index], prepared)
        cluster.engines[index] = engine
        return engine

    def die(self, port: int, number: int) -> None:
        index = port - 6700
        if index in self.left:
            return  # a coroutine that goes on in a dead worker, in the same round of the loop
        log("deaths", number)
        self.left[index] = bytes(self.hands[index])
        self.cluster.engines[index].die(Killed())

    def run(self, secs: float = 600.0) -> None:
        """Until all is acked; whoever dies is replaced."""
        while True:
            self.cluster.run_until(
                lambda: bool(self.left) or len(set(LOG.get("acked", ()))) == COUNT, secs
            )
            if not self.left:
                return
            index, left = self.left.popitem()
            self.relaunch(index, left)

    def relaunch(self, index: int, left: bytes, *, counts: bool = True) -> None:
        cluster = self.cluster
        cluster.run(cluster.engines[index].stop(0))
        before = Before.parse(left, counts, "killed by SIGSEGV", f"node:{6700 + index}")
        engine = self._replace(index, before)
        gone = [task for task, slot in cluster.routes.items() if slot == cluster.slots[index]]

        async def start() -> None:
            for other in cluster.engines:
                if other is not engine:
                    other.worker_lost(gone)
            await asyncio.sleep(0.5)
            await engine.start()
            engine.set_routes(cluster.routes)
            engine.set_ready(True)
            cluster.network.begin()
            engine.set_active(True)
            cluster.network.ends[cluster.slots[index]]._wakeup()  # what came before it listened

        cluster.run(start())


SAME = {"source": 0, "price": 0, "morgue": 0, "__acker": 0}
OTHER = {"source": 0, "price": 1, "morgue": 0, "__acker": 0}


def price(
    where: dict[str, int],
    bolt: Bolt,
    *,
    source: Spout | None = None,
    consumed: bool = True,
    kills: Any = 3,
) -> Killing:
    builder = TopologyBuilder()
    builder.spout("source", source or Source())
    if isinstance(source, DirectSource):
        builder.bolt("price", bolt).direct("source")
    else:
        builder.bolt("price", bolt).shuffle("source")
    if consumed:
        builder.bolt("morgue", Morgue()).shuffle("source", stream="__dead_letter")
    conf = {
        "topology.acker.executors": 1,
        "topology.max.worker.kills": kills,
        "topology.message.timeout.secs": 1000,
    }
    workers = 1 + max(where.values())
    return Killing(builder.build(), workers, conf, lambda executor, component: where[component])


def check(bad: list[int], deaths_max: int) -> None:
    assert sorted({row["message_id"] for row in LOG["letters"]}) == sorted(bad)
    assert set(LOG["priced"]) == set(range(COUNT)) - set(bad)
    deaths = Counter(LOG["deaths"])
    assert set(deaths) == set(bad)
    assert max(deaths.values()) <= deaths_max, deaths
    for row in LOG["letters"]:
        assert tuple(row) == DEAD_LETTER_FIELDS
        assert row["values"] == [row["message_id"]]
        assert row["reason"].startswith("in hand at 3 unexpected worker exits")
        assert (row["component"], row["replays"]) == ("price", 2)


@pytest.mark.parametrize("where", [SAME, OTHER], ids=["same-worker", "other-worker"])
@pytest.mark.parametrize("kind", [Price, PriceUnanchored, PriceInBatch, PriceInColumns, PriceAsync])
@pytest.mark.parametrize("bad", [[57], [57, 58]], ids=["one", "two"])
def test_only_the_message_that_kills_its_worker_becomes_a_dead_letter(
    where: dict[str, int], kind: type[_Price], bad: list[int]
) -> None:
    """In the spout's worker the first death is one of which nothing is known."""
    killing = price(where, kind(bad))
    with killing.cluster:
        killing.run()
    check(bad, deaths_max=3 if kind in (Price, PriceUnanchored) else 4)


@pytest.mark.parametrize("source", [ColumnSource, DirectSource])
def test_every_way_to_emit_is_watched(source: type[Source]) -> None:
    if source is DirectSource:
        DirectSource.outputs = {"default": _direct()}
    killing = price(OTHER, Price([57]), source=source())
    with killing.cluster:
        killing.run()
    check([57], deaths_max=3)


def _direct() -> Any:
    from squall import Stream

    return Stream(["number"], direct=True)


def test_a_requested_exit_does_not_count() -> None:
    """And an innocent message may be in hand at more ends than the limit, if it is through in
    between."""
    killing = price(SAME, Price([57]))
    with killing.cluster:
        for _ in range(4):
            killing.cluster.run_until(lambda: bool(killing.left))
            killing.relaunch(*killing.left.popitem(), counts=False)
    assert "letters" not in LOG
    assert "deaths" in LOG


@pytest.mark.parametrize("kills", [0, None])
def test_it_can_be_switched_off(kills: Any) -> None:
    killing = price(OTHER, Price([57]), kills=kills)
    with killing.cluster:
        for _ in range(5):
            killing.cluster.run_until(lambda: bool(killing.left))
            killing.relaunch(*killing.left.popitem())
    assert "letters" not in LOG
    assert killing.cluster.errors == []


def test_without_a_consumer_it_is_tried_again_and_again_and_the_others_get_through() -> None:
    killing = price(OTHER, Price([57]), consumed=False)
    with killing.cluster:
        for _ in range(5):
            killing.cluster.run_until(lambda: bool(killing.left))
            killing.relaunch(*killing.left.popitem())
        killing.cluster.run_until(lambda: len(set(LOG.get("acked", ()))) == COUNT - 1)
    assert len(set(LOG["acked"])) == COUNT - 1
    texts = [str(error) for _, _, error in killing.cluster.errors]
    assert any("no bolt consumes the stream __dead_letter of 'source'" in text for text in texts)


def test_spouts_run_freely_again_when_suspicion_ends() -> None:
    killing = price(OTHER, Price([57]))
    with killing.cluster:
        killing.run()
        (watched,) = killing.cluster.engines[0].suspects.spouts
        assert watched.task.message_filter is watched
        killing.cluster.run_for(1000)
        assert watched.task.message_filter is None
        assert killing.cluster.engines[0].in_hand.careful is False


def test_the_next_worker_can_read_what_was_in_hand() -> None:
    buffer = bytearray(SIZE)
    in_hand = InHand(buffer)
    in_hand.loop[1], in_hand.loop[0] = 7, 1 << 20
    cell = in_hand.put(2 << 20, 8)
    in_hand.clear(in_hand.put(3 << 20, 9))
    in_hand.note_kills(77, 2, 5)
    in_hand.note_kills(78, 1, 5)
    in_hand.note_kills(78, 0)
    in_hand.note_careful(True)
    in_hand.note_emit(2 << 20, 77)
    in_hand.note_unreported([(4 << 20, 1)])
    found = Before.parse(bytes(buffer), True, "why", "n:1")
    assert set(found.held) == {(1 << 20, 7), (2 << 20, 8)}
    assert found.unreported == ((4 << 20, 1),)
    assert found.kills == {77: (2, 5)}
    assert found.emits == {2 << 20: 77}
    assert (found.careful, found.unknown, found.unrecorded) == (True, False, False)
    in_hand.clear(cell)
    in_hand.loop[0] = 0
    assert Before.parse(bytes(buffer), True, "", "").held == ()
    in_hand.note_careful(False)
    in_hand.clear_batch(in_hand.put_batch([[5 << 20]], 3))
    cells = in_hand.put_batch([[5 << 20]], 3)
    assert Before.parse(bytes(buffer), True, "", "").unrecorded
    in_hand.clear_batch(cells)
    in_hand.put(6 << 20, 3)
    in_hand.keep_last()
    in_hand.clear(0)
    assert (6 << 20, 3) in Before.parse(bytes(buffer), True, "", "").held


@pytest.mark.parametrize("data", [b"", bytes(SIZE), bytes(SIZE - 8), b"x" * SIZE])
def test_a_record_that_no_worker_has_written_is_refused(data: bytes) -> None:
    assert int.from_bytes(data[:8], "little") != MAGIC
    with pytest.raises(ValueError, match="not"):
        Before.parse(data, True, "", "")


def test_running_out_of_cells_is_not_an_error() -> None:
    in_hand = InHand(bytearray(SIZE))
    cells = [in_hand.put(number << 16, 1) for number in range(1, 2000)]
    assert cells[-1] == -1
    in_hand.clear_batch(cells)
    assert in_hand.put(1 << 16, 1) >= 0


def test_a_key_is_the_same_in_every_process_and_for_equal_ids() -> None:
    registry = Registry()
    assert key_of("s", 1, registry) == key_of("s", 1.0, registry)
    assert key_of("s", 1, registry) != key_of("t", 1, registry)
    assert key_of("orders", ("a", 2), registry) == 7023021763943496084  # of another process
    assert key_of("s", object, registry) == key_of("s", object, registry)
