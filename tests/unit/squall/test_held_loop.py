"""What the loop of `storm local` is in, as another thread sees it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from squall._held_loop import _is_debugged, _stack


@contextmanager
def loop_in(module: str | None) -> Iterator[threading.Thread]:
    """A thread whose loop is in a call of a module; None: in none."""
    arrived, go = threading.Event(), threading.Event()
    values: dict[str, Any] = {"__name__": module, "arrived": arrived, "go": go}
    exec("def held():\n    arrived.set()\n    go.wait()", values)

    def _run_loop() -> None:
        if module is None:
            arrived.set()
        else:
            values["held"]()

    thread = threading.Thread(target=_run_loop)
    thread.start()
    arrived.wait(10)
    try:
        yield thread
    finally:
        go.set()
        thread.join(10)


def test_a_call_is_the_same_call_while_it_does_not_return() -> None:
    with loop_in("wordcount") as thread:
        first, again = _stack(thread), _stack(thread)
        assert first[0] is again[0]
        assert first[0].f_code.co_name == "held"
        assert not _is_debugged(first)


def test_a_loop_that_has_ended_is_in_no_call() -> None:
    with loop_in(None) as thread:
        thread.join(10)
        assert _stack(thread) == []


def test_a_person_who_debugs_has_time() -> None:
    with loop_in("pydevd.runner") as thread:
        assert _is_debugged(_stack(thread))
