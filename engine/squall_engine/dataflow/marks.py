"""Marks of event time on their way between tasks: see `squall.windows.marks`, which makes and reads
them.

A mark says that its task has emitted all values before a time. So it must not arrive before them,
and they are in other edges, of which some may wait for credit while others do not. Therefore a task
sends a mark only when all that it has emitted has left its edges: what goes to one task goes in the
order in which it has left. Nothing waits for that; a mark that cannot be sent now is sent later,
and is newer by then.

At the other end the engine takes marks out of what it gives to a bolt, so that nothing that stands
around its calls (keys, tries, hooks, acks that are held) has to know of them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from squall_common.names import MARK_ENDED, MARK_STREAM
from squall_common.topology.model import Topology
from squall_engine.core.invocation import InvocationMode
from squall_engine.options import EngineOptions

if TYPE_CHECKING:
    from squall_engine.core import Columns, Tuple

END = ("", None, 0, MARK_ENDED)
"""The mark of a spout's task whose source has ended."""


def marks_of(topology: Topology, options: EngineOptions) -> Mapping[str, Sequence[str]]:
    """The components whose marks a component gets, of those that get any."""
    found = {}
    for name, component in topology.components.items():
        if not component.conf:
            continue
        sources = options.of(name).topology_bolts_watermark_from
        known = [one for one in sources or () if one in topology.components]
        if known:
            found[name] = known
    return found


def can_take_marks(user: Any, mode: InvocationMode) -> bool:
    """Whether a bolt knows what to do with marks."""
    return hasattr(user, "_squall_mark") and mode is not InvocationMode.ASYNC_BATCH


class Way(Protocol):
    """What is needed of a `Flow`."""

    def has_sent(self, task: Any) -> bool: ...
    def emit_mark(self, task: Any, mark: Sequence[Any]) -> None: ...


class MarkOut:
    """Sends the marks of one task, a `BoltTask`, between two turns of it."""

    def __init__(self, flow: Way, task: Any) -> None:
        self._flow = flow
        self._task = task

    @property
    def is_clear(self) -> bool:
        """Whether all that the task has emitted is on its way."""
        return self._flow.has_sent(self._task)

    def send(self, mark: Sequence[Any]) -> None:
        """Send a mark to all tasks that get them. Only if `is_clear`."""
        self._flow.emit_mark(self._task, mark)


class Flying:
    """The values that a task has in hand at a time, and marks that came behind some of them."""

    def __init__(self, take: Callable[[Tuple], None]) -> None:
        """`take` gets each mark once all values before it are done."""
        self._take = take
        self._next = 0
        self._values: dict[int, None] = {}  # numbers, in order
        self._marks: list[tuple[int, Tuple]] = []

    def begin(self) -> int:
        """A value begins; returns its number."""
        number = self._next
        self._next += 1
        self._values[number] = None
        return number

    def end(self, number: int) -> None:
        """A value is done, or has failed."""
        del self._values[number]
        if self._marks:
            self._give()

    def mark(self, tup: Tuple) -> None:
        """A mark has come."""
        self._marks.append((self._next, tup))
        self._give()

    def _give(self) -> None:
        first = next(iter(self._values), self._next)
        while self._marks and self._marks[0][0] <= first:
            self._take(self._marks.pop(0)[1])


def without_marks(
    mode: InvocationMode, execute: Callable[[Any], Any], user: Any
) -> Callable[[Any], Any]:
    """`execute` of a bolt, in its mode, which does not get marks: its `_squall_mark(component,
    task, values)` does."""

    def take(tup: Tuple) -> None:
        user._squall_mark(tup.source_component, tup.source_task, tup.values)

    if mode in (InvocationMode.SYNC, InvocationMode.THREAD):

        def one(tup: Tuple) -> None:
            if tup.source_stream == MARK_STREAM:
                take(tup)
            else:
                execute(tup)

        return one
    if mode is InvocationMode.COLUMNS:

        def columns_(columns: Columns) -> None:
            if columns.source_stream != MARK_STREAM:
                execute(columns)
                return
            component, task = columns.source_component, columns.source_task
            for values in zip(*columns, strict=True):
                user._squall_mark(component, task, values)

        return columns_
    if mode in (InvocationMode.BATCH, InvocationMode.THREAD_BATCH):

        def batch(tuples: list[Tuple]) -> None:
            if tuples[0].source_stream != MARK_STREAM:
                execute(tuples)
                return
            for tup in tuples:
                take(tup)

        return batch
    assert mode is InvocationMode.ASYNC
    flying = Flying(take)

    async def coroutine(tup: Tuple) -> None:
        if tup.source_stream == MARK_STREAM:
            flying.mark(tup)
            return
        number = flying.begin()
        try:
            await execute(tup)
        finally:
            flying.end(number)

    return coroutine
