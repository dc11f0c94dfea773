"""The calls of components by the run loop, in Python on purpose. The tasks are compiled, and
compiled functions have no frames: those of the functions here show which task calls a component,
and with what (`squall_engine.observe.under_way`). The first argument says it: the task, or the
core's calls of it.

In a loop, the interpreter runs a Python function that Python calls without a C stack frame in
between, in 30 ns where a call from C takes 55. What `call_each` and `call_while` iterate over is
the compiled core's, and does in its `__next__` what is to be done between calls.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, ParamSpec, TypeVar

_P = ParamSpec("_P")
_R = TypeVar("_R")


def call_each(tuples: Iterable[Any], execute: Callable[[Any], Any]) -> None:
    """Call `execute` with each tuple."""
    for tup in tuples:
        execute(tup)


def call_while(allowed: Iterable[None], next_tuple: Callable[[], Any]) -> None:
    """Call `next_tuple` as often as `allowed` yields."""
    for _ in allowed:
        next_tuple()


def run_each(task: Any, batches: Iterable[Any], count: int) -> None:
    """Have a task's calls run the first `count` tuples of the batches."""
    run = task.calls.run
    for batch in batches:
        n = min(count, len(batch))
        run(batch, n)
        count -= n


def call_batch(task: Any, tuples: list[Any]) -> None:
    """Call a task's `execute` with a copy of a batch."""
    task.execute(tuples[:])


def notify_each(task: Any, call: Callable[[Any], Any], message_ids: Iterator[Any]) -> None:
    """Call a spout's `ack` or `fail` with each message id, or its `ack_batch` with all of them."""
    for message_id in message_ids:
        call(message_id)


def call_for(task: Any, call: Callable[_P, _R], *args: _P.args, **kwargs: _P.kwargs) -> _R:
    """Any other call for a task."""
    return call(*args, **kwargs)
