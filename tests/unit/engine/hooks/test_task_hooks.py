"""Task hooks: what they are called about, in every way that a component can run."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any
from unittest.mock import Mock

import pytest
from tests.support import engine_components as c

from squall import Bolt, FanOut, Spout, SquallError, TaskHook, TopologyBuilder
from squall.testing import TopologyTest
from squall_engine.hooks.collectors import HookedSpoutCollector
from squall_engine.hooks.task_hooks import TaskHooks
from squall_engine.loading import ComponentStartError

PATH = f"{__name__}:"


@pytest.fixture(autouse=True)
def _fresh_log() -> None:
    c.LOG.clear()


class Recording(TaskHook):
    """Logs every call."""

    def prepare(self, conf: Any, context: Any) -> None:
        self.me = f"{context.this_component_id}"
        c.log("hooks", (self.me, "prepare", threading.current_thread() is threading.main_thread()))

    def cleanup(self) -> None:
        c.log("hooks", (self.me, "cleanup", None))

    def emit(self, info: Any) -> None:
        out = None if info.out_tasks is None else len(info.out_tasks)
        c.log("hooks", (self.me, "emit", (list(info.values), info.stream, out)))

    def spout_ack(self, info: Any) -> None:
        # A dead letter is not emitted by the spout itself.
        assert info.complete_latency_ms is None or info.complete_latency_ms >= 0
        c.log("hooks", (self.me, "ack", info.message_id))

    def spout_fail(self, info: Any) -> None:
        assert info.fail_latency_ms >= 0
        c.log("hooks", (self.me, "fail", info.message_id))

    def bolt_execute(self, info: Any) -> None:
        assert info.execute_latency_ms >= 0
        c.log("hooks", (self.me, "execute", info.tuple[0]))

    def bolt_ack(self, info: Any) -> None:
        assert info.process_latency_ms is None or info.process_latency_ms >= 0
        c.log("hooks", (self.me, "ack", info.tuple[0]))

    def bolt_fail(self, info: Any) -> None:
        assert info.fail_latency_ms is None or info.fail_latency_ms >= 0
        c.log("hooks", (self.me, "fail", info.tuple[0]))


def seen(component: str, *events: str) -> list[tuple[str, Any]]:
    found = [(event, what) for me, event, what in c.LOG.get("hooks", []) if me == component]
    return [one for one in found if one[0] in events] if events else found


class Batch(Bolt):
    outputs = ("number",)

    def execute_batch(self, tuples: Any) -> None:
        for tup in tuples:
            if tup[0] == 1:
                self.fail(tup)
            else:
                self.emit([tup[0]], anchors=tup)


class AsyncBatch(Batch):
    async def execute_batch(self, tuples: Any) -> None:
        await asyncio.sleep(0)
        super().execute_batch(tuples)


class ThreadBatch(Batch):
    blocking = True


class Plain(Bolt):
    outputs = ("number",)

    def execute(self, tup: Any) -> None:
        if tup[0] == 1:
            raise ValueError("no 1")
        self.emit([tup[0]])


class Thread(Plain):
    blocking = True


class Async(Plain):
    async def execute(self, tup: Any) -> None:
        await asyncio.sleep(0)
        super().execute(tup)


class ByHand(Plain):
    auto_anchor = False


class Columns(Bolt):
    outputs = ("number",)

    def execute_columns(self, columns: Any) -> None:
        keep = [row for row, number in enumerate(columns["number"]) if number != 1]
        for row, number in enumerate(columns["number"]):
            if number == 1:
                columns.fail(row)
        self.emit_columns([[columns["number"][row] for row in keep]], origins=keep)


class FannedOut(Columns):
    def execute_columns(self, columns: Any) -> None:
        counts = [int(number != 1) for number in columns["number"]]
        for row, count in enumerate(counts):
            if not count:
                columns.fail(row)
        kept = [number for number in columns["number"] if number != 1]
        self.emit_columns([kept], origins=FanOut(counts))


def numbers_to(bolt: Bolt, spout: Spout | None = None) -> TopologyBuilder:
    builder = TopologyBuilder()
    builder.spout("numbers", spout or c.Numbers(3))
    builder.bolt("bolt", bolt).shuffle("numbers")
    return builder


HOOKED = {"topology.auto.task.hooks": [f"{PATH}Recording"]}


@pytest.mark.parametrize(
    "bolt", [Plain, ByHand, Batch, Async, AsyncBatch, Thread, ThreadBatch, Columns, FannedOut]
)
def test_a_hook_sees_what_a_bolt_does_however_it_runs(bolt: Callable[[], Bolt]) -> None:
    with TopologyTest(numbers_to(bolt()), HOOKED) as test:
        test.run_until_idle()
        out = None if bolt in (Columns, FannedOut) else 0
        assert seen("bolt", "emit") == [
            ("emit", ([0], "default", out)),
            ("emit", ([2], "default", out)),
        ]
        assert sorted(seen("bolt", "execute")) == [("execute", n) for n in range(3)]
        assert sorted(seen("bolt", "ack", "fail")) == [("ack", 0), ("ack", 2), ("fail", 1)]
        assert seen("numbers", "emit") == [("emit", ([n], "default", 1)) for n in range(3)]
        assert sorted(seen("numbers", "ack", "fail")) == [("ack", 0), ("ack", 2), ("fail", 1)]
        on_loop = bolt not in (Thread, ThreadBatch)
        assert seen("bolt")[0] == ("prepare", on_loop)  # on its own thread, and before its prepare
    assert [one[0] for one in seen("bolt")][-1] == "cleanup"


class ColumnSpout(Spout):
    outputs = ("number",)

    message_ids: Any = ("a", "b")

    def open(self, conf: Any, context: Any) -> None:
        self.done = False

    def next_tuple(self) -> None:
        if not self.done:
            self.done = True
            self.emit_columns([[0, 2]], message_ids=self.message_ids)


class AsyncSpout(c.Numbers):
    async def next_tuple(self) -> None:
        await asyncio.sleep(0)
        super().next_tuple()


class ThreadSpout(c.Numbers):
    blocking = True

    def ack(self, msg_id: Any) -> None:
        c.log("acked on", threading.current_thread().name)


def test_a_hook_sees_the_rows_that_a_spout_emits_as_columns() -> None:
    with TopologyTest(numbers_to(Plain(), ColumnSpout()), HOOKED) as test:
        test.run_until_idle()
        assert seen("numbers", "emit") == [("emit", ([n], "default", None)) for n in (0, 2)]
        assert sorted(seen("numbers", "ack")) == [("ack", "a"), ("ack", "b")]


class Ambiguous(list[int]):
    """Like an array, it is neither true nor false."""

    def __bool__(self) -> bool:
        raise ValueError("ambiguous")


class ArraySpout(ColumnSpout):
    message_ids = Ambiguous([7, 8])


def test_message_ids_may_be_an_array() -> None:
    with TopologyTest(numbers_to(Plain(), ArraySpout()), HOOKED) as test:
        test.run_until_idle()
        assert sorted(seen("numbers", "ack")) == [("ack", 7), ("ack", 8)]
        assert test.errors == []


def test_a_row_without_a_message_id_begins_no_message() -> None:
    hooks = TaskHooks(1, lambda: 0.0, lambda error: None)
    collector = HookedSpoutCollector(Mock(), hooks)
    collector.emit_columns([[0, 2, 3]], [None, "b", None])
    assert list(hooks._started) == ["b"]


@pytest.mark.parametrize("spout", [AsyncSpout, ThreadSpout])
def test_a_hook_sees_the_messages_of_a_spout_however_it_runs(spout: Any) -> None:
    with TopologyTest(numbers_to(Plain(), spout(3)), HOOKED) as test:
        test.run_until_idle()
        test.run_until(lambda: len(seen("numbers", "ack", "fail")) == 3)
        assert sorted(seen("numbers", "ack", "fail")) == [("ack", 0), ("ack", 2), ("fail", 1)]


def test_a_component_may_have_hooks_of_its_own() -> None:
    builder = TopologyBuilder()
    builder.spout("numbers", c.Numbers(1))
    builder.bolt("bolt", Plain(), conf=HOOKED).shuffle("numbers")
    with TopologyTest(builder) as test:
        test.run_until_idle()
        assert not seen("numbers")
        assert seen("bolt", "ack") == [("ack", 0)]


class Adding(Plain):
    def prepare(self, conf: Any, context: Any) -> None:
        context.add_task_hook(Recording())


class AddingOnThread(Adding):
    blocking = True


class AddingSpout(c.Numbers):
    def open(self, conf: Any, context: Any) -> None:
        super().open(conf, context)
        context.add_task_hook(Recording())


@pytest.mark.parametrize("bolt", [Adding, AddingOnThread])
def test_a_component_may_add_a_hook_while_it_opens(bolt: Any) -> None:
    with TopologyTest(numbers_to(bolt(), AddingSpout(3))) as test:
        test.run_until_idle()
        assert sorted(seen("bolt", "ack", "fail")) == [("ack", 0), ("ack", 2), ("fail", 1)]
        assert len(seen("bolt", "emit")) == 2
        assert len(seen("bolt", "execute")) == 3
        assert sorted(seen("numbers", "ack", "fail")) == [("ack", 0), ("ack", 2), ("fail", 1)]
        assert len(seen("numbers", "emit")) == 3


class AddingLate(Bolt):
    def execute(self, tup: Any) -> None:
        self.context.add_task_hook(Recording())


def test_a_hook_that_is_added_later_is_refused() -> None:
    with TopologyTest(numbers_to(AddingLate())) as test:
        test.run_until_idle()
        assert "can only be added in open() or prepare()" in str(test.errors[0].error)


class Raising(TaskHook):
    def bolt_ack(self, info: Any) -> None:
        raise ZeroDivisionError("in the hook")

    def emit(self, info: Any) -> None:
        raise KeyError("in emit")


def test_an_error_of_a_hook_is_an_error_of_its_task_and_the_tuple_goes_its_way() -> None:
    conf = {"topology.auto.task.hooks": [f"{PATH}Raising", f"{PATH}Recording"]}
    with TopologyTest(numbers_to(Plain(), c.Numbers(1)), conf) as test:
        test.run_until_idle()
        assert test.acked("numbers") == [0]
        assert seen("bolt", "ack") == [("ack", 0)]  # the next hook is called too
        errors = [(e.component, e.task, str(e.error)) for e in test.errors]
        bolt = [text for component, _, text in errors if component == "bolt"]
        assert bolt == [
            "task hook Raising: emit() failed: KeyError: 'in emit'",
            "task hook Raising: bolt_ack() failed: ZeroDivisionError: in the hook",
        ]


def test_a_hook_that_raises_ends_the_worker_where_errors_do() -> None:
    conf = {
        "topology.auto.task.hooks": [f"{PATH}Raising"],
        "topology.bolt.die.on.error": True,
    }
    with TopologyTest(numbers_to(Plain(), c.Numbers(1)), conf) as test:
        test.run_until(lambda: test.died is not None)
        assert "task hook Raising" in str(test.died)


class Unprepared(TaskHook):
    def prepare(self, conf: Any, context: Any) -> None:
        raise OSError("no disk")


class Needing(TaskHook):
    def __init__(self, needed: int) -> None:
        pass


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("Unprepared", "task hook Unprepared: prepare() failed: OSError: no disk"),
        ("Needing", "cannot be created: TypeError"),
        ("Plain", "is not a task hook"),
        ("Absent", "has no 'Absent'"),
    ],
)
def test_a_hook_that_cannot_be_had_ends_the_start_and_is_named(name: str, says: str) -> None:
    conf = {"topology.auto.task.hooks": [PATH + name]}
    with pytest.raises(ComponentStartError) as caught, TopologyTest(numbers_to(Plain()), conf):
        pass
    assert says in str(caught.value)


def test_what_is_no_hook_cannot_be_added() -> None:
    class Wrong(Bolt):
        def prepare(self, conf: Any, context: Any) -> None:
            context.add_task_hook(object())

        def execute(self, tup: Any) -> None:
            pass

    with pytest.raises(SquallError, match="is not a task hook"), TopologyTest(numbers_to(Wrong())):
        pass


def test_a_hook_sees_the_outcomes_that_reach_a_spout_with_limited_replays() -> None:
    conf = {**HOOKED, "topology.max.replays": 1}
    topology = numbers_to(c.FailOn([1]), c.Replaying(3))
    with TopologyTest(topology, conf) as test:
        test.run_until_idle()
        assert sorted(seen("numbers", "ack", "fail")) == [
            ("ack", 0), ("ack", 1), ("ack", 2), ("fail", 1),
        ]  # fmt: skip
        assert seen("bolt", "fail") == 2 * [("fail", 1)]


class Forgetful(Bolt):
    auto_ack = False

    def execute(self, tup: Any) -> None:
        pass


def test_tuples_that_are_never_acked_do_not_pile_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("squall_engine.hooks.task_hooks._STARTS_MAX", 10)
    with TopologyTest(numbers_to(Forgetful(), c.Numbers(100)), HOOKED) as test:
        test.run_for(1)
        [bolt] = [one.task for one in test._engine.built if one.task.component == "bolt"]
        assert len(bolt.hooks._started) == 10


def test_a_task_without_a_hook_is_bound_to_the_core_itself() -> None:
    with TopologyTest(numbers_to(Plain())) as test:
        for one in test._engine.built:
            assert one.task.hooks is None
            assert one.task.user._collector is one.task.calls
