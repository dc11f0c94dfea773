"""What a bolt of streams knows and says of event time (`squall.windows.marks`): one that calls
`event_time` makes marks of the timestamps that it sees, the others pass on those of their inputs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from squall.windows.mark_sender import MarkOut, MarkSender
from squall.windows.marks import InputMarks, Mark, Progress
from squall.windows.reading import millis_of
from squall.windows.spec import WindowPlan, options_of
from squall_common.names import DEFAULT_STREAM

if TYPE_CHECKING:
    from squall_common.component.context import TopologyContext

FROM_INPUT = -1  # in place of a step that calls event_time


@dataclass(frozen=True, slots=True)
class Origin:
    """A call of `event_time`."""

    lag_ms: int
    idle_ms: int | None
    interval_ms: int
    part_of: Callable[[Any], Any] | None
    """The part of the source that a value is of; None: of its task."""


class MarkedBolt:
    """What the engine sets and calls of a bolt that takes part in marks."""

    _squall_marks: MarkOut | None = None
    _squall_marks_from: Sequence[str] = ()
    _marking: Marking | None = None

    def _squall_mark(self, component: str, task: int, values: Sequence[Any]) -> None:
        """For the engine: a mark has come, behind all values that were emitted before it."""
        if self._marking is not None:
            self._marking.told(component, task, Mark(*values))

    def _begin_marks(
        self,
        context: TopologyContext,
        streams: Mapping[str, int] | None = None,
        origins: Mapping[int, Origin] | None = None,
    ) -> None:
        """`streams` are those of which others get marks, each with the step that gives its values
        their time; None: the only one, with the time of the input."""
        if self._squall_marks is not None:
            streams = {DEFAULT_STREAM: FROM_INPUT} if streams is None else streams
            self._marking = Marking(self, context, streams, origins or {})


class Marking:
    """The marks of one task, of all its streams."""

    def __init__(
        self,
        bolt: MarkedBolt,
        context: TopologyContext,
        streams: Mapping[str, int],
        origins: Mapping[int, Origin],
    ) -> None:
        plan = WindowPlan.read(options_of(context.conf))
        interval_ms = min((one.interval_ms for one in origins.values()), default=plan.watermark_ms)
        self._context = context
        self._streams = streams
        self._origins = origins
        now_ms = self._now_ms()
        inputs: dict[tuple[str, str], Sequence[int]] = {
            (one.component, one.stream): context.component_tasks(one.component)
            for one in context.this_sources
        }
        tasks = sorted({task for some in inputs.values() for task in some})
        self._seen = {
            step: Progress(tasks, idle_ms=one.idle_ms, interval_ms=interval_ms, now_ms=now_ms)
            for step, one in origins.items()
        }
        self._inputs: InputMarks | None = None
        if FROM_INPUT in streams.values():
            self._inputs = InputMarks(
                inputs, idle_ms=plan.idle_ms, interval_ms=interval_ms, now_ms=now_ms
            )
        self._sender = MarkSender(bolt, context, interval_ms, self._marks, self._pass_time)

    def _now_ms(self) -> int:
        return int(self._context.monotonic() * 1000)

    def seen(self, step: int, task: int, times: Sequence[Any], parts: Sequence[Any] | None) -> None:
        """Values of a task have passed a step that calls `event_time`, each of a part of the
        source."""
        if not times:
            return
        seen, lag_ms = self._seen[step], self._origins[step].lag_ms
        if parts is None:
            seen.heard((task, None), _latest(times) - lag_ms)
            return
        times_of: dict[Any, list[Any]] = {}
        for part, at in zip(parts, times, strict=True):
            times_of.setdefault(part, []).append(at)
        for part, some in times_of.items():
            # (A part may be called None, too.)
            seen.heard((task, (part,)), _latest(some) - lag_ms)

    def told(self, component: str, task: int, mark: Mark) -> None:
        """A mark has come."""
        if not mark.stream:  # the source has ended
            for seen in self._seen.values():
                seen.end(task)
        if self._inputs is not None:
            self._inputs.told(component, task, mark, self._now_ms())
        self._sender.send_soon()

    def _pass_time(self) -> None:
        now_ms = self._now_ms()
        for seen in self._seen.values():
            seen.pass_time(now_ms)
        if self._inputs is not None:
            self._inputs.pass_time(now_ms)

    def _marks(self) -> Iterable[Mark]:
        for stream, step in self._streams.items():
            if step == FROM_INPUT:
                inputs = self._inputs
                assert inputs is not None
                at_ms = inputs.at_ms(self._now_ms())
                yield Mark(stream, at_ms, inputs.lag_ms or 0, str(inputs.state))
            else:
                seen = self._seen[step]
                yield Mark(stream, seen.at_ms, self._origins[step].lag_ms, str(seen.state))


def _latest(times: Sequence[Any]) -> int:
    try:
        return millis_of(max(times))
    except TypeError:  # numbers and datetimes
        return max(map(millis_of, times))
