"""The task that an entry of the state belongs to when the number of tasks changes.

A bolt reads and writes its state while it executes a tuple. The fields grouping that sent the tuple
sends every tuple with the same values to one task, so an entry that is used under one value of the
grouping alone can follow that value to another task: its owner is the value's stable hash. Any
other entry is *bound* to its task, and keeps the number of tasks from changing: one that tuples
with different values share (a total, say), one that is set in `prepare` or `flush`, or in
`execute_batch` and `execute_columns`, which get many tuples at once, and one that is set for a
tuple of another grouping.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from contextvars import ContextVar
from typing import Any

from squall_common.component.groupings import stable_hash_of_fields
from squall_common.state.key_groups import task_of_group
from squall_common.topology.model import Component, GlobalStreamId, GroupingKind, Topology
from squall_common.topology.serialization import Registry

BOUND = -1  # to its task
FIRST = -2  # the first task: a global grouping's
OUTSIDE = -3  # no tuple is being executed


def task_of(owner: int, tasks: int, max_parallelism: int) -> int:
    """The index of the task that gets an owner's tuples: as the engine's groupings pick it. Not for
    BOUND."""
    if owner == FIRST:
        return 0
    return task_of_group(owner % max_parallelism, tasks, max_parallelism)


class CurrentOwner:
    """The owner of what is read and written now: `follow` a bolt, then call this."""

    def __init__(self, topology: Topology, component: Component, registry: Registry) -> None:
        self._registry = registry
        self._keys: dict[GlobalStreamId, Callable[[Sequence[Any]], int]] = {}
        for source, grouping in component.inputs.items():
            fields = topology.components[source.component].streams[source.stream].fields
            if grouping.kind is GroupingKind.FIELDS and grouping.fields:
                indexes = [fields.index(name) for name in grouping.fields]
                self._keys[source] = self._by(indexes)
            elif grouping.kind is GroupingKind.GLOBAL or grouping.kind is GroupingKind.FIELDS:
                self._keys[source] = _first
        self._tuple: Any = None
        self._async_tuple: ContextVar[Any] | None = None
        self._known: int | None = None

    def __call__(self) -> int:
        tup = self._tuple
        if self._async_tuple is not None:
            tup = self._async_tuple.get()
            if tup is not None:
                return self._owner_of(tup)
        if tup is None:
            return OUTSIDE
        if self._known is None:
            self._known = self._owner_of(tup)
        return self._known

    def _owner_of(self, tup: Any) -> int:
        key = self._keys.get(GlobalStreamId(tup.source_component, tup.source_stream))
        return BOUND if key is None else key(tup.values)

    def _by(self, indexes: Sequence[int]) -> Callable[[Sequence[Any]], int]:
        registry = self._registry
        return lambda values: stable_hash_of_fields([values[i] for i in indexes], registry)

    def follow(self, user: Any) -> None:
        """Note which tuple a bolt's `execute` is given. In `execute_batch` and `execute_columns`
        no tuple is the current one."""
        execute = user.execute
        if inspect.iscoroutinefunction(execute):
            current = self._async_tuple = ContextVar("current tuple", default=None)

            async def followed_async(tup: Any) -> Any:
                token = current.set(tup)
                try:
                    return await execute(tup)
                finally:
                    current.reset(token)

            object.__setattr__(user, "execute", followed_async)
            return

        def followed(tup: Any) -> Any:
            self._tuple, self._known = tup, None
            try:
                return execute(tup)
            finally:
                self._tuple = None

        object.__setattr__(user, "execute", followed)


def _first(_values: Sequence[Any]) -> int:
    return FIRST
