"""What a try has changed is undone if it fails."""

from __future__ import annotations

from typing import Any

import pytest

from squall_common.state.keyed import KeyedState
from squall_engine.atomic.tries import HoldingCollector, Tries
from squall_engine.atomic.undo import UndoableRows, UndoableState
from squall_engine.core import Tuple
from squall_engine.core.codec import ValueCodec


class Calls:
    """A collector that notes what leaves."""

    def __init__(self) -> None:
        self.made: list[tuple[str, Any]] = []

    def emit(self, values: Any, anchors: Any = None, stream: str = "default") -> Any:
        if len(values) != 1:
            raise ValueError("1 value expected")
        self.made.append((stream, values))
        return (1,)

    def emit_direct(
        self, task: int, values: Any, anchors: Any = None, stream: str = "default"
    ) -> Any:
        self.made.append((f"{stream} to {task}", values))
        return (task,)

    def ack(self, tup: Any, /) -> None:
        self.made.append(("ack", tup))

    def fail(self, tup: Any, /) -> None:
        self.made.append(("fail", tup))

    def reset_timeout(self, tup: Any, /) -> None: ...

    def report_error(self, exc: BaseException, /) -> None: ...


class Task:
    """A task with state and rows."""

    def __init__(self, tries: int = 3) -> None:
        codec = ValueCodec()
        self.inner = KeyedState(128, codec)
        self.state = UndoableState(self.inner, codec)
        self.rows: list[Any] = []
        self.calls = Calls()
        self.reported: list[BaseException] = []
        self.given_up: list[Any] = []
        self.faults: list[BaseException] = []
        self.slept: list[float] = []
        self.tries = Tries(
            tries,
            key_of=lambda tup: "key",
            report=self.reported.append,
            give_up=lambda tup, error: self.given_up.append((tup, str(error))),
            fault=self.faults.append,
            sleep=self.slept.append,
        )
        self.tries.parts += [self.state, UndoableRows(self.rows)]
        arity = {"default": (1, False), "direct": (1, True)}
        self.collector = HoldingCollector(self.calls, self.tries, arity)

    def run(self, execute: Any) -> None:
        tup: Any = "a tuple"
        self.tries.around(execute)(tup)


def fails(task: Task, times: int, change: Any) -> Any:
    left = [times]

    def execute(tup: Tuple) -> None:
        change()
        if left[0]:
            left[0] -= 1
            raise ValueError(f"{left[0]} left")

    return execute


def test_what_succeeds_takes_effect_once_after_it_has_returned() -> None:
    task = Task()

    def execute(tup: Tuple) -> None:
        assert task.collector.emit(["a"]) == ()
        assert task.collector.emit_direct(7, ["b"], stream="direct") == ()
        task.rows.append("row")
        assert task.calls.made == []

    task.run(execute)
    assert task.calls.made == [("default", ["a"]), ("direct to 7", ["b"])]
    assert task.rows == ["row"]


def test_failed_tries_leave_nothing_behind() -> None:
    task = Task()
    task.inner.put("old", 1)
    task.inner.put("gone", 2)
    task.inner.put("list", [1])

    def change() -> None:
        task.state.put("old", task.state.get("old") + 1)
        task.state.put("new", 5)
        task.state.delete("gone")
        task.state.get("list").append(9)
        for key, value in list(task.state.items()):
            if key == "list":
                value.append(10)
        task.rows.append("row")
        task.collector.emit(["a"])

    task.run(fails(task, 2, change))
    assert dict(task.inner.items()) == {"old": 2, "new": 5, "list": [1, 9, 10]}
    assert task.rows == ["row"]
    assert task.calls.made == [("default", ["a"])]
    assert [str(error) for error in task.reported] == ["1 left", "0 left"]
    assert len(task.slept) == 2


def test_a_tuple_whose_tries_all_fail_is_given_up_without_a_trace() -> None:
    task = Task()
    task.inner.put("old", 1)
    task.run(fails(task, 3, lambda: task.state.put("old", 5)))
    assert dict(task.inner.items()) == {"old": 1}
    assert task.given_up == [("a tuple", "0 left")]


def test_a_replaced_value_that_was_changed_in_place_is_undone_as_well() -> None:
    task = Task(1)
    task.inner.put("list", [1])

    def change() -> None:
        value = task.state.get("list")
        value.append(2)
        task.state.put("list", [*value, 3])

    task.run(fails(task, 1, change))
    assert task.inner.get("list") == [1]


def test_fail_counts_as_a_failure_of_the_try() -> None:
    task = Task(2)
    task.run(task.collector.fail)
    assert task.given_up == [("a tuple", "the bolt called fail()")]
    assert task.calls.made == []


def test_a_wrong_emit_fails_where_it_is_made() -> None:
    task = Task(1)
    task.run(lambda tup: task.collector.emit(["a", "b"]))
    assert task.given_up == [("a tuple", "1 value expected")]


def test_what_fails_on_its_way_out_is_a_fault() -> None:
    task = Task()

    def refuse(*_: Any, **__: Any) -> Any:
        raise ValueError("it cannot be encoded")

    task.calls.emit = refuse  # type: ignore[method-assign]
    task.collector = HoldingCollector(task.calls, task.tries, {"default": (1, False)})
    with pytest.raises(ValueError, match="encoded"):
        task.run(lambda tup: task.collector.emit(["a"]))
    assert len(task.faults) == 1
    assert task.given_up == []


def test_calls_between_two_tuples_are_made_at_once() -> None:
    task = Task()
    assert task.collector.emit(["a"]) == (1,)
    assert task.calls.made == [("default", ["a"])]
