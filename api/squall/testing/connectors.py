"""The contract of sources and sinks, as test classes to derive from.

    class TestOrders(SourceContract):
        def make_source(self, **options):
            return OrdersSpout(URL, **options)

        def put(self, records):
            for record in records:
                client.send(URL, record)

    class TestStore(SinkContract):
        fields = ("name",)

        def make_sink(self, **options):
            return StoreBolt(URL, **options)

        def stored(self):
            return client.read_all(URL)

pytest finds the tests in the derived class. They run the spout or bolt in the engine of a worker,
in real time, against the system that it connects to; each test needs that system empty, so let a
fixture make a new topic, table or folder for each. Tests of outages need `server`: an object whose
`kill()` and `restart()` end and start the system, with its data. Tests that kill the worker run the
topology in a child process, which imports the component's class by its name; they are left out
(`importable = False`) for a class inside a test.

Records are strings such as "17"; `records` and `kills` set how hard the tests try.
"""

from __future__ import annotations

import functools
import random
import resource
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar, Protocol

from squall import (
    Bolt,
    ReplayingSpout,
    RowBatch,
    Spout,
    TopologyBuilder,
    TransactionalSink,
    Tuple,
)
from squall.testing._runs import KillableTopology, TopologyRun
from squall.testing._runs import wait_until as wait_until
from squall.testing._transactional import GivenTuple, GrowingLines, KillingSink
from squall.testing.topologies import FeederSpout, _streams_of
from squall_common.topology.model import (
    Component,
    ComponentKind,
    GlobalStreamId,
    Grouping,
    GroupingKind,
    PythonObject,
    Topology,
)

__all__ = [
    "ServerControl",
    "SinkContract",
    "SourceContract",
    "TransactionalSinkContract",
    "wait_until",
]

_GIVEN = PythonObject("squall.testing:FeederSpout", b'{"args":[],"kwargs":{}}')
_QUIET_SECS = 1.0
_WAIT_SECS = 120.0  # a server that is started again on a busy machine takes a minute


class ServerControl(Protocol):
    """The system that a connector talks to, as tests of outages need it."""

    def kill(self) -> None:
        """End it at once, as SIGKILL does."""

    def restart(self) -> None:
        """Start it with the data that it had, and wait until it answers."""


class CollectingBolt(Bolt):
    """Keeps what it gets, and does with each tuple what `decide` says: "ack", "fail" or "hold"."""

    auto_ack = False

    def __init__(self, record_field: str) -> None:
        self._field = record_field
        self.decide: Callable[[str], str] = lambda record: "ack"
        self.got: list[str] = []
        self.held: list[Tuple] = []

    def execute(self, tup: Tuple) -> None:
        record = _text(tup[self._field])
        self.got.append(record)
        decision = self.decide(record)
        if decision == "hold":
            self.held.append(tup)
        elif decision == "fail":
            self.fail(tup)
        else:
            self.ack(tup)

    def release(self) -> None:
        """Ack what is held, and hold no more."""
        self.decide = lambda record: "ack"
        for tup in self.held:
            self.ack(tup)
        self.held.clear()


class DeadLetterBolt(Bolt):
    """Keeps the dead letters of a spout."""

    def __init__(self) -> None:
        self.got: list[list[Any]] = []

    def execute(self, tup: Tuple) -> None:
        self.got.append(list(tup.values))


class RecordingBolt(Bolt):
    """Appends each record to a file before it acks it: the file has what took effect."""

    def __init__(self, path: Path, record_field: str) -> None:
        self._path = path
        self._field = record_field

    def prepare(self, conf: Any, context: Any) -> None:
        self._file = self._path.open("ab", buffering=0)

    def execute(self, tup: Tuple) -> None:
        self._file.write(f"{_text(tup[self._field])}\n".encode())

    def cleanup(self) -> None:
        self._file.close()


class LinesSpout(ReplayingSpout):
    """Emits the lines of a file, tab-separated into fields, and notes those that are acked in
    another. Started again it emits those that are not noted."""

    def __init__(self, path: Path, acked_path: Path, fields: Sequence[str]) -> None:
        self._path = path
        self._acked_path = acked_path
        self.outputs = list(fields)

    def open(self, conf: Any, context: Any) -> None:
        self._acked_file = self._acked_path.open("ab", buffering=0)
        done = set(self._acked_path.read_text().splitlines())
        lines = self._path.read_text().splitlines()
        self._lines = iter([line for line in lines if line not in done])

    def next_message(self) -> Sequence[Any] | None:
        line = next(self._lines, None)
        return None if line is None else line.split("\t")

    def acked(self, values: Sequence[Any]) -> None:
        self._acked_file.write(("\t".join(values) + "\n").encode())

    def close(self) -> None:
        self._acked_file.close()


