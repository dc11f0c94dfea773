"""The bolts of tasks that leave a part of a timer's call for the turns that follow: windows of many
keys that end at the same time."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.support.validated_engine import replaces_methods

from squall import (
    AggregateBolt,
    Bolt,
    LocalCluster,
    RowBatch,
    Spout,
    TaskHook,
    TopologyBuilder,
    TransactionalSink,
)
from squall.local import LocalTopologies
from squall.testing import FeederSpout, ReplayableSpout, TopologyTest
from squall.windows import EventTime, tumbling
from squall_common.errors import SquallError
from squall_engine.tasks.bolt import SLICE_SECS, SLICE_TUPLES_MAX

KEYS = 8_000
WINDOWS = tumbling(secs=1, key="key", event_time=EventTime("at"))
RECEIVE_MAX = 512  # tuples in an inbox above which the tasks that feed it wait


class Rows(FeederSpout):
    outputs = ["key", "at"]

    def next_tuple(self) -> None:
        for _ in range(1000):
            super().next_tuple()


class Totals(AggregateBolt):
    outputs = ["key", "total", "end"]
    windows = WINDOWS

    def init(self) -> int:
        return 0

    def add(self, total: int, tup: Any) -> int:
        return total + 1

    def merge(self, first: int, second: int) -> int:
        return first + second

    def result(self, total: int, window: Any) -> None:
        self.emit([window.key, total, window.end_ms])


class Target(Bolt):
    """Notes how many tuples wait for it, and how far those are that feed it."""

    outputs = ["key"]
    queued: list[int]

    def prepare(self, conf: Any, context: Any) -> None:
        self.queued = []
        self.got: list[int] = []

    def execute(self, tup: Any) -> None:
        self.got.append(tup["key"])


def topology() -> TopologyBuilder:
    builder = TopologyBuilder()
    builder.spout("rows", Rows())
    builder.bolt("windows", Totals()).shuffle("rows")
    builder.bolt("target", Target()).shuffle("windows")
    return builder


CONF = {"topology.executor.receive.buffer.size": RECEIVE_MAX}


def task_of(test: TopologyTest, component: str) -> Any:
    (found,) = [one.task for one in test._engine.built if one.task.component == component]
    return found


def feed(test: TopologyTest, rows: Any) -> None:
    for key, at in rows:
        test.feed("rows", [key, at], message_id=(key, at))


def fill(test: TopologyTest) -> None:
    """Have a window of each key."""
    feed(test, ((key, 500) for key in range(KEYS)))
    (user,) = test.instances("windows")
    test.run_until(lambda: user._squall_shell.sizes()["tuples"] == KEYS)


@replaces_methods
def test_windows_wait_for_a_target_that_is_full() -> None:
    """The results before the tuples that came after them, and no more of them in an inbox than any
    bolt may put there."""
    with TopologyTest(topology(), CONF) as test:
        target, windows = task_of(test, "target"), task_of(test, "windows")
        fill(test)
        most, met = 0, 0
        run = target.run

        def noted(deadline: float) -> bool:
            nonlocal most, met
            most = max(most, target.inbox.queued)
            if windows.rest is not None:
                met += 1
                assert windows.busy
                assert not test._engine.is_drained()
            done: bool = run(deadline)
            return done

        target.run = noted
        feed(test, [(-1, 1_500), *((key, 1_600) for key in range(10))])
        test.run_for(3)
        feed(test, [(-1, 2_500)])
        test.run_for(3)
        (user,) = test.instances("target")
        acked = test.acked("rows")
    assert user.got[:KEYS] == list(range(KEYS))
    assert sorted(user.got[KEYS:]) == [-1, *range(10)]
    assert most <= RECEIVE_MAX + SLICE_TUPLES_MAX
    assert met > KEYS // (RECEIVE_MAX + SLICE_TUPLES_MAX) / 2
    assert {(key, 500) for key in range(KEYS)} <= set(acked)


def test_tuples_wait_for_the_results_before_them() -> None:
    """A tuple that comes while results wait is not late for them, and is not looked at before."""
    with TopologyTest(topology(), CONF) as test:
        windows, target = task_of(test, "windows"), task_of(test, "target")
        fill(test)
        shell = windows.user._squall_shell
        execute, seen = shell.execute, []

        def noted(tuples: Any) -> None:
            seen.append((windows.rest is not None, len(user.got) + target.inbox.queued))
            execute(tuples)

        (user,) = test.instances("target")
        windows.execute = noted
        feed(test, [(-1, 1_500)])
        test.run_until(lambda: windows.rest is not None)
        waiting = len(seen)
        feed(test, [(-2, 1_600)])
        test.run_until(lambda: len(seen) > waiting)
    assert seen[waiting:] == [(False, KEYS)]


def test_the_end_of_a_worker_in_the_middle_loses_no_result() -> None:
    emitted = []

    class Noting(Totals):
        def result(self, total: int, window: Any) -> None:
            emitted.append(window.key)
            super().result(total, window)

    builder = TopologyBuilder()
    builder.spout("rows", Rows())
    builder.bolt("windows", Noting()).shuffle("rows")
    builder.bolt("target", Target()).shuffle("windows")
    with TopologyTest(builder, CONF) as test:
        windows = task_of(test, "windows")
        fill(test)
        feed(test, [(-1, 1_500)])
        test.run_until(lambda: windows.rest is not None and bool(emitted))
        assert len(emitted) < KEYS
    assert sorted(emitted) == list(range(KEYS))


def test_a_part_that_raises_is_reported_and_the_bolt_goes_on() -> None:
    with TopologyTest(topology(), CONF) as test:
        windows = task_of(test, "windows")
        errors = []
        windows.host.report = lambda component, task, error: errors.append((component, str(error)))
        calls = []

        def rest(now: Any, until: float) -> bool:
            calls.append(until - now())
            if len(calls) == 3:
                raise SquallError("broken")
            return True

        windows.in_slices(rest)
        test.run_for(0.1)
        assert errors == [("windows", "broken")]
        assert calls == [pytest.approx(SLICE_SECS)] * 3
        assert not windows.busy


class Hook(TaskHook):
    pass


class Hooked(Totals):
    """It is bound for the second time 0.1 s after the first."""

    windows = tumbling(secs=1, key="key")

    async def prepare(self, conf: Any, context: Any) -> None:
        await asyncio.sleep(0.1)
        context.add_task_hook(Hook())


@replaces_methods
def test_the_timers_of_a_bolt_that_was_bound_twice_do_not_replace_what_is_left() -> None:
    builder = TopologyBuilder()
    builder.spout("rows", Rows())
    builder.bolt("windows", Hooked()).shuffle("rows")
    builder.bolt("target", Target()).shuffle("windows")
    with TopologyTest(builder, CONF) as test:
        target, windows = task_of(test, "target"), task_of(test, "windows")
        fill(test)
        run, target.run = target.run, lambda deadline: False
        test.run_until(lambda: windows.rest is not None)
        test.run_for(1.5)
        target.run = run
        test.run_for(3)
        (user,) = test.instances("target")
    assert user.got == list(range(KEYS))


def test_tuples_that_are_acked_in_pieces_are_kept_alive(monkeypatch: pytest.MonkeyPatch) -> None:
    """They came, and their window ended, since the last look at what waits; the bolt is held up
    then by a target that has nothing of theirs."""
    monkeypatch.setattr("squall.windows.shell._SLICE_MAX", 11)  # ten results and a piece
    monkeypatch.setattr("squall.windows.shell._RELEASED_MAX", 20)
    with TopologyTest(topology(), {**CONF, "topology.message.timeout.secs": 6}) as test:
        flow, windows = test._engine._flow, task_of(test, "windows")
        feed(test, ((key % 10, 500 + key) for key in range(100)))
        feed(test, [(-1, 1_700)])
        pause = windows.pause

        def held_up() -> bool:
            if windows.rest is not None:
                flow._close(task_of(test, "target").task)
            done: bool = pause()
            return done

        windows.pause = held_up
        test.run_for(20)
        assert windows.rest is not None
        windows.pause = pause
        flow._open(task_of(test, "target").task)
        test.run_for(3)
        assert test.failed("rows") == []
        assert len(test.acked("rows")) == 100


def test_windows_on_a_cycle_emit_at_once() -> None:
    """Their own inbox may get the results, and nothing would be taken from it meanwhile."""

    class Back(Totals):
        outputs = ["key", "at"]

        def result(self, total: int, window: Any) -> None:
            if window.end_ms == 1_000:
                self.emit([window.key, 1_500])

    builder = TopologyBuilder()
    builder.spout("rows", Rows())
    builder.bolt("windows", Back()).shuffle("rows").shuffle("windows")
    with TopologyTest(builder, {"topology.executor.receive.buffer.size": 128}) as test:
        feed(test, ((key, 500) for key in range(KEYS)))
        (user,) = test.instances("windows")
        shell = user._squall_shell
        test.run_until(lambda: shell.sizes()["tuples"] == KEYS)
        shell.windows.watermarks.track(("windows", "default"), 1_200, 0)  # the cycle has begun
        feed(test, [(-1, 1_400)])
        test.run_for(3)
        assert test.errors == []
        assert shell.sizes()["tuples"] == KEYS + 1


# -- on the clock --

beats: list[float] = []
fired: list[float] = []


class Slow(Totals):
    """Its windows take 300 ms together."""

    def prepare(self, conf: Any, context: Any) -> None:
        self._loop = asyncio.get_running_loop()
        self._loop.call_soon(self._beat)

    def _beat(self) -> None:
        beats.append(time.monotonic())
        self._loop.call_later(0.001, self._beat)

    def result(self, total: int, window: Any) -> None:
        fired.append(time.monotonic())
        time.sleep(0.0005)
        super().result(total, window)


class Given(ReplayableSpout):
    outputs = ["key", "at"]


class Every(Spout):
    """Emits rows once."""

    outputs = ["key", "at"]

    def __init__(self, rows: list[list[int]]) -> None:
        self.rows = rows

    def next_tuple(self) -> None:
        rows, self.rows = self.rows, []
        for row in rows:
            self.emit(row, message_id=row[0])


def test_windows_that_end_at_once_do_not_hold_the_loop() -> None:
    beats.clear()
    fired.clear()
    count = 500
    builder = TopologyBuilder()
    builder.spout("rows", Every([*([key, 500] for key in range(count)), [-1, 1_500]]))
    builder.bolt("windows", Slow()).shuffle("rows")
    with LocalCluster() as cluster:
        cluster.submit_topology("held", {}, builder.build())
        cluster.wait_until(lambda: len(fired) >= count, 60.0)
    assert len(fired) == count
    between = [at for at in beats if fired[0] < at < fired[-1]]
    assert len(between) >= 5, "others of the loop have to wait for all windows"


written: list[tuple[Any, ...]] = []
applied: dict[str, int] = {}


class Write(TransactionalSink):
    def commit(self, batches: Sequence[RowBatch]) -> None:
        for batch in batches:
            if applied.get(batch.writer, 0) < batch.epoch:
                written.extend(map(tuple, batch.rows))
                applied[batch.writer] = batch.epoch


async def no_last_checkpoint(*_: Any) -> None:
    pass


@pytest.mark.parametrize("field", ["key", "at"])
def test_checkpoints_in_the_middle_are_exact(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, field: str
) -> None:
    """Grouped by the key of the windows they move with key groups, otherwise not. The first cluster
    ends while results are on their way."""
    written.clear()
    applied.clear()
    fired.clear()
    count = 800
    rows = [[key, second * 1_000 + 500] for second in range(3) for key in range(count // 2)]
    rows.append([-1, 3_500])

    def build() -> Any:
        builder = TopologyBuilder()
        builder.spout("rows", Given(rows))
        builder.bolt("windows", Slow()).fields("rows", field)
        builder.bolt("write", Write()).shuffle("windows")
        return builder.build()

    conf = {"topology.checkpoint.interval.secs": 0.03, "topology.state.url": str(tmp_path)}
    with monkeypatch.context() as patched, LocalCluster() as cluster:
        patched.setattr(LocalTopologies, "_finish_epochs", no_last_checkpoint)
        cluster.submit_topology("events", conf, build())
        cluster.wait_until(lambda: len(fired) > count // 4, 60.0)
    assert len(fired) < len(rows) - 1
    with LocalCluster() as cluster:
        cluster.submit_topology("events", conf, build())
        cluster.wait_until(lambda: len(written) >= len(rows) - 1, 60.0)
    assert Counter(written) == Counter((key, 1, at + 500) for key, at in rows[:-1])
