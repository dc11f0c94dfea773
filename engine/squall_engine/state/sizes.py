"""How large the state of a task is, for heartbeats, metrics and pages.

Nothing here looks at entries, of which there may be millions: a dictionary knows its length, and
what is stored has the sizes of its segments.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from squall_common.component.state import MemoryState
from squall_common.component.stateful import StatefulBolt
from squall_common.state.keyed import KeyedState
from squall_engine.atomic.concurrent import DraftState
from squall_engine.atomic.undo import UndoableState
from squall_engine.core import HotState
from squall_engine.tasks.base import Task


class StateSize(NamedTuple):
    """How large some state is.

    `keys`: the entries of a `StatefulBolt`, and the keys with an open window of windows (of those
    that keep the tuples of all keys in one queue, these tuples). `stored_bytes`: of the segments,
    as packed, that are read if the tasks start again; None: nothing is stored, or not yet known.
    """

    keys: int
    stored_bytes: int | None


def state_of(user: Any) -> Any:
    """The state of a component under what makes its calls atomic; None: it has none."""
    state = getattr(user, "state", None)
    if isinstance(state, HotState):  # the core makes the calls of the one beneath
        state = state.slow
    if isinstance(state, UndoableState | DraftState):
        return state.inner
    if isinstance(state, KeyedState | MemoryState):
        return state
    # Components may have an attribute of this name that is something else.
    return state if hasattr(state, "iterate") and hasattr(state, "put") else None


def size_of(tasks: Iterable[Task]) -> StateSize | None:
    """What the tasks hold together; None: none of them has state. From the thread of the loop."""
    keys: int | None = None
    stored: int | None = None
    for task in tasks:
        if (mine := keys_of(task.user)) is None:
            continue
        keys = (keys or 0) + mine
        if task.stored_bytes is not None and (octets := task.stored_bytes()) is not None:
            stored = (stored or 0) + octets
    return None if keys is None else StateSize(keys, stored)


def keys_of(user: Any) -> int | None:
    """See StateSize; None for a component without state."""
    if isinstance(user, StatefulBolt):  # (which may have windows, too: these are not counted)
        state = state_of(user)
        return len(state) if isinstance(state, KeyedState | MemoryState) else None
    if _is_windowed(user):
        shell = getattr(user, "_squall_shell", None)  # None: it is not bound yet
        return None if shell is None else int(shell.entries)
    return None


def _is_windowed(user: Any) -> bool:
    return bool(getattr(type(user), "_squall_windowed", False))


def gauges(task: Task) -> Mapping[str, Callable[[], Any]]:
    """What the task's metrics show of its state, by name; a value of None is not shown."""
    user, found = task.user, dict[str, Callable[[], Any]]()
    if isinstance(user, StatefulBolt) or _is_windowed(user):
        found["state.keys"] = lambda: keys_of(user)
        if task.stored_bytes is not None:
            found["state.bytes"] = task.stored_bytes
    if isinstance(user, StatefulBolt) and task.stored_bytes is not None:
        found["state.bound-keys"] = lambda: _bound(user)
    return found


def _bound(user: Any) -> int | None:
    state = state_of(user)
    return state.bound if isinstance(state, KeyedState) else None