class SourceContract:
    """What a source promises, as tests.

        class TestOrders(SourceContract):
            def make_source(self, **options):
                return OrdersSpout(URL, **options)

            def put(self, records):
                for record in records:
                    client.send(URL, record)

    Define `make_source` and `put`.
    """

    #: The field that holds the record.
    record_field: ClassVar[str] = "value"
    #: How many records most tests put, how many the one that kills workers, and how often.
    records: ClassVar[int] = 200
    kill_records: ClassVar[int] = 2_000
    kills: ClassVar[int] = 2
    #: How often the server is killed, if that is not `kills`: for one that starts slowly.
    server_kills: ClassVar[int | None] = None
    #: How long the server is away in the test of an outage.
    outage_secs: ClassVar[float] = 3.0
    importable: ClassVar[bool] = True
    #: Whether the source keeps its position or its messages when a worker is lost. One that does
    #: not (a web socket) leaves those tests out.
    durable: ClassVar[bool] = True
    #: Whether its metric `lag` says how many records wait at the system or are in flight.
    reports_lag: ClassVar[bool] = False

    server: ServerControl | None = None

    def make_source(self, **options: Any) -> Spout:
        """A spout under test, the same each time: the next one goes on where the last ended.
        `options` may have `in_flight_max`, `max_replays`, `retry_first_secs` and
        `retry_max_secs`."""
        raise NotImplementedError

    def put(self, records: Sequence[str]) -> None:
        """Make the system hold these records, in this order, and return when it does."""
        raise NotImplementedError

    def partition_of(self, record: str) -> Hashable:
        """The partition of a record: records of one must come in order. None: no order is
        promised."""
        return None

    # -- the tests --

    def test_every_record_is_emitted_and_acked(self) -> None:
        records = _numbers(self.records)
        with self.running() as (bolt, _, _):
            self.put(records)
            _wait_for_all(bolt, records)
        assert Counter(bolt.got) == Counter(records)

    def test_records_that_are_there_before_the_topology_are_emitted(self) -> None:
        records = _numbers(self.records)
        self.put(records)
        with self.running() as (bolt, _, _):
            _wait_for_all(bolt, records)

    def test_records_of_a_partition_come_in_order(self) -> None:
        records = _numbers(self.records)
        with self.running() as (bolt, _, _):
            self.put(records)
            _wait_for_all(bolt, records)
        by_partition: dict[Hashable, list[int]] = {}
        for record in bolt.got:
            if (partition := self.partition_of(record)) is not None:
                by_partition.setdefault(partition, []).append(int(record))
        assert all(numbers == sorted(numbers) for numbers in by_partition.values())

    def test_processed_records_are_not_read_again_after_a_graceful_stop(self) -> None:
        if not self.durable:
            return
        first, second = _numbers(self.records), _numbers(10, start=self.records)
        with self.running() as (bolt, run, _):
            self.put(first)
            _wait_for_all(bolt, first)
            run.stop(drain_secs=10)
        with self.running() as (bolt, _, _):
            self.put(second)
            _wait_for_all(bolt, second)
        assert Counter(bolt.got) == Counter(second)

    def test_records_in_flight_are_read_again_by_the_next_worker(self) -> None:
        if not self.durable:
            return
        records = _numbers(20)
        with self.running() as (bolt, run, _):
            bolt.decide = lambda record: "hold" if int(record) % 2 else "ack"
            self.put(records)
            _wait_for_all(bolt, records)
            run.stop()
        with self.running() as (bolt, _, _):
            _wait_for_all(bolt, [record for record in records if int(record) % 2])

    def test_records_in_flight_are_bounded(self) -> None:
        records = _numbers(60)
        with self.running(in_flight_max=25) as (bolt, run, _):
            bolt.decide = lambda record: "hold"
            self.put(records)
            wait_until("25 records", lambda: len(bolt.got) >= 25, _WAIT_SECS)
            time.sleep(_QUIET_SECS)
            assert len(bolt.got) == 25
            run.call(bolt.release)
            _wait_for_all(bolt, records)

    def test_a_record_that_fails_is_emitted_again(self) -> None:
        records = _numbers(20)
        failing = Counter({"7": 2, "13": 1})

        def decide(record: str) -> str:
            if failing[record] <= 0:
                return "ack"
            failing[record] -= 1
            return "fail"

        with self.running(retry_first_secs=0.01) as (bolt, run, _):
            bolt.decide = decide
            self.put(records)
            wait_until("the third attempt", lambda: bolt.got.count("7") == 3, _WAIT_SECS)
            _wait_for_all(bolt, records)
            run.stop(drain_secs=10)
        assert bolt.got.count("13") == 2

    def test_a_record_that_always_fails_becomes_a_dead_letter_and_holds_up_nothing(self) -> None:
        records = _numbers(self.records)
        with self.running(max_replays=2, retry_first_secs=0.01) as (bolt, run, letters):
            bolt.decide = lambda record: "fail" if record == "3" else "ack"
            self.put(records)
            _wait_for_all(bolt, records)
            wait_until("the dead letter", lambda: letters.got, _WAIT_SECS)
            run.stop(drain_secs=10)
        assert bolt.got.count("3") == 3
        if not self.durable:
            return
        with self.running() as (bolt, _, _):  # it was the source's last word on that record
            self.put(["1000000"])
            _wait_for_all(bolt, ["1000000"])
        assert bolt.got == ["1000000"]

    def test_a_deactivated_source_emits_nothing_and_loses_nothing(self) -> None:
        first, second = _numbers(20), _numbers(20, start=20)
        with self.running() as (bolt, run, _):
            self.put(first)
            _wait_for_all(bolt, first)
            run.set_active(False)
            time.sleep(_QUIET_SECS / 4)  # a call of next_tuple that is under way
            before = len(bolt.got)
            if self.durable:
                self.put(second)
            time.sleep(_QUIET_SECS)
            assert len(bolt.got) == before
            run.set_active(True)
            if not self.durable:
                self.put(second)
            _wait_for_all(bolt, first + second)

    def test_an_outage_of_the_server_loses_nothing_and_keeps_no_core_busy(self) -> None:
        if self.server is None:
            return
        first, second = _numbers(self.records), _numbers(self.records, start=self.records)
        with self.running() as (bolt, run, _):
            self.put(first)
            wait_until("the first records", lambda: len(bolt.got) >= 10, _WAIT_SECS)
            self.server.kill()
            cpu, start = _cpu_secs(), time.monotonic()
            time.sleep(self.outage_secs)
            busy = (_cpu_secs() - cpu) / (time.monotonic() - start)
            self.server.restart()
            self.put(second)
            _wait_for_all(bolt, first + second)
            assert run.died is None
            assert run.errors, "the outage was not reported"
        assert busy < 0.5, f"{busy:.2f} of a core while the server was away"

    def test_the_lag_is_what_is_not_done(self) -> None:
        if not self.reports_lag:
            return
        records = _numbers(30)
        source: Any = self.make_source()
        if hasattr(source, "lag_secs"):  # of an AsyncSource: do not wait for it
            source.lag_secs = 0.2
        with self.running_source(source) as (bolt, run, _):
            bolt.decide = lambda record: "hold"
            self.put(records)

            def lag() -> float | None:
                return run.gauge("source", "lag")

            wait_until("a lag of all records", lambda: lag() == 30, _WAIT_SECS, 0.05)
            run.call(bolt.release)
            wait_until("no lag", lambda: lag() == 0, _WAIT_SECS, 0.05)

    def test_a_killed_worker_loses_nothing(self) -> None:
        if not (self.importable and self.durable):
            return
        self._kill(self.kills, server=False)

    def test_a_killed_server_loses_nothing(self) -> None:
        if self.server is None or not (self.importable and self.durable):
            return
        self._kill(self.kills if self.server_kills is None else self.server_kills, server=True)

    def _kill(self, kills: int, *, server: bool) -> None:
        records = _numbers(self.kill_records)
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            taken = folder / "records"
            taken.touch()
            builder = TopologyBuilder()
            builder.spout("source", self.make_source())
            record = RecordingBolt(taken, self.record_field)
            builder.bolt("record", record).shuffle("source")
            chance = random.Random(kills)
            steps = [records[i :: kills + 1] for i in range(kills + 1)]
            with KillableTopology(builder.build(), folder, _KILL_CONF) as topology:
                put: set[str] = set()
                for step in steps:
                    if put:  # in the middle of these
                        if server:
                            assert self.server is not None
                            self.server.kill()
                            time.sleep(chance.uniform(0, 0.5))
                            self.server.restart()
                        else:
                            topology.kill()
                            topology.start()
                    self.put(step)
                    goal = len(put) + chance.randrange(len(step))
                    put.update(step)
                    _wait_for_lines(taken, topology, goal)
                _wait_for_lines(taken, topology, len(put))
                missing = put - set(taken.read_text().splitlines())
                assert not missing, f"{len(missing)} records are lost, {min(missing)} among them"

    @contextmanager
    def running(
        self, **options: Any
    ) -> Iterator[tuple[CollectingBolt, TopologyRun, DeadLetterBolt]]:
        """The source in a topology, with the bolts that take its records and its dead letters."""
        with self.running_source(self.make_source(**options)) as running:
            yield running

    @contextmanager
    def running_source(
        self, source: Spout, *, name: str = "contract"
    ) -> Iterator[tuple[CollectingBolt, TopologyRun, DeadLetterBolt]]:
        """The same with a spout that is made already, in a topology of this name."""
        bolt, letters = CollectingBolt(self.record_field), DeadLetterBolt()
        components = {
            "source": Component(
                "source",
                ComponentKind.SPOUT,
                _GIVEN,
                streams=_streams_of(source.outputs),
                conf=dict(source.component_conf),
            ),
            "collect": _bolt("collect", "source", "default"),
            "letters": _bolt("letters", "source", "__dead_letter"),
        }
        objects = {"source": source, "collect": bolt, "letters": letters}
        with TopologyRun(components, objects, name=name) as run:
            yield bolt, run, letters


