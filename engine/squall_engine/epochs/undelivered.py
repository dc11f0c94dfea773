"""Tuples that were emitted with checkpoints and cannot be sent to another worker.

A value without an encoding, or a tuple that is too large, is noticed when the tuple leaves. Its
sender has done its work by then, and would do the same again after each restart. So the tuple
becomes a dead letter of its sender, which leaves before the sender's next snapshot and thus in the
epoch of the tuple. If nothing consumes the sender's letters, the topology ends instead: to leave
the tuple out would be a loss.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

from squall_common.errors import SquallError, describe
from squall_common.names import DEAD_LETTER_STREAM
from squall_engine.acking.dead_letters import sendable
from squall_engine.core.codec import UndeliverableError, ValueCodec
from squall_engine.plan import Plan
from squall_engine.tasks.bolt import BoltTask
from squall_engine.tasks.spout import SpoutTask

_REASON_CHARS_MAX = 500


class UndeliveredLetters:
    """The dead letters of what the tasks of one engine could not send."""

    def __init__(
        self, plan: Plan, codec: ValueCodec, worker: str, fault: Callable[[BaseException], None]
    ) -> None:
        """`fault` ends the engine."""
        self._plan = plan
        self._codec = codec
        self._worker = worker
        self._fault = fault
        self._waiting: deque[tuple[SpoutTask | BoltTask, UndeliverableError]] = deque()

    @property
    def has_some(self) -> bool:
        """Whether letters wait for `emit`."""
        return bool(self._waiting)

    def add(self, sender: SpoutTask | BoltTask, error: Exception) -> None:
        """A tuple of a task cannot be delivered. From any thread; ends the engine if it cannot
        become a letter."""
        name = sender.component
        if not isinstance(error, UndeliverableError) or error.stream == DEAD_LETTER_STREAM:
            self._fault(error)
        elif self._plan.consumers_of(name, DEAD_LETTER_STREAM):
            self._waiting.append((sender, error))
        else:
            fault = SquallError(
                f"{name!r} (task {sender.task}) has emitted a tuple that cannot be sent: {error}",
                hint="with checkpoints no tuple is left out: mend the component, or subscribe a "
                f"bolt to its stream {DEAD_LETTER_STREAM!r}; the next start goes on from the last "
                "epoch",
            )
            fault.__cause__ = error
            self._fault(fault)

    def emit(self) -> bool:
        """Emit the letters that wait, on the loop. True if there were any."""
        count = len(self._waiting)
        for _ in range(count):
            sender, error = self._waiting.popleft()
            row = self._row(sender, error)
            with sender.lock:
                if isinstance(sender, BoltTask):
                    sender.calls.emit([*row, sender.component], (), DEAD_LETTER_STREAM)
                else:
                    sender.calls.emit(row, None, DEAD_LETTER_STREAM)
        return count > 0

    def _row(self, sender: SpoutTask | BoltTask, error: UndeliverableError) -> list[Any]:
        """The values of a letter: see `DEAD_LETTER_FIELDS`."""
        reason = describe(error)[:_REASON_CHARS_MAX]
        where = [sender.component, sender.task, self._worker]
        return sendable(self._codec, [None, list(error.values), error.stream, reason, *where, 0])
