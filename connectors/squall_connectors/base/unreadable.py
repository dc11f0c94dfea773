"""Records that a source cannot read: a stream for them, or errors, a bounded number.

A record that no tuple can be made of goes to the stream "unreadable" if a bolt consumes it. It is
then a tuple like any other, and no error. Otherwise it is an error of the topology and is passed
over. A source may have millions of such records, and the list of errors is short: so that they do
not push out all others, the first one is an error of its own, and what follows is one error every
ten seconds, which says how many there were.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from squall import TopologyContext
from squall.metrics import CountMetric
from squall_common.errors import SquallError

UNREADABLE = "unreadable"

_REPORT_SECS = 10.0
_HINT = f"a bolt that consumes the stream {UNREADABLE!r} gets such records"


class UnreadableError(SquallError):
    """A source has records that cannot be read."""


class OnUnreadable(list[Any]):
    """The values of a record that goes to the stream "unreadable"."""


class UnreadableRecords:
    """What a task does about them; make it in `open`. Metric: `unreadable`, all of them."""

    def __init__(
        self, context: TopologyContext, report_error: Callable[[BaseException], None]
    ) -> None:
        self.consumed = UNREADABLE in context.this_targets
        self._count = context.register_metric("unreadable", CountMetric())
        self._now, self._report_error = context.monotonic, report_error
        self._due = self._now()
        self._left_out = 0
        self._last = ""

    def found(self, what: str) -> bool:
        """Count a record, `what` being which and why. Returns whether the source is to emit it;
        otherwise it is reported, now or with others."""
        self._count.incr()
        if not self.consumed:
            self._left_out += 1
            self._last = what
            self.look()
        return self.consumed

    def look(self) -> None:
        """Report what was left out, if it is time. Call it every so often."""
        if self._left_out and self._now() >= self._due:
            self.report()

    def report(self) -> None:
        """Report what was left out: the source has ended."""
        if self._left_out:
            count, self._left_out = self._left_out, 0
            self._due = self._now() + _REPORT_SECS
            more = "" if count == 1 else f"{count:,} records cannot be read; the last: "
            self._report_error(UnreadableError(more + self._last, hint=_HINT))
