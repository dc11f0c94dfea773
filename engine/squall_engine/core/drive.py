"""The loops that call components, in Python on purpose: the interpreter runs a Python function that
Python calls without a C stack frame in between, in 30 ns where a call from C takes 55. What they
iterate over is the compiled core's, and does in its `__next__` what is to be done between calls."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any


def call_each(tuples: Iterable[Any], execute: Callable[[Any], Any]) -> None:
    """Call `execute` with each tuple."""
    for tup in tuples:
        execute(tup)


def call_while(allowed: Iterable[None], next_tuple: Callable[[], Any]) -> None:
    """Call `next_tuple` as often as `allowed` yields."""
    for _ in allowed:
        next_tuple()


def run_each(run: Callable[[Any, int], None], batches: Iterable[Any], count: int) -> None:
    """Call `run(batch, n)` for the first `count` tuples of the batches."""
    for batch in batches:
        n = min(count, len(batch))
        run(batch, n)
        count -= n
