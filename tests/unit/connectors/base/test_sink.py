"""Sinks on a virtual clock: batches, outages, refusals."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Sequence
from typing import Any

import pytest

from squall import Tuple
from squall.testing import BoltTest
from squall_connectors.base import RecordsRejectedError, Sink, ThreadedSink


class Store(Sink):
    """Keeps batches, as its script says: each write takes the next step."""

    def __init__(self, *steps: Any, **options: Any) -> None:
        super().__init__(**options)
        self.steps = list(steps)
        self.batches: list[list[Any]] = []
        self.connects = 0

    async def connect(self) -> None:
        self.connects += 1

    async def write(self, tuples: Sequence[Tuple]) -> None:
        values = [tup[0] for tup in tuples]
        step = self.steps.pop(0) if self.steps else None
        if callable(step):
            step = step(values)
        if step is not None:
            raise step
        self.batches.append(values)


def refuse_threes(values: list[Any]) -> Exception | None:
    return ValueError("a three") if 3 in values else None


def test_a_batch_is_written_when_its_first_tuple_has_waited() -> None:
    store = Store(batch_secs=0.5)
    with BoltTest(store, {"in": ["n"]}) as test:
        first = test.execute([1])
        second = test.execute([2])
        assert not first.acked
        test.run_for(0.6)
        assert (first.acked, second.acked) == (True, True)
    assert store.batches == [[1, 2]]


def test_a_full_batch_does_not_wait() -> None:
    store = Store(batch_records=2, batch_secs=60)
    with BoltTest(store, {"in": ["n"]}) as test:
        first, second = test.execute([1]), test.execute([2])
        test.run_for(0.01)
        assert (first.acked, second.acked) == (True, True)
        third = test.execute([3])
        test.run_for(1)
        assert not third.acked
    assert store.batches == [[1, 2]]


def test_an_outage_repeats_the_batch_and_fails_nothing_past_the_message_timeout() -> None:
    store = Store(*[ConnectionError("gone")] * 40)
    with BoltTest(store, {"in": ["n"]}, {"topology.message.timeout.secs": 5}) as test:
        held = test.execute([1])
        test.run_for(60)
        assert not held.failed
        test.run_for(240)
        assert held.acked
        errors = [error.error for error in test.test.errors]
    assert store.batches == [[1]]
    assert 1 < store.connects <= 41
    # An outage is reported now and then, not for each attempt.
    assert all(isinstance(error, ConnectionError) for error in errors)
    assert len(errors) < 40


def test_a_call_that_gets_no_answer_fails_nothing_past_the_message_timeout() -> None:
    class Silent(Store):
        async def write(self, tuples: Sequence[Tuple]) -> None:
            if len(self.steps) > 0:
                self.steps.pop()
                await asyncio.Event().wait()
            await super().write(tuples)

    store = Silent("silence", "silence", write_timeout_secs=40)
    with BoltTest(store, {"in": ["n"]}, {"topology.message.timeout.secs": 6}) as test:
        held = test.execute([1])
        test.run_for(79)
        assert (held.acked, held.failed) == (False, False)
        test.run_for(20)
        assert held.acked
    assert store.batches == [[1]]


def test_no_record_is_refused_because_the_sink_cannot_connect() -> None:
    """Whatever the error is: a setting of the sink is wrong, or what answers is another service."""

    class Misled(Store):
        server_shown = "store.example:80"

        async def connect(self) -> None:
            self.connects += 1
            if self.connects < 4:
                raise ValueError("this is not a store")

    store = Misled(batch_records=2)
    with BoltTest(store, {"in": ["n"]}) as test:
        executions = [test.execute([1]), test.execute([2])]
        test.run_for(60)
        assert [one.acked for one in executions] == [True, True]
        errors = [str(error.error) for error in test.test.errors]
    assert store.batches == [[1, 2]]
    assert errors
    assert all(one == "store.example:80: ValueError: this is not a store" for one in errors)


def test_after_the_longest_outage_tuples_fail() -> None:
    store = Store(*[ConnectionError("gone")] * 1_000, outage_secs_max=0.05)
    with BoltTest(store, {"in": ["n"]}) as test:
        held = test.execute([1])
        test.test.run_until(lambda: held.failed, 120)
        assert any("outage_secs_max" in str(error.error) for error in test.test.errors)


def test_one_refused_record_is_found_and_the_others_are_written() -> None:
    store = Store(*[refuse_threes] * 20, batch_records=8, batch_secs=0.1)
    with BoltTest(store, {"in": ["n"]}) as test:
        executions = [test.execute([number]) for number in range(8)]
        test.run_for(1)
        assert [execution.acked for execution in executions] == [n != 3 for n in range(8)]
        assert executions[3].failed
    assert sorted(value for batch in store.batches for value in batch) == [0, 1, 2, 4, 5, 6, 7]


def test_a_system_may_name_the_records_that_it_refuses() -> None:
    store = Store(RecordsRejectedError({1: "too long"}), batch_records=3, batch_secs=0.1)
    with BoltTest(store, {"in": ["n"]}) as test:
        executions = [test.execute([number]) for number in range(3)]
        test.run_for(1)
        assert [execution.acked for execution in executions] == [True, False, True]
        assert executions[1].failed
    assert store.batches == []


def test_an_error_in_the_sink_itself_fails_its_batch_and_does_not_end_it() -> None:
    class Broken(Store):
        def is_outage(self, error: BaseException) -> bool:
            raise RuntimeError("a bug")

    store = Broken(ConnectionError("gone"), batch_secs=0.1)
    with BoltTest(store, {"in": ["n"]}) as test:
        first = test.execute([1])
        test.run_for(1)
        assert first.failed
        second = test.execute([2])
        test.run_for(1)
        assert second.acked
    assert store.batches == [[2]]


def test_ticks_are_no_records() -> None:
    store = Store(batch_secs=0.1)
    conf = {"topology.tick.tuple.freq.secs": 1}
    with BoltTest(store, {"in": ["n"]}, conf) as test:
        test.run_for(5)
    assert store.batches == []


async def test_calls_that_hang_do_not_pile_up(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = threading.Event()

    class Hanging(ThreadedSink):
        def write_blocking(self, tuples: Sequence[Tuple]) -> None:
            answers.wait(60)

    sink = Hanging()
    sink._start_thread()
    before = threading.active_count()
    try:
        for _ in range(8):
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(sink.write([]), 0.01)
        for _ in range(3):
            with pytest.raises(TimeoutError, match="8 calls have not returned"):
                await sink.write([])
        assert threading.active_count() <= before + 9
        monkeypatch.setattr("squall_connectors.base.sink._HANGING_MORE_SECS", 0.0)
        sink._more_at = 0.0  # much later
        with pytest.raises(TimeoutError, match=r"^$"):  # it was called
            await asyncio.wait_for(sink.write([]), 0.01)
    finally:
        answers.set()
    async with asyncio.timeout(60):
        while True:
            with contextlib.suppress(TimeoutError):
                await sink.write([])
                break
            await asyncio.sleep(0)
    sink._thread.shutdown()


@pytest.mark.parametrize(
    "options", [{"batch_records": 0}, {"batch_secs": -1}, {"write_timeout_secs": 0}]
)
def test_numbers_that_cannot_be_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="must be positive"):
        Store(**options)
