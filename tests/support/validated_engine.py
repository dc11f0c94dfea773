"""Engines whose state is checked after everything that happens to them."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

from squall_common.daemon.output.story import ContradictionError
from squall_engine.embed import EmbeddedEngine

# What is called from outside, the event loop's callbacks included; not `wake` and `die`, which
# other threads call.
_EVENTS = (
    "start", "stop", "set_active", "set_ready", "set_routes", "resume", "worker_lost",
    "sections_dropped", "session_began", "granted", "_on_arrival", "_on_timer", "_take_turn",
    "_died",
)  # fmt: skip


class ValidatedEngine(EmbeddedEngine):
    """`contradictions` are what `validate` has found: the loop only logs what its callbacks
    raise."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.contradictions: list[ContradictionError] = []
        self.validations = 0

    def check(self) -> None:
        self.validations += 1
        try:
            self.validate()
        except ContradictionError as error:
            self.contradictions.append(error)


def _checked(method: Callable[..., Any]) -> Callable[..., Any]:
    if inspect.iscoroutinefunction(method):

        @functools.wraps(method)
        async def call_async(self: ValidatedEngine, *args: Any, **kwargs: Any) -> Any:
            try:
                return await method(self, *args, **kwargs)
            finally:
                self.check()

        return call_async

    @functools.wraps(method)
    def call(self: ValidatedEngine, *args: Any, **kwargs: Any) -> Any:
        result = method(self, *args, **kwargs)
        self.check()
        return result

    return call


for _name in _EVENTS:
    setattr(ValidatedEngine, _name, _checked(getattr(EmbeddedEngine, _name)))
