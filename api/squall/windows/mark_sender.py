"""Sends the marks of one task (`squall.windows.marks`): when they have changed, and as long as
values come, every watermark interval, so that one that was lost is made up for. While nothing comes
nothing is sent: a topology that has finished is at rest."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from squall.windows.marks import Mark, State

if TYPE_CHECKING:
    from squall_common.component.context import TopologyContext

_AGAIN_SECS = 0.005  # to look whether all that was emitted before a mark has left


class MarkOut(Protocol):
    """Where marks go. (`squall_engine.dataflow.marks.MarkOut`)"""

    @property
    def is_clear(self) -> bool:
        """Whether all that the task has emitted is on its way."""
        ...

    def send(self, mark: Sequence[Any]) -> None:
        """Send a mark to all tasks that get them."""
        ...


class Bears(Protocol):
    """A bolt that may have marks to send."""

    _squall_marks: MarkOut | None
    """Set by the engine; None: no component gets its marks."""


class MarkSender:
    """The marks of one task on their way out."""

    def __init__(
        self,
        bolt: Bears,
        context: TopologyContext,
        interval_ms: int,
        marks: Callable[[], Iterable[Mark] | None],
        pass_time: Callable[[], None] | None = None,
    ) -> None:
        """`marks()` are the marks by now; None: it cannot say at the moment, and calls `send_soon`
        when it can. `pass_time()` is called every interval; None: the caller calls `remind`."""
        self._bolt = bolt
        self._context = context
        self._marks = marks
        self._pass_time = pass_time
        self._last: dict[str, Mark] = {}
        self._is_due = False
        self._reminds = False
        self._secs = interval_ms / 1000
        if pass_time is not None:
            context.call_later(self._secs, self._ring)

    def _ring(self) -> None:
        assert self._pass_time is not None
        self._context.call_later(self._secs, self._ring)
        self._pass_time()
        self.remind()

    def remind(self) -> None:
        """An interval has passed: say again how far it is. By a timer, between two turns."""
        self._reminds = True
        if not self._is_due and self._bolt._squall_marks is not None:
            self._send()

    def send_soon(self) -> None:
        """Marks may have changed."""
        if not self._is_due and self._bolt._squall_marks is not None:
            self._is_due = True
            # Between two turns: what was emitted before it has left the task then.
            self._context.call_later(0.0, self._send)

    def _send(self) -> None:
        self._is_due = False
        out = self._bolt._squall_marks
        marks = self._marks()
        if out is None or marks is None:
            return
        if not out.is_clear:
            self._is_due = True
            self._context.call_later(_AGAIN_SECS, self._send)
            return
        reminds, self._reminds = self._reminds, False
        for mark in marks:
            last = self._last.get(mark.stream)
            if last is not None and last.at_ms is not None:
                at_ms = last.at_ms if mark.at_ms is None else max(mark.at_ms, last.at_ms)
                mark = mark._replace(at_ms=at_ms)  # it never goes back
            if mark.at_ms is None and mark.state == State.SILENT:
                continue  # it has had nothing at all
            if mark == last and not (reminds and mark.state == State.ACTIVE):
                continue
            self._last[mark.stream] = mark
            out.send(tuple(mark))
