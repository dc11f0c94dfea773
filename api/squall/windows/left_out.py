"""Late tuples that no stream takes, in the log: the first at once, then a line a minute.

In a stream that goes on with older times all are late.
"""

from __future__ import annotations

from logging import Logger, LoggerAdapter
from typing import TYPE_CHECKING, Any

from squall_common.errors import describe

if TYPE_CHECKING:
    from squall_common.component.tuples import Tuple

_LINE_MS = 60_000  # between two lines


class LeftOut:
    """Counts those of one task."""

    def __init__(self, log: Logger | LoggerAdapter[Any]) -> None:
        self._log = log
        self._count = 0  # since the last line
        self._next_ms: int | None = None  # when there may be another line

    def add(self, tup: Tuple, now_ms: int) -> None:
        """One more is left out."""
        self._count += 1
        if self._next_ms is None or now_ms >= self._next_ms:
            self._next_ms = now_ms + _LINE_MS
            self._say(f", the last one {_shown(tup)}")

    def end(self) -> None:
        """Log those that no line has counted yet."""
        if self._count:
            self._say("")

    def _say(self, last: str) -> None:
        self._log.warning(
            "%d late tuple(s) left out%s; late_stream keeps them, lag_secs waits for them",
            self._count, last,
        )  # fmt: skip
        self._count = 0


def _shown(tup: Tuple) -> str:
    """A tuple for the log. Its values are users', and may have a `__repr__` that raises, or be on a
    disk that cannot be read: a tuple must not fail because of a log line."""
    try:
        return repr(tup)
    except Exception as error:
        where = f"{tup.source_component}:{tup.source_task} {tup.source_stream}"
        return f"from {where} (its values cannot be shown: {describe(error)})"
