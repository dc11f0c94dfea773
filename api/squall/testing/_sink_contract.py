"""What a sink promises. See `squall.testing.connectors`."""

from __future__ import annotations

import functools
import random
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar

from squall import Bolt, TopologyBuilder
from squall.testing._contract_parts import (
    GIVEN,
    KILL_CONF,
    WAIT_SECS,
    DeadLetterBolt,
    LinesSpout,
    NotingFeeder,
    ServerControl,
    bolt_of,
    cpu_secs,
    numbers,
    wait_for_lines,
)
from squall.testing._runs import KillableTopology, TopologyRun, wait_until
from squall.testing.topologies import FeederSpout, _streams_of
from squall_common.topology.model import Component, ComponentKind


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
        records = numbers(self.records)
        with self.running() as (feeder, acked, _):
            self._feed(feeder, records)
            wait_until("the acks", lambda: len(acked.acked) == len(records), WAIT_SECS)
            assert set(self.stored()) == set(records)

    def test_tuples_are_stored_when_they_are_acked(self) -> None:
        """Looks at the system at each of the first acks."""
        with self.running() as (feeder, acked, _):
            for record in numbers(5):
                self._feed(feeder, [record])
                wait_until(
                    "its ack", functools.partial(acked.acked.__contains__, record), self.linger_secs
                )
                assert record in self.stored()

    def test_what_is_in_hand_is_written_when_the_topology_stops(self) -> None:
        records = numbers(50)
        with self.running() as (feeder, acked, run):
            self._feed(feeder, records)
            wait_until("them to be emitted", lambda: feeder.is_empty, WAIT_SECS)
            run.stop(drain_secs=30)
        assert set(acked.acked) == set(records)
        assert set(self.stored()) == set(records)

    def test_a_record_that_the_system_refuses_is_reported_and_the_others_are_stored(self) -> None:
        refused = self.rejected()
        if refused is None:
            return
        records = numbers(40)
        with self.running() as (feeder, acked, run):
            self._feed(feeder, records[:20])
            feeder.feed(refused, "refused")
            self._feed(feeder, records[20:])
            everything = len(records) + 1
            wait_until(
                "all to be settled",
                lambda: len(acked.acked) + len(acked.failed) >= everything,
                WAIT_SECS,
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
            wait_until("its dead letter", lambda: letters.got, WAIT_SECS)
            wait_until("its ack", lambda: acked.acked == ["refused"], WAIT_SECS)
        values, fields, component, stream, reason = letters.got[0]
        assert (list(values), list(fields)) == (refused, list(self.fields))
        assert (component, stream) == ("feed", "default")
        assert reason

    def test_an_outage_of_the_server_loses_nothing_and_keeps_no_core_busy(self) -> None:
        if self.server is None:
            return
        first, second = numbers(self.records), numbers(self.records, start=self.records)
        with self.running() as (feeder, acked, run):
            self._feed(feeder, first)
            wait_until("the first acks", lambda: len(acked.acked) > 10, WAIT_SECS)
            self.server.kill()
            self._feed(feeder, second)
            cpu, start = cpu_secs(), time.monotonic()
            time.sleep(self.outage_secs)
            busy = (cpu_secs() - cpu) / (time.monotonic() - start)
            self.server.restart()
            everything = len(first + second)
            wait_until("the acks", lambda: len(acked.acked) == everything, WAIT_SECS)
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
        records = numbers(self.kill_records)
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            lines, acked = folder / "lines", folder / "acked"
            lines.write_text("".join("\t".join(self.values_of(r)) + "\n" for r in records))
            acked.touch()
            builder = TopologyBuilder()
            builder.spout("lines", LinesSpout(lines, acked, self.fields))
            builder.bolt("sink", self.make_sink()).shuffle("lines")
            # So few at a time that each kill meets some.
            conf = {**KILL_CONF, "topology.max.spout.pending": max(10, len(records) // 50)}
            chance = random.Random(kills)
            with KillableTopology(builder.build(), folder, conf) as topology:
                for kill in range(kills):
                    share = (kill + chance.random()) / kills
                    wait_for_lines(acked, topology, int(share * len(records)))
                    if server:
                        assert self.server is not None
                        self.server.kill()
                        time.sleep(chance.uniform(0, 0.5))
                        self.server.restart()
                    else:
                        topology.kill()
                        topology.start()
                wait_for_lines(acked, topology, len(records))
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
            "feed": Component("feed", ComponentKind.SPOUT, GIVEN, streams=_streams_of(list(given))),
            "sink": bolt_of("sink", "feed", "default", sink),
        }
        objects: dict[str, Any] = {"feed": feeder, "sink": sink}
        if letters is not None:
            components["letters"] = bolt_of("letters", "sink", "dead_letter")
            objects["letters"] = letters
        with TopologyRun(components, objects) as run:
            yield feeder, run
