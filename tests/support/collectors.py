"""A collector that records its calls, whatever its interface has."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from squall_common.component.collector import calls_of


def arguments_of(interface: type[Any], name: str) -> tuple[str, ...]:
    """An argument for each parameter of a call, named as it is."""
    return tuple(inspect.signature(getattr(interface, name)).parameters)[1:]


class RecordedCalls:
    """`calls` are the names and arguments so far; `during()` is called in each."""

    IDS = (3, 7)

    def __init__(self, interface: type[Any], during: Callable[[], None] = lambda: None) -> None:
        self.calls: list[tuple[str, tuple[Any, ...]]] = []
        for name in calls_of(interface):
            setattr(self, name, self._recording(name, during))

    def _recording(self, name: str, during: Callable[[], None]) -> Callable[..., Any]:
        def call(*args: Any, **by_name: Any) -> Any:
            during()
            self.calls.append((name, (*args, *by_name.values())))
            return self.IDS

        return call
