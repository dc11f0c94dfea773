"""What a transactional sink promises. See `squall.testing.connectors`."""

from __future__ import annotations

import random
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar

from squall import RowBatch, TopologyBuilder, TransactionalSink
from squall.testing._contract_parts import WAIT_SECS, ServerControl, numbers
from squall.testing._runs import KillableTopology, wait_until
from squall.testing._transactional import GivenTuple, GrowingLines, KillingSink
from squall_common.topology.model import PythonObject, Topology


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
        records = numbers(self.records)
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
        records = numbers(self.records)
        with self._killable(kills_itself=True) as (topology, lines):
            self._append(lines, records)
            for when in ("before", "after"):
                topology.wait_for_end(WAIT_SECS)
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
        records = numbers(self.kill_records)
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
