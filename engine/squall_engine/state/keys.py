"""The key under which a stateful bolt is called: the values of the fields that its input is grouped
by."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextvars import ContextVar
from operator import itemgetter
from typing import Any

from squall_common.state.keyed import IMMUTABLE, NO_KEY, KeyedState
from squall_common.topology.model import Component, GlobalStreamId, GroupingKind, Topology
from squall_engine.core import Tuple

KeyOf = Callable[[Tuple], Any]

_CURRENT: ContextVar[Any] = ContextVar("squall_current_key", default=NO_KEY)
# What the call got, or put, that it may change in place.
_GOT: ContextVar[dict[Any, Any] | None] = ContextVar("squall_got", default=None)
_GONE: Any = object()
_KEYED = (GroupingKind.FIELDS, GroupingKind.GLOBAL)


class AsyncKeyedState(KeyedState):
    """The state of a bolt with coroutines: each of them has its own current key.

    A call may change a value that it got before an `await` in place, and a snapshot may have been
    taken meanwhile. So what a call got counts as changed once more when the call ends, before its
    tuple is held for the next flush.
    """

    def begin_call(self, key: Any) -> None:
        """A coroutine begins to execute a tuple of this key."""
        _CURRENT.set(key)
        _GOT.set({})

    def end_call(self) -> None:
        """It has ended."""
        for key, value in (_GOT.get() or {}).items():
            if self.peek(key, _GONE) is value:
                self._hand_out(key, value)

    def _hand_out(self, key: Any, value: Any) -> None:
        super()._hand_out(key, value)
        got = _GOT.get()
        if got is not None:
            got[key] = value

    def put(self, key: Any, value: Any) -> None:
        super().put(key, value)
        got = _GOT.get()
        if got is not None and type(value) not in IMMUTABLE:
            got[key] = value

    @property
    def current(self) -> Any:
        return _CURRENT.get()

    @current.setter
    def current(self, key: Any) -> None:
        _CURRENT.set(key)


def key_finder(topology: Topology, component: Component) -> KeyOf:
    """What finds the key of a tuple for a component: of one that it groups by fields; `NO_KEY` for
    any other, as ticks are."""
    found: dict[tuple[str, str], Callable[[Sequence[Any]], Any]] = {}
    for source, grouping in component.inputs.items():
        if grouping.kind is GroupingKind.FIELDS and grouping.fields:
            fields = topology.components[source.component].streams[source.stream].fields
            indexes = [fields.index(name) for name in grouping.fields]
            found[source.component, source.stream] = itemgetter(*indexes)
    if len(found) == 1 and len(component.inputs) == 1:
        (get,) = found.values()

        def only(tup: Tuple) -> Any:
            return NO_KEY if tup.is_tick else get(tup.values)

        return only

    def key_of(tup: Tuple) -> Any:
        get = found.get((tup.source_component, tup.source_stream))
        return NO_KEY if get is None else get(tup.values)

    return key_of


def key_fields(component: Component) -> str:
    """The fields by which its input is grouped, for errors: `'user' and 'day'`."""
    found = dict.fromkeys(
        " and ".join(map(repr, grouping.fields))
        for grouping in component.inputs.values()
        if grouping.kind is GroupingKind.FIELDS and grouping.fields
    )
    return " or ".join(found)


def unkeyed_inputs(component: Component) -> list[tuple[GlobalStreamId, str]]:
    """The inputs of a component whose tuples go to tasks that their keys do not decide, with the
    name of the grouping."""
    return [
        (source, "custom or partial_key" if grouping.custom else grouping.kind.value)
        for source, grouping in component.inputs.items()
        if grouping.kind not in _KEYED
    ]
