"""The collectors that the engine puts between a component and the core: every call goes through."""

from __future__ import annotations

import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from tests.support.collectors import RecordedCalls, arguments_of

from squall import Bolt, SquallError
from squall_common.component.collector import (
    BoltCollector,
    ColumnCollector,
    SpoutCollector,
    calls_of,
)
from squall_engine.acking.dead_letters import FailureRecordingCollector, RecordingCollector
from squall_engine.tasks.async_ import WakingSpoutCollector
from squall_engine.tasks.thread import LockedBoltCollector, LockedSpoutCollector


def locked_spout(inner: Any) -> Any:
    return LockedSpoutCollector(inner, threading.RLock(), lambda: None)


def locked_bolt(inner: Any) -> Any:
    return LockedBoltCollector(inner, threading.RLock(), lambda: None)


def waking(inner: Any) -> Any:
    return WakingSpoutCollector(inner, lambda: None)


def recording(inner: Any) -> Any:
    return RecordingCollector(inner, {})


def recording_fails(inner: Any) -> Any:
    return FailureRecordingCollector(inner, lambda fail, tup: fail(tup))


WRAPPERS: list[tuple[Callable[[Any], Any], type[Any]]] = [
    (locked_spout, SpoutCollector),
    (locked_bolt, BoltCollector),
    (waking, SpoutCollector),
    (recording, SpoutCollector),
    (recording_fails, BoltCollector),
]


@pytest.mark.parametrize(
    ("wrap", "interface", "name"),
    [
        pytest.param(wrap, interface, name, id=f"{wrap.__name__}.{name}")
        for wrap, interface in WRAPPERS
        for name in calls_of(interface)
    ],
)
def test_every_call_reaches_the_core_unchanged(
    wrap: Callable[[Any], Any], interface: Any, name: str
) -> None:
    inner = RecordedCalls(interface)
    args = arguments_of(interface, name)
    if name == "emit_columns":
        args = ([["a"]], ["m"], "stream")  # type: ignore[assignment]
    result = getattr(wrap(inner), name)(*args)
    assert inner.calls == [(name, args)]
    if name in ("emit", "emit_direct"):
        assert result == inner.IDS


@pytest.mark.parametrize(
    ("cls", "interface"),
    [(LockedSpoutCollector, SpoutCollector), (LockedBoltCollector, BoltCollector)],
)
def test_on_a_thread_every_call_except_report_error_takes_the_lock_and_wakes_the_loop(
    cls: Any, interface: Any
) -> None:
    held: list[str] = []

    class Lock:
        def __enter__(self) -> None:
            held.append("locked")

        def __exit__(self, *_: object) -> None:
            held.append("unlocked")

    inner = RecordedCalls(interface, during=lambda: held.append("called"))
    collector = cls(inner, Lock(), lambda: held.append("woken"))
    for name in calls_of(interface):
        held.clear()
        getattr(collector, name)(*arguments_of(interface, name))
        if name == "report_error":
            assert held == ["called"]
        else:
            assert held == ["locked", "called", "unlocked", "woken"]


def test_an_async_spout_wakes_the_loop_after_each_emit() -> None:
    said: list[str] = []
    inner = RecordedCalls(SpoutCollector, during=lambda: said.append("called"))
    collector = WakingSpoutCollector(inner, lambda: said.append("woken"))  # type: ignore[arg-type]
    for name in calls_of(SpoutCollector):
        said.clear()
        getattr(collector, name)(*arguments_of(SpoutCollector, name))
        assert said == (["called"] if name == "report_error" else ["called", "woken"])


def test_messages_are_remembered_while_they_are_in_flight() -> None:
    in_flight: dict[Any, Any] = {}
    inner: Any = RecordedCalls(SpoutCollector)
    collector = RecordingCollector(inner, in_flight)
    collector.emit(["a"])
    collector.emit(["b"], message_id=1, stream="s")
    collector.emit_direct(9, ["c"], message_id=2)
    collector.emit_columns([["d", "e"], [1, 2]], message_ids=[3, 4], stream="s")
    collector.emit_columns([["f"]])
    assert (in_flight.pop(1), in_flight.pop(2)) == ((["b"], "s"), (["c"], "default"))
    # Rows of columns share what is remembered of them.
    found = {key: (rows.row(key), stream) for key, (rows, stream) in in_flight.items()}
    assert found == {3: (["d", 1], "s"), 4: (["e", 2], "s")}


@pytest.mark.parametrize(
    ("calls", "interface"),
    [
        ("SpoutCalls", SpoutCollector),
        ("BoltCalls", BoltCollector),
        ("CarefulCalls", BoltCollector),
        ("ColumnCalls", ColumnCollector),
    ],
)
def test_the_compiled_core_implements_the_interfaces(calls: str, interface: Any) -> None:
    """As the type checker sees that the other one has."""
    compiled = pytest.importorskip("squall_engine.core.compiled")
    assert set(calls_of(interface)) <= set(dir(getattr(compiled, calls)))


def test_a_bolt_on_a_thread_that_emits_columns_is_refused_with_a_hint() -> None:
    class Blocking(Bolt):
        blocking = True

        def execute(self, tup: Any) -> None: ...

    bolt = Blocking()
    context: Any = SimpleNamespace(this_component_id="b", this_task_id=1)
    bolt._bind(locked_bolt(RecordedCalls(BoltCollector)), context)
    with pytest.raises(SquallError, match="emit_columns\\(\\) cannot be called here"):
        bolt.emit_columns([[1]])
