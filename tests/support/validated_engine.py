"""Engines whose state is checked after everything that happens to them.

The methods of a compiled class cannot be replaced, nor can it be derived from: those engines are
checked where `contradictions_of` is called. The stage `pure` runs the same tests in Python."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

import pytest

from squall_common.daemon import compiled_modules
from squall_common.daemon.output.story import ContradictionError
from squall_engine.embed import EmbeddedEngine

COMPILED = compiled_modules.are_used()
replaces_methods = pytest.mark.skipif(COMPILED, reason="run it with SQUALL_MODULES=python")

# What is called from outside, the event loop's callbacks included; not `wake` and `die`, which
# other threads call.
_EVENTS = (
    "start", "stop", "set_active", "set_ready", "set_routes", "resume", "worker_lost",
    "sections_dropped", "session_began", "granted", "_on_arrival", "_on_timer", "_take_turn",
    "_died",
)  # fmt: skip


class CheckedEngine(EmbeddedEngine):
    """`contradictions` are what `validate` has found: the loop only logs what its callbacks
    raise."""

    contradictions: list[ContradictionError]
    validations = 0

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.contradictions = []

    def check(self) -> None:
        self.validations += 1
        try:
            self.validate()
        except ContradictionError as error:
            self.contradictions.append(error)


def _checked(method: Callable[..., Any]) -> Callable[..., Any]:
    if inspect.iscoroutinefunction(method):

        @functools.wraps(method)
        async def call_async(self: CheckedEngine, *args: Any, **kwargs: Any) -> Any:
            try:
                return await method(self, *args, **kwargs)
            finally:
                self.check()

        return call_async

    @functools.wraps(method)
    def call(self: CheckedEngine, *args: Any, **kwargs: Any) -> Any:
        result = method(self, *args, **kwargs)
        self.check()
        return result

    return call


ValidatedEngine: type[EmbeddedEngine] = EmbeddedEngine
if not COMPILED:
    ValidatedEngine = CheckedEngine
    for _name in _EVENTS:
        setattr(CheckedEngine, _name, _checked(getattr(EmbeddedEngine, _name)))


def contradictions_of(engine: EmbeddedEngine) -> list[ContradictionError]:
    """What has been found so far."""
    if isinstance(engine, CheckedEngine):
        return engine.contradictions
    try:
        engine.validate()
    except ContradictionError as error:
        return [error]
    return []
