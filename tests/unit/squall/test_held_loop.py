"""What the loop of `storm local` is in, as another thread sees it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

from squall import Bolt, Spout, TopologyBuilder
from squall._held_loop import (
    _LOOKS_MAX,
    _START_LOOKS_MAX,
    Held,
    _is_waited_for,
    _shown,
    _stack,
)
from squall.local import LocalCluster


@contextmanager
def loop_in(*modules: str) -> Iterator[threading.Thread]:
    """A thread whose loop is in a call of a function of the first module, which calls one of the
    next, and so on."""
    arrived, go = threading.Event(), threading.Event()

    def held() -> None:
        arrived.set()
        go.wait()

    call: Callable[[], None] = held
    for module in reversed(modules):
        values: dict[str, Any] = {"__name__": module, "call": call}
        exec("def held():\n    call()", values)
        call = values["held"]

    def _run_loop() -> None:
        call()

    thread = threading.Thread(target=_run_loop)
    thread.start()
    assert arrived.wait(10)
    try:
        yield thread
    finally:
        go.set()
        thread.join(10)


def looks_until_end(
    held: Held, stack: list[FrameType], *, turned: bool = False, ends: bool = False
) -> int:
    """How often it may look at the same stack; 1000: as often as it likes."""
    for looks in range(1000):
        if held.look(stack, turned=turned, ends=ends):
            return looks
    return 1000


def test_a_call_that_does_not_return_ends_the_process() -> None:
    with loop_in("squall_engine.engine", "wordcount") as thread:
        first, again = _stack(thread), _stack(thread)
        assert first[1] is again[1]
        assert looks_until_end(Held(), first) == _LOOKS_MAX


def test_a_call_that_began_before_the_end_has_had_its_time() -> None:
    with loop_in("squall_engine.engine", "wordcount") as thread:
        held, stack = Held(), _stack(thread)
        assert not any(held.look(stack, turned=False, over=False) for _ in range(100))
        assert not held.look(stack, turned=False)
        assert held.look(stack, turned=False)


def test_the_time_before_the_end_counts_with_that_after_it() -> None:
    with loop_in("squall_engine.engine", "wordcount") as thread:
        held, stack = Held(), _stack(thread)
        for _ in range(7):  # the first sees a new call
            assert not held.look(stack, turned=False, over=False)
        assert [held.look(stack, turned=False) for _ in range(4)] == 3 * [False] + [True]


def test_only_the_frames_from_the_users_on_are_shown() -> None:
    with loop_in("asyncio.events", "squall_engine.engine", "wordcount", "numpy") as thread:
        modules = [frame.f_globals["__name__"] for frame in _shown(_stack(thread))]
    assert modules[:2] == ["wordcount", "numpy"]
    with loop_in("asyncio.events", "squall_engine.engine") as thread:
        stack = [frame for frame in _stack(thread) if frame.f_globals["__name__"] != __name__]
        assert _shown(stack[:2]) == stack[:2]


def test_calls_that_follow_each_other_in_one_turn_are_not_one_call() -> None:
    """As the `cleanup` of each of many components."""
    with loop_in("squall_engine.engine", "one") as one, loop_in("squall_engine.x", "two") as two:
        engine = _stack(one)[:1]
        cleanups = [[*engine, *_stack(one)[1:]], [*engine, *_stack(two)[1:]]]
        held = Held()
        assert not any(held.look(cleanups[n // 7 % 2], turned=False) for n in range(100))


def test_a_loop_that_takes_turns_is_not_held() -> None:
    """A coroutine has the same frame in all of them."""
    with loop_in("wordcount") as thread:
        assert looks_until_end(Held(), _stack(thread), turned=True) == 1000


def test_a_loop_that_has_ended_is_in_no_call() -> None:
    with loop_in() as thread:
        pass
    assert _stack(thread) == []
    assert looks_until_end(Held(), []) == 1000


def test_a_person_who_debugs_has_time() -> None:
    with loop_in("wordcount", "pydevd.runner") as thread:
        assert looks_until_end(Held(), _stack(thread)) == 1000


class Opens(Bolt):
    arrived, go = threading.Event(), threading.Event()

    def prepare(self, conf: Any, context: Any) -> None:
        self.arrived.set()
        self.go.wait(10)

    def execute(self, tup: Any) -> None: ...


class Quiet(Spout):
    outputs = ["word"]

    def next_tuple(self) -> None: ...


def test_a_component_has_more_time_to_open() -> None:
    """As long as a worker has on a cluster; but not once the program was told to end."""
    builder = TopologyBuilder()
    builder.spout("words", Quiet())
    builder.bolt("opens", Opens()).shuffle("words")
    waited_for: list[bool] = []
    with LocalCluster() as cluster:

        def look() -> None:
            Opens.arrived.wait(10)
            assert cluster._thread is not None
            waited_for.append(_is_waited_for())
            stack = _stack(cluster._thread)
            looks.append(looks_until_end(Held(), stack))
            looks.append(looks_until_end(Held(), stack, ends=True))
            Opens.go.set()

        looks: list[int] = []
        other = threading.Thread(target=look)
        other.start()
        cluster.submit_topology("one", {}, builder.build())
        other.join(10)
    assert looks == [_START_LOOKS_MAX, _LOOKS_MAX]
    assert waited_for == [True]
    assert not _is_waited_for()
