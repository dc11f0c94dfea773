"""What a source promises. See `squall.testing.connectors`."""

from __future__ import annotations

import random
import tempfile
import time
from collections import Counter
from collections.abc import Hashable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar

from squall import Spout, TopologyBuilder
from squall.testing._contract_parts import (
    GIVEN,
    KILL_CONF,
    QUIET_SECS,
    WAIT_SECS,
    CollectingBolt,
    DeadLetterBolt,
    RecordingBolt,
    ServerControl,
    bolt_of,
    cpu_secs,
    numbers,
    wait_for_all,
    wait_for_lines,
)
from squall.testing._runs import KillableTopology, TopologyRun, wait_until
from squall.testing.topologies import _streams_of
from squall_common.topology.model import Component, ComponentKind


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
        records = numbers(self.records)
        with self.running() as (bolt, _, _):
            self.put(records)
            wait_for_all(bolt, records)
        assert Counter(bolt.got) == Counter(records)

    def test_records_that_are_there_before_the_topology_are_emitted(self) -> None:
        records = numbers(self.records)
        self.put(records)
        with self.running() as (bolt, _, _):
            wait_for_all(bolt, records)

    def test_records_of_a_partition_come_in_order(self) -> None:
        records = numbers(self.records)
        with self.running() as (bolt, _, _):
            self.put(records)
            wait_for_all(bolt, records)
        by_partition: dict[Hashable, list[int]] = {}
        for record in bolt.got:
            if (partition := self.partition_of(record)) is not None:
                by_partition.setdefault(partition, []).append(int(record))
        assert all(numbers == sorted(numbers) for numbers in by_partition.values())

    def test_processed_records_are_not_read_again_after_a_graceful_stop(self) -> None:
        if not self.durable:
            return
        first, second = numbers(self.records), numbers(10, start=self.records)
        with self.running() as (bolt, run, _):
            self.put(first)
            wait_for_all(bolt, first)
            run.stop(drain_secs=10)
        with self.running() as (bolt, _, _):
            self.put(second)
            wait_for_all(bolt, second)
        assert Counter(bolt.got) == Counter(second)

    def test_records_in_flight_are_read_again_by_the_next_worker(self) -> None:
        if not self.durable:
            return
        records = numbers(20)
        with self.running() as (bolt, run, _):
            bolt.decide = lambda record: "hold" if int(record) % 2 else "ack"
            self.put(records)
            wait_for_all(bolt, records)
            run.stop()
        with self.running() as (bolt, _, _):
            wait_for_all(bolt, [record for record in records if int(record) % 2])

    def test_records_in_flight_are_bounded(self) -> None:
        records = numbers(60)
        with self.running(in_flight_max=25) as (bolt, run, _):
            bolt.decide = lambda record: "hold"
            self.put(records)
            wait_until("25 records", lambda: len(bolt.got) >= 25, WAIT_SECS)
            time.sleep(QUIET_SECS)
            assert len(bolt.got) == 25
            run.call(bolt.release)
            wait_for_all(bolt, records)

    def test_a_record_that_fails_is_emitted_again(self) -> None:
        records = numbers(20)
        failing = Counter({"7": 2, "13": 1})

        def decide(record: str) -> str:
            if failing[record] <= 0:
                return "ack"
            failing[record] -= 1
            return "fail"

        with self.running(retry_first_secs=0.01) as (bolt, run, _):
            bolt.decide = decide
            self.put(records)
            wait_until("the third attempt", lambda: bolt.got.count("7") == 3, WAIT_SECS)
            wait_for_all(bolt, records)
            run.stop(drain_secs=10)
        assert bolt.got.count("13") == 2

    def test_a_record_that_always_fails_becomes_a_dead_letter_and_holds_up_nothing(self) -> None:
        records = numbers(self.records)
        with self.running(max_replays=2, retry_first_secs=0.01) as (bolt, run, letters):
            bolt.decide = lambda record: "fail" if record == "3" else "ack"
            self.put(records)
            wait_for_all(bolt, records)
            wait_until("the dead letter", lambda: letters.got, WAIT_SECS)
            run.stop(drain_secs=10)
        assert bolt.got.count("3") == 3
        if not self.durable:
            return
        with self.running() as (bolt, _, _):  # it was the source's last word on that record
            self.put(["1000000"])
            wait_for_all(bolt, ["1000000"])
        assert bolt.got == ["1000000"]

    def test_a_deactivated_source_emits_nothing_and_loses_nothing(self) -> None:
        first, second = numbers(20), numbers(20, start=20)
        with self.running() as (bolt, run, _):
            self.put(first)
            wait_for_all(bolt, first)
            run.set_active(False)
            time.sleep(QUIET_SECS / 4)  # a call of next_tuple that is under way
            before = len(bolt.got)
            if self.durable:
                self.put(second)
            time.sleep(QUIET_SECS)
            assert len(bolt.got) == before
            run.set_active(True)
            if not self.durable:
                self.put(second)
            wait_for_all(bolt, first + second)

    def test_an_outage_of_the_server_loses_nothing_and_keeps_no_core_busy(self) -> None:
        if self.server is None:
            return
        first, second = numbers(self.records), numbers(self.records, start=self.records)
        with self.running() as (bolt, run, _):
            self.put(first)
            wait_until("the first records", lambda: len(bolt.got) >= 10, WAIT_SECS)
            self.server.kill()
            cpu, start = cpu_secs(), time.monotonic()
            time.sleep(self.outage_secs)
            busy = (cpu_secs() - cpu) / (time.monotonic() - start)
            self.server.restart()
            self.put(second)
            wait_for_all(bolt, first + second)
            assert run.died is None
            assert run.errors, "the outage was not reported"
        assert busy < 0.5, f"{busy:.2f} of a core while the server was away"

    def test_the_lag_is_what_is_not_done(self) -> None:
        if not self.reports_lag:
            return
        records = numbers(30)
        source: Any = self.make_source()
        if hasattr(source, "lag_secs"):  # of an AsyncSource: do not wait for it
            source.lag_secs = 0.2
        with self.running_source(source) as (bolt, run, _):
            bolt.decide = lambda record: "hold"
            self.put(records)

            def lag() -> float | None:
                return run.gauge("source", "lag")

            wait_until("a lag of all records", lambda: lag() == 30, WAIT_SECS, 0.05)
            run.call(bolt.release)
            wait_until("no lag", lambda: lag() == 0, WAIT_SECS, 0.05)

    def test_a_killed_worker_loses_nothing(self) -> None:
        if not (self.importable and self.durable):
            return
        self._kill(self.kills, server=False)

    def test_a_killed_server_loses_nothing(self) -> None:
        if self.server is None or not (self.importable and self.durable):
            return
        self._kill(self.kills if self.server_kills is None else self.server_kills, server=True)

    def _kill(self, kills: int, *, server: bool) -> None:
        records = numbers(self.kill_records)
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
            with KillableTopology(builder.build(), folder, KILL_CONF) as topology:
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
                    wait_for_lines(taken, topology, goal)
                wait_for_lines(taken, topology, len(put))
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
                GIVEN,
                streams=_streams_of(source.outputs),
                conf=dict(source.component_conf),
            ),
            "collect": bolt_of("collect", "source", "default"),
            "letters": bolt_of("letters", "source", "__dead_letter"),
        }
        objects = {"source": source, "collect": bolt, "letters": letters}
        with TopologyRun(components, objects, name=name) as run:
            yield bolt, run, letters
