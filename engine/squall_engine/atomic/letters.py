"""The dead letters of a bolt: tuples whose tries have all failed, with checkpoints.

A letter leaves in the epoch of its tuple, by the bolt's stream `__dead_letter`, and the tuple
counts as done. What goes back behind the epoch takes the letter with it; so none is lost, and none
comes twice. If nothing consumes that stream, the topology ends instead: to leave the tuple out
would be a loss.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from squall_common.component.collector import BoltCollector, ColumnCollector
from squall_common.errors import SquallError, describe_fully
from squall_common.names import DEAD_LETTER_STREAM, DEFAULT_STREAM
from squall_engine.acking.dead_letters import sendable
from squall_engine.core import Source, Tuple
from squall_engine.core.codec import ValueCodec

_SHOWN_CHARS = 200
_REASON_CHARS_MAX = 500


class TupleFailedError(SquallError):
    """A tuple whose tries have all failed, and whose dead letter nothing consumes."""


class BoltLetters:
    """The dead letters of one task."""

    def __init__(
        self,
        component: str,
        task: int,
        worker: str,
        *,
        consumed: bool,
        tries: int,
        codec: ValueCodec,
        fault: Callable[[BaseException], None],
    ) -> None:
        """`consumed`: a bolt subscribes to them. `fault` ends the engine."""
        self.calls: BoltCollector[Tuple] | None = None  # the task's, which sends at once
        self._component, self._task, self._worker = component, task, worker
        self._consumed = consumed
        self._tries = tries
        self._codec = codec
        self._fault = fault

    def give_up(self, tup: Tuple, error: Exception) -> None:
        """A tuple is a dead letter. Raises TupleFailedError if nothing consumes it."""
        row = self._row(tup.source, tup.values, error)
        assert self.calls is not None
        anchors = () if tup.settled else (tup,)
        self.calls.emit(row, anchors, DEAD_LETTER_STREAM)

    def refuse(self, tup: Tuple, error: Exception) -> None:
        """The same for a tuple with which no try can be made."""
        assert self.calls is not None
        row = self._row(tup.source, tup.values, error, replays=0)
        self.calls.emit(row, (tup,), DEAD_LETTER_STREAM)

    def give_up_values(self, values: Sequence[Any], error: Exception) -> None:
        """The same for values that are no longer a tuple; their source is the bolt itself."""
        source = Source(self._component, self._task, DEFAULT_STREAM, ())
        assert self.calls is not None
        self.calls.emit(self._row(source, values, error), (), DEAD_LETTER_STREAM)

    def give_up_row(
        self, source: Source, values: Sequence[Any], row: int, error: Exception
    ) -> None:
        """The same for a row of the batch that is executed."""
        letter = self._row(source, values, error)
        calls: ColumnCollector[Tuple] = self.calls  # type: ignore[assignment]
        calls.emit_columns([[value] for value in letter], [row], DEAD_LETTER_STREAM)

    def _row(
        self,
        source: Source,
        values: Sequence[Any],
        error: Exception,
        replays: int | None = None,
    ) -> list[Any]:
        """The values of a letter: see `BOLT_DEAD_LETTER_FIELDS`. `replays` None: all tries were
        made."""
        if not self._consumed:
            fault = failed_error(self._component, self._task, source, values, error)
            self._fault(fault)
            raise fault from error
        row = sendable(
            self._codec,
            [
                None,
                list(values),
                source.stream,
                describe_fully(error, _REASON_CHARS_MAX),
                self._component,
                self._task,
                self._worker,
                self._tries - 1 if replays is None else replays,
            ],
        )
        return [*row, source.component]


def failed_error(
    component: str, task: int, source: Source, values: Sequence[Any], error: Exception
) -> TupleFailedError:
    """The error that ends a topology over a tuple."""
    shown = repr(list(values))
    if len(shown) > _SHOWN_CHARS:
        shown = shown[:_SHOWN_CHARS] + "..."
    return TupleFailedError(
        f"{component!r} (task {task}) cannot process a tuple of {source.component!r}: "
        f"{shown}: {describe_fully(error)}",
        hint="with checkpoints no tuple is left out: mend the bolt, catch the error in it, or "
        f"subscribe a bolt to its stream {DEAD_LETTER_STREAM!r}; the next start goes on from the "
        "last epoch",
    )
