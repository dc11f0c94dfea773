"""Collectors that delegate: every call of an interface reaches the inner collector, unchanged, and
costs nothing where a subclass does not touch it."""

from __future__ import annotations

import inspect
from typing import Any

import pytest
from tests.support.collectors import RecordedCalls, arguments_of

from squall import Bolt, Spout
from squall_common.component.collector import (
    BoltCollector,
    ColumnCollector,
    DelegatingBoltCollector,
    DelegatingColumnCollector,
    DelegatingSpoutCollector,
    SpoutCollector,
    calls_of,
)

PAIRS: list[Any] = [
    (SpoutCollector, DelegatingSpoutCollector),
    (BoltCollector, DelegatingBoltCollector),
    (ColumnCollector, DelegatingColumnCollector),
]
CALLS = [
    pytest.param(interface, delegating, name, id=f"{interface.__name__}.{name}")
    for interface, delegating in PAIRS
    for name in calls_of(interface)
]


@pytest.mark.parametrize(("interface", "delegating"), PAIRS)
def test_a_delegating_collector_has_the_calls_of_its_interface(
    interface: Any, delegating: Any
) -> None:
    assert calls_of(delegating) == calls_of(interface)


@pytest.mark.parametrize(("interface", "delegating", "name"), CALLS)
def test_a_call_takes_what_the_interface_says(interface: Any, delegating: Any, name: str) -> None:
    def parameters(cls: Any) -> list[tuple[str, Any]]:
        signature = inspect.signature(getattr(cls, name))
        return [(one.name, one.default) for one in signature.parameters.values()]

    assert parameters(delegating) == parameters(interface)


@pytest.mark.parametrize(("interface", "delegating", "name"), CALLS)
def test_a_call_that_is_not_touched_is_the_inner_collectors_own(
    interface: Any, delegating: Any, name: str
) -> None:
    inner = RecordedCalls(interface)
    assert getattr(delegating(inner), name) is getattr(inner, name)


@pytest.mark.parametrize(("interface", "delegating", "name"), CALLS)
def test_super_passes_a_call_on_with_its_arguments(
    interface: Any, delegating: Any, name: str
) -> None:
    def again(self: Any, *args: Any) -> Any:
        return getattr(delegating, name)(self, *args)

    inner = RecordedCalls(interface)
    subclass = type("Subclass", (delegating,), {name: again})
    args = arguments_of(interface, name)
    result = getattr(subclass(inner), name)(*args)
    assert inner.calls == [(name, args)]
    if name in ("emit", "emit_direct"):
        assert result == inner.IDS


@pytest.mark.parametrize(("interface", "delegating"), PAIRS)
def test_around_is_asked_once_for_each_call_that_the_class_leaves_alone(
    interface: Any, delegating: Any
) -> None:
    asked = []

    class Subclass(delegating):  # type: ignore[misc]
        def emit(self, *args: Any) -> Any:
            raise NotImplementedError

        def _around(self, name: str, call: Any) -> Any:
            asked.append(name)
            return super()._around(name, call)

    Subclass(RecordedCalls(interface))
    assert sorted(asked) == [name for name in calls_of(interface) if name != "emit"]


@pytest.mark.parametrize(
    ("component", "interface"), [(Spout, SpoutCollector), (Bolt, ColumnCollector)]
)
def test_a_component_takes_every_call_of_its_collector(component: Any, interface: Any) -> None:
    assert sorted(component._calls) == calls_of(interface)