class SinkContract:
    """What a sink promises. Define `make_sink` and `stored`, and `values_of` and `fields` if its
    tuples are more than a record.

        class TestStore(SinkContract):
            def make_sink(self, **options):
                return StoreBolt(URL, **options)

            def stored(self):
                return client.read_all(URL)
    """

    #: The fields of the tuples that the sink gets.
    fields: ClassVar[Sequence[str]] = ("value",)
    records: ClassVar[int] = 1_000
    kill_records: ClassVar[int] = 2_000
    kills: ClassVar[int] = 2
    #: How often the server is killed, if that is not `kills`: for one that starts slowly.
    server_kills: ClassVar[int | None] = None
    outage_secs: ClassVar[float] = 3.0
    importable: ClassVar[bool] = True
    #: How long a lone tuple may take until it is written.
    linger_secs: ClassVar[float] = 5.0
    #: Whether the system keeps what it has confirmed when it is killed itself.
    durable: ClassVar[bool] = True

    server: ServerControl | None = None

    def make_sink(self, **options: Any) -> Bolt:
        """A bolt under test."""
        raise NotImplementedError

    def stored(self) -> Sequence[str]:
        """The records that the system holds now, in any order."""
        raise NotImplementedError

    def values_of(self, record: str) -> list[str]:
        """The values of the tuple for a record, which are strings."""
        return [record]

    def rejected(self) -> list[Any] | None:
        """The values of a tuple that the system refuses; None: there are none."""
        return None

    # -- the tests --

    def test_acked_tuples_are_stored(self) -> None:
        records = _numbers(self.records)
        with self.running() as (feeder, acked, _):
            self._feed(feeder, records)
            wait_until("the acks", lambda: len(acked.acked) == len(records), _WAIT_SECS)
            assert set(self.stored()) == set(records)

    def test_tuples_are_stored_when_they_are_acked(self) -> None:
        """Looks at the system at each of the first acks."""
        with self.running() as (feeder, acked, _):
            for record in _numbers(5):
                self._feed(feeder, [record])
                wait_until(
                    "its ack", functools.partial(acked.acked.__contains__, record), self.linger_secs
                )
                assert record in self.stored()

    def test_what_is_in_hand_is_written_when_the_topology_stops(self) -> None:
        records = _numbers(50)
        with self.running() as (feeder, acked, run):
            self._feed(feeder, records)
            wait_until("them to be emitted", lambda: feeder.is_empty, _WAIT_SECS)
            run.stop(drain_secs=30)
        assert set(acked.acked) == set(records)
        assert set(self.stored()) == set(records)

    def test_a_record_that_the_system_refuses_is_reported_and_the_others_are_stored(self) -> None:
        refused = self.rejected()
        if refused is None:
            return
        records = _numbers(40)
        with self.running() as (feeder, acked, run):
            self._feed(feeder, records[:20])
            feeder.feed(refused, "refused")
            self._feed(feeder, records[20:])
            everything = len(records) + 1
            wait_until(
                "all to be settled",
                lambda: len(acked.acked) + len(acked.failed) >= everything,
                _WAIT_SECS,
            )
            assert acked.failed == ["refused"]
            assert run.errors
            assert set(self.stored()) == set(records)

    def test_a_refused_record_goes_to_the_bolt_that_takes_dead_letters(self) -> None:
        refused = self.rejected()
        if refused is None:
            return
        letters = DeadLetterBolt()
        with self.running(letters=letters) as (feeder, acked, _):
            feeder.feed(refused, "refused")
            wait_until("its dead letter", lambda: letters.got, _WAIT_SECS)
            wait_until("its ack", lambda: acked.acked == ["refused"], _WAIT_SECS)
        values, fields, component, stream, reason = letters.got[0]
        assert (list(values), list(fields)) == (refused, list(self.fields))
        assert (component, stream) == ("feed", "default")
        assert reason

    def test_an_outage_of_the_server_loses_nothing_and_keeps_no_core_busy(self) -> None:
        if self.server is None:
            return
        first, second = _numbers(self.records), _numbers(self.records, start=self.records)
        with self.running() as (feeder, acked, run):
            self._feed(feeder, first)
            wait_until("the first acks", lambda: len(acked.acked) > 10, _WAIT_SECS)
            self.server.kill()
            self._feed(feeder, second)
            cpu, start = _cpu_secs(), time.monotonic()
            time.sleep(self.outage_secs)
            busy = (_cpu_secs() - cpu) / (time.monotonic() - start)
            self.server.restart()
            everything = len(first + second)
            wait_until("the acks", lambda: len(acked.acked) == everything, _WAIT_SECS)
            assert not acked.failed
            assert run.errors
        if self.durable:
            assert set(self.stored()) == set(first + second)
        assert busy < 0.5, f"{busy:.2f} of a core while the server was away"

    def test_a_killed_worker_loses_nothing(self) -> None:
        if self.importable:
            self._kill(self.kills, server=False)

    def test_a_killed_server_loses_nothing(self) -> None:
        if self.importable and self.durable and self.server is not None:
            kills = self.kills if self.server_kills is None else self.server_kills
            self._kill(kills, server=True)

    def _kill(self, kills: int, *, server: bool) -> None:
        records = _numbers(self.kill_records)
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            lines, acked = folder / "lines", folder / "acked"
            lines.write_text("".join("\t".join(self.values_of(r)) + "\n" for r in records))
            acked.touch()
            builder = TopologyBuilder()
            builder.spout("lines", LinesSpout(lines, acked, self.fields))
            builder.bolt("sink", self.make_sink()).shuffle("lines")
            # So few at a time that each kill meets some.
            conf = {**_KILL_CONF, "topology.max.spout.pending": max(10, len(records) // 50)}
            chance = random.Random(kills)
            with KillableTopology(builder.build(), folder, conf) as topology:
                for kill in range(kills):
                    share = (kill + chance.random()) / kills
                    _wait_for_lines(acked, topology, int(share * len(records)))
                    if server:
                        assert self.server is not None
                        self.server.kill()
                        time.sleep(chance.uniform(0, 0.5))
                        self.server.restart()
                    else:
                        topology.kill()
                        topology.start()
                _wait_for_lines(acked, topology, len(records))
            missing = set(records) - set(self.stored())
            assert not missing, f"{len(missing)} records are lost, {min(missing)} among them"

    def _feed(self, feeder: FeederSpout, records: Sequence[str]) -> None:
        for record in records:
            feeder.feed(self.values_of(record), record)

    @contextmanager
    def running(
        self, letters: DeadLetterBolt | None = None, **options: Any
    ) -> Iterator[tuple[NotingFeeder, NotingFeeder, TopologyRun]]:
        """The sink in a topology: the spout that feeds it (twice, as it also notes what became of
        its messages), and the run. `letters` gets the sink's dead letters."""
        with self.running_sink(self.make_sink(**options), letters=letters) as (feeder, run):
            yield feeder, feeder, run

    @contextmanager
    def running_sink(
        self,
        sink: Bolt,
        *,
        fields: Sequence[str] | None = None,
        letters: DeadLetterBolt | None = None,
    ) -> Iterator[tuple[NotingFeeder, TopologyRun]]:
        """The same with a bolt that is made already, and gets tuples of these fields."""
        feeder = NotingFeeder()
        given = self.fields if fields is None else fields
        components: dict[str, Component] = {
            "feed": Component(
                "feed", ComponentKind.SPOUT, _GIVEN, streams=_streams_of(list(given))
            ),
            "sink": _bolt("sink", "feed", "default", sink),
        }
        objects: dict[str, Any] = {"feed": feeder, "sink": sink}
        if letters is not None:
            components["letters"] = _bolt("letters", "sink", "dead_letter")
            objects["letters"] = letters
        with TopologyRun(components, objects) as run:
            yield feeder, run


class TransactionalSinkContract:
    """What a `TransactionalSink` promises. Define `make_sink` and `stored`, and `values_of` and
    `fields` if its tuples are more than a record.

        class TestStore(TransactionalSinkContract):
            def make_sink(self):
                return StoreSink(URL)

            def stored(self):
                return client.read_all(URL)
    """

    #: The fields of the tuples that the sink gets.
    fields: ClassVar[Sequence[str]] = ("value",)
    records: ClassVar[int] = 1_000
    kill_records: ClassVar[int] = 2_000
    kills: ClassVar[int] = 2
    #: How often the server is killed, if that is not `kills`: for one that starts slowly.
    server_kills: ClassVar[int | None] = None
    #: How long a commit may take to fail while the server is away.
    outage_secs_max: ClassVar[float] = 60.0
    importable: ClassVar[bool] = True

    server: ServerControl | None = None

    def make_sink(self) -> TransactionalSink:
        """A sink under test. Each one writes to the same place."""
        raise NotImplementedError

    def prepare(self, sink: TransactionalSink) -> None:
        """Prepare a sink outside of a topology. Define it if the sink's `prepare` uses its
        arguments, or is async."""
        nothing: Any = None
        sink.prepare({}, nothing)

    def stored(self) -> Sequence[str]:
        """The records that the system holds now, each as often as it is there, in any order. Also
        while the sink has written nothing yet."""
        raise NotImplementedError

    def values_of(self, record: str) -> list[str]:
        """The values of the tuple for a record, which are strings."""
        return [record]

    def rejected(self) -> list[Any] | None:
        """The values of a tuple that the system refuses in `commit`; None: there are none."""
        return None

    def make_sink_that_puts_aside(self) -> TransactionalSink | None:
        """The same sink, told to put refused rows aside, in the transaction of the others; None: it
        cannot. It reports them with `report_error`, once for a commit."""
        return None

    def put_aside(self) -> Sequence[Sequence[Any]]:
        """The values of the tuples that are put aside now."""
        raise NotImplementedError

    # -- the tests --

    def test_batches_that_are_committed_again_are_written_once(self) -> None:
        sink = self._prepared()
        first, second = self._batch(3, "a"), self._batch(5, "b", "c")
        sink.commit([first])
        sink.commit([first, second])
        self._prepared().commit([second])  # after a restart
        assert sorted(self.stored()) == ["a", "b", "c"]

    def test_one_commit_takes_batches_of_several_writers(self) -> None:
        batches = [self._batch(3, "a"), self._batch(4, "b"), self._batch(3, "c", task=1)]
        self._prepared().commit(batches)
        self._prepared().commit([*batches[1:], self._batch(4, "d", task=1)])
        assert sorted(self.stored()) == ["a", "b", "c", "d"]

    def test_an_epoch_of_another_history_is_written(self) -> None:
        sink = self._prepared()
        sink.commit([self._batch(7, "a")])
        sink.commit([self._batch(1, "b", history="contract@2")])
        assert sorted(self.stored()) == ["a", "b"]

    def test_two_processes_with_the_same_batch_write_it_once(self) -> None:
        """One of them was given up, and is still writing."""
        records = _numbers(self.records)
        batch = self._batch(1, *records)
        start = threading.Barrier(2)

        def commit(sink: TransactionalSink) -> None:
            start.wait(30)
            for _ in range(10):  # as the engine does
                try:
                    sink.commit([batch])
                    return
                except Exception as error:
                    failed.append(error)
                    time.sleep(0.05)

        failed: list[Exception] = []
        sinks = [self._prepared(), self._prepared()]
        threads = [threading.Thread(target=commit, args=(sink,)) for sink in sinks]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        assert Counter(self.stored()) == Counter(records), failed

    def test_a_commit_that_is_refused_writes_nothing(self) -> None:
        refused = self.rejected()
        if refused is None:
            return
        good = self._batch(1, "a")
        sink = self._prepared()
        bad = RowBatch(good.writer, 2, [self._row(sink, refused)])
        for _ in range(2):
            refusal: Exception | None = None
            try:
                sink.commit([good, bad])
            except Exception as error:
                refusal = error
            assert refusal is not None, "the row was not refused"
        assert list(self.stored()) == []
        sink.commit([good])
        assert list(self.stored()) == ["a"]

    def test_a_refused_row_is_put_aside_once_and_the_others_are_written(self) -> None:
        sink, refused = self.make_sink_that_puts_aside(), self.rejected()
        if sink is None:
            return
        assert refused is not None, "define rejected()"
        reports = self._prepare(sink)
        good = self._batch(1, "a", "b")
        mixed = RowBatch(good.writer, 2, list(self._batch(2, "c", "d", "e").rows))
        mixed.rows[1:1] = [self._row(sink, refused)]  # type: ignore[index]
        alone = RowBatch(good.writer, 3, [self._row(sink, refused)])
        for _ in range(2):
            sink.commit([good, mixed, alone])
        again = self.make_sink_that_puts_aside()  # after a restart
        assert again is not None
        reports_again = self._prepare(again)
        again.commit([mixed, alone, self._batch(4, "f")])
        assert sorted(self.stored()) == ["a", "b", "c", "d", "e", "f"]
        assert list(self.put_aside()) == [refused, refused]
        assert len(reports) == 1, reports
        assert reports_again == []

    def test_a_commit_fails_while_the_server_is_away_and_succeeds_afterwards(self) -> None:
        if self.server is None:
            return
        sink = self._prepared()
        first, second = self._batch(1, "a"), self._batch(2, "b")
        sink.commit([first])
        self.server.kill()
        began = time.monotonic()
        try:
            sink.commit([first, second])
        except Exception:
            assert time.monotonic() - began < self.outage_secs_max
        else:
            raise AssertionError("a commit succeeded without the server")
        finally:
            self.server.restart()
        sink.commit([first, second])
        assert sorted(self.stored()) == ["a", "b"]

    def test_a_process_that_is_killed_around_a_commit_writes_each_row_once(self) -> None:
        """Before the sink has written the rows of a complete checkpoint, and after it has, before
        anyone knows."""
        if not self.importable:
            return
        records = _numbers(self.records)
        with self._killable(kills_itself=True) as (topology, lines):
            self._append(lines, records)
            for when in ("before", "after"):
                topology.wait_for_end(_WAIT_SECS)
                assert (lines.parent / when).exists(), "the process has ended by itself"
                topology.start()
            self._wait_for_rows(topology, len(records))
        assert Counter(self.stored()) == Counter(records)

    def test_a_process_that_is_killed_at_any_moment_writes_each_row_once(self) -> None:
        if self.importable and self.kills:
            self._kill(self.kills, server=False)

    def test_a_server_that_is_killed_has_each_row_once(self) -> None:
        if self.importable and self.server is not None:
            self._kill(self.kills if self.server_kills is None else self.server_kills, server=True)

    def _kill(self, kills: int, *, server: bool) -> None:
        records = _numbers(self.kill_records)
        chance = random.Random(kills)
        with self._killable(kills_itself=False) as (topology, lines):
            put = 0
            for step in range(kills):
                given = records[step :: kills + 1]
                self._append(lines, given)
                self._wait_for_rows(topology, put + chance.randrange(len(given)))
                put += len(given)
                time.sleep(chance.uniform(0, 0.2))  # into any step of a checkpoint
                if server:
                    assert self.server is not None
                    self.server.kill()
                    time.sleep(chance.uniform(0, 0.5))
                    self.server.restart()
                else:
                    topology.kill()
                    topology.start()
            self._append(lines, records[kills :: kills + 1])
            self._wait_for_rows(topology, len(records))
        assert Counter(self.stored()) == Counter(records)

    @contextmanager
    def _killable(self, *, kills_itself: bool) -> Iterator[tuple[KillableTopology, Path]]:
        """The sink in a topology with checkpoints, in another process, and the file of the lines
        that it gets."""
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            lines = folder / "lines"
            lines.touch()
            sink = self.make_sink()
            if kills_itself:
                given = self._build(lines, sink).components["sink"].object
                assert isinstance(given, PythonObject)
                sink = KillingSink(given.class_path, given.arguments.decode(), folder)
            conf = {
                "topology.checkpoint.interval.secs": 0.1,
                "topology.state.url": str(folder / "checkpoints"),
            }
            with KillableTopology(self._build(lines, sink), folder, conf) as topology:
                yield topology, lines

    def _build(self, lines: Path, sink: TransactionalSink) -> Topology:
        builder = TopologyBuilder()
        builder.spout("lines", GrowingLines(lines, self.fields))
        builder.bolt("sink", sink).shuffle("lines")
        return builder.build()

    def _append(self, lines: Path, records: Sequence[str]) -> None:
        with lines.open("a") as file:
            file.writelines("\t".join(self.values_of(record)) + "\n" for record in records)

    def _wait_for_rows(self, topology: KillableTopology, count: int) -> None:
        def there() -> bool:
            topology.check()
            return len(self.stored()) >= count

        wait_until(f"{count} rows", there, 120.0, 0.05)

    def _prepared(self) -> TransactionalSink:
        sink = self.make_sink()
        self._prepare(sink)
        return sink

    def _prepare(self, sink: TransactionalSink) -> list[BaseException]:
        """Prepare a sink without a collector. Returns the list of the errors that it reports."""
        reports: list[BaseException] = []
        object.__setattr__(sink, "report_error", reports.append)  # as binding does
        self.prepare(sink)
        return reports

    def _row(self, sink: TransactionalSink, values: Sequence[Any]) -> Any:
        return sink.row(GivenTuple(self.fields, values))

    def _batch(
        self, epoch: int, *records: str, task: int = 0, history: str = "contract@1"
    ) -> RowBatch:
        sink = self._prepared()
        rows = [self._row(sink, self.values_of(record)) for record in records]
        return RowBatch(f"{history}/sink/{task}", epoch, rows)


class NotingFeeder(FeederSpout):
    """A feeder that notes what became of its messages."""

    def __init__(self) -> None:
        super().__init__()
        self.acked: list[Any] = []
        self.failed: list[Any] = []

    def ack(self, msg_id: Any) -> None:
        self.acked.append(msg_id)

    def fail(self, msg_id: Any) -> None:
        self.failed.append(msg_id)


# A killed worker's messages are another process's soon: nothing waits for a message timeout.
_KILL_CONF: Mapping[str, Any] = {"topology.message.timeout.secs": 60}


def _bolt(name: str, source: str, stream: str, bolt: Bolt | None = None) -> Component:
    return Component(
        name,
        ComponentKind.BOLT,
        _GIVEN,
        inputs={GlobalStreamId(source, stream): Grouping(GroupingKind.SHUFFLE)},
        streams={} if bolt is None else _streams_of(bolt.outputs),
        conf={} if bolt is None else dict(bolt.component_conf),
    )


def _numbers(count: int, *, start: int = 0) -> list[str]:
    return [str(number) for number in range(start, start + count)]


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)


def _wait_for_all(bolt: CollectingBolt, records: Sequence[str]) -> None:
    wanted = set(records)
    try:
        wait_until("the records", lambda: wanted <= set(bolt.got), _WAIT_SECS, 0.02)
    except AssertionError as error:
        missing = sorted(wanted - set(bolt.got))
        raise AssertionError(f"{error}: {len(missing)} are missing: {missing[:5]}") from None


def _wait_for_lines(path: Path, topology: KillableTopology, count: int) -> None:
    def there() -> bool:
        topology.check()
        return len(set(path.read_bytes().splitlines())) >= count

    wait_until(f"{count} different records", there, 120.0, 0.05)


def _cpu_secs() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime
