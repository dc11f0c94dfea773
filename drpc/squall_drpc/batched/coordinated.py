"""CoordinatedBolt: a bolt that is notified when it has processed all tuples of a request.

It wraps another bolt, which emits, acks and fails as usual; the first value of every tuple, in and
out, is the request's id. `coordination` decides; this module acts, with what every bolt has: the
task ids that `emit` returns, `emit_direct`, and the topology's context.

The *report* tuples of the previous step are held, neither acked nor failed, until the request ends
here. So its tuple tree stays open as long as any task waits for something, and a request that gets
stuck anywhere fails at the spout.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

from squall import Bolt, ShellBolt, Stream, TopologyContext, Tuple
from squall_common.component.collector import BoltCollector, DelegatingBoltCollector
from squall_common.component.component import Outputs
from squall_common.config.options.typed import TopologyOptions
from squall_common.errors import InvalidTopologyError
from squall_common.names import DEFAULT_STREAM
from squall_drpc.batched.coordination import Coordination, Ended, Verdict

COORDINATION_STREAM = "coordination"
ID_STREAM = "id"  # a request's id, to its home
ELSEWHERE_STREAM = "elsewhere"  # a request's id, to the tasks that are not its home


@runtime_checkable
class FinishedCallback(Protocol):
    """A bolt that is notified when it has processed every tuple of a request."""

    def finished_id(self, request_id: Any) -> None:
        """It may emit more tuples; an exception fails the request."""


@runtime_checkable
class TimeoutCallback(Protocol):
    """A bolt that is notified when a request failed or timed out, so that it can forget it."""

    def timeout_id(self, request_id: Any) -> None:
        """Forget what is kept of this request."""


class CoordinatedBolt(Bolt):
    """Wraps a bolt of one step (see `LinearDRPCTopologyBuilder`)."""

    auto_ack = False
    _collector: BoltCollector[Tuple]

    def __init__(
        self,
        delegate: Bolt,
        source: str | Mapping[str, bool] | None = None,
        *,
        all_report: bool = False,
        id_source: str | None = None,
        ticks: bool = False,
    ) -> None:
        """`source` is the previous step, None in the first. `all_report`: each task of it reports,
        not only the one that had the request. With several steps before, `source` maps each of them
        to that. `id_source` sends the ids of all requests. `ticks`: the delegate wants tick
        tuples."""
        if not isinstance(delegate, Bolt):
            raise InvalidTopologyError(f"{delegate!r} is not a Bolt")
        for method in ("execute_batch", "execute_columns"):
            if getattr(type(delegate), method) is not getattr(Bolt, method):
                raise InvalidTopologyError(
                    f"{type(delegate).__name__} defines {method}(), which gets several tuples: a "
                    "step of a linear DRPC topology has to define execute()"
                )
        if inspect.iscoroutinefunction(type(delegate).execute) is not isinstance(
            self, AsyncCoordinatedBolt
        ):
            raise InvalidTopologyError(
                f"{type(delegate).__name__} needs {coordinated_class(delegate).__name__}"
            )
        self._set_up(delegate, source, all_report=all_report, id_source=id_source, ticks=ticks)
        self.blocking = delegate.blocking

    def _set_up(
        self,
        delegate: Bolt | ShellBolt,
        source: str | Mapping[str, bool] | None,
        *,
        all_report: bool,
        id_source: str | None,
        ticks: bool,
    ) -> None:
        self.delegate: Any = delegate
        # The steps before this one; of each, whether all its tasks report.
        self._sources: Mapping[str, bool] = {}
        if source is not None:
            self._sources = {source: all_report} if isinstance(source, str) else source
        self._id_source = id_source
        self._ticks = ticks
        self.outputs: Outputs = {
            **_streams(delegate.outputs),
            COORDINATION_STREAM: Stream(["id", "count"], direct=True),
        }

    def prepare(self, conf: Mapping[str, Any], context: TopologyContext) -> Any:
        tasks = {source: context.component_tasks(source) for source in self._sources}
        options = TopologyOptions.read(conf)
        self.coordination = Coordination(
            sources=[task for own in tasks.values() for task in own],
            reports=sum(len(own) if self._sources[one] else 1 for one, own in tasks.items()),
            needs_id=self._id_source is not None,
            timeout_secs=options.topology_message_timeout_secs,
        )
        self._report_to = [
            task
            for consumer in context.this_targets.get(COORDINATION_STREAM, ())
            for task in context.component_tasks(consumer)
        ]
        # Time is counted in ticks: a bolt has no other clock, and none would be more exact here.
        self._tick_secs = options.topology_tick_tuple_freq_secs or math.inf
        self._now = 0.0
        self._trigger: Tuple | None = None
        self._kinds = {(source, COORDINATION_STREAM): self._on_report for source in self._sources}
        if self._id_source is not None:
            self._kinds[self._id_source, ID_STREAM] = self._on_home
            self._kinds[self._id_source, ELSEWHERE_STREAM] = self._on_elsewhere
        return self._prepare_delegate(conf, context)

    def _prepare_delegate(self, conf: Mapping[str, Any], context: TopologyContext) -> Any:
        self.delegate._bind(Collector(self), context)
        return self.delegate.prepare(conf, context)

    def execute(self, tup: Tuple) -> None:
        if self._takes(tup):
            try:
                self.delegate.execute(tup)
            except Exception as error:
                self.failed_by(tup, error)
            else:
                self.worked_on(tup)

    def cleanup(self) -> Any:
        return self.delegate.cleanup()

    # ---- input ----

    def _takes(self, tup: Tuple) -> bool:
        """Whether this tuple is for the delegate; all others are handled here."""
        if tup.is_tick:
            self._on_tick()
            if not self._ticks:
                self.ack(tup)
            return self._ticks
        kind = self._kinds.get((tup.source_component, tup.source_stream))
        if kind is not None:
            kind(tup)
            return False
        if self.coordination.arrived(tup[0], self._now) is Verdict.LATE:
            self.fail(tup)
            return False
        return True

    def _on_report(self, tup: Tuple) -> None:
        request, count = tup.values
        self._act_on_held(
            tup,
            self.coordination.reported(request, tup.source_task, count, self._now, tup),
        )

    def _on_home(self, tup: Tuple) -> None:
        self._act_on_held(tup, self.coordination.id_came(tup[0], True, self._now, tup))

    def _on_elsewhere(self, tup: Tuple) -> None:
        self._act_on_held(tup, self.coordination.id_came(tup[0], False, self._now, tup))

    def _act_on_held(self, tup: Tuple, verdict: Verdict) -> None:
        if verdict is Verdict.LATE:
            self.fail(tup)
        elif verdict is Verdict.COMPLETE:
            self._finish(tup)

    def _on_tick(self) -> None:
        self._now += self._tick_secs
        for ended in self.coordination.expire(self._now):
            self._clean_up(ended)

    def worked_on(self, tup: Tuple) -> None:
        """The delegate's `execute` has returned."""
        if self.delegate.auto_ack and not getattr(tup, "settled", False):
            self.ack_for_delegate(tup)

    def failed_by(self, tup: Tuple, error: Exception) -> None:
        """The delegate's `execute` has raised."""
        if not getattr(tup, "settled", False):
            self.fail_for_delegate(tup)
        self.report_error(error)

    # ---- calls of the delegate ----

    def ack_for_delegate(self, tup: Tuple) -> None:
        """Ack a tuple that the delegate has processed."""
        if tup.is_tick:
            self.ack(tup)
            return
        verdict = self.coordination.settled(tup[0], tup.source_task, self._now)
        if verdict is Verdict.COMPLETE:
            self._finish(tup)
        if getattr(tup, "settled", False):
            return  # failed while it finished
        if verdict is Verdict.LATE:
            self.fail(tup)
        else:
            self.ack(tup)

    def fail_for_delegate(self, tup: Tuple) -> None:
        """Fail a tuple that the delegate could not process, and its request."""
        if not tup.is_tick:
            self._fail_request(tup[0])
        if not getattr(tup, "settled", False):
            self.fail(tup)

    def emitted(self, values: Sequence[Any], tasks: Sequence[int]) -> None:
        """Count a tuple that the delegate has sent to these tasks."""
        if values:
            self.coordination.sent(values[0], tasks)

    def anchors_of(self, given: Tuple | Iterable[Tuple] | None) -> Tuple | Iterable[Tuple] | None:
        """In `finished_id` the tuple that completed the request stands for all of it."""
        if given is not None or self._trigger is None:
            return () if given is None and not self.delegate.auto_anchor else given
        return (self._trigger,)

    # ---- ends ----

    def _finish(self, trigger: Tuple) -> None:
        request = trigger[0]
        before, self._trigger = self._trigger, trigger
        try:
            if self.coordination.strayed(request):
                raise ValueError(
                    f"tuples of a request went to task {self.context.this_task_id} of the last "
                    "step, but its id to another: group the last step by fields, on the id alone"
                )
            if self.coordination.is_home(request) and isinstance(self.delegate, FinishedCallback):
                self.delegate.finished_id(request)
            done = self.coordination.finish(request)
            if done is None:
                return  # failed by the delegate
            for task in self._report_to:
                self.emit_direct(
                    task,
                    [request, done.counts.get(task, 0)],
                    anchors=(trigger,),
                    stream=COORDINATION_STREAM,
                )
            for held in done.held:
                self.ack(held)
        except Exception as error:
            self._fail_request(request)
            if not getattr(trigger, "settled", False):
                self.fail(trigger)
            self.report_error(error)
        finally:
            self._trigger = before

    def _fail_request(self, request: Any) -> None:
        ended = self.coordination.failed(request, self._now)
        if ended is not None:
            self._clean_up(ended)

    def _clean_up(self, ended: Ended) -> None:
        for held in ended.held:
            if not getattr(held, "settled", False):
                self.fail(held)
        if isinstance(self.delegate, TimeoutCallback):
            try:
                self.delegate.timeout_id(ended.id)
            except Exception as error:
                self.report_error(error)


class AsyncCoordinatedBolt(CoordinatedBolt):
    """The same for a bolt with `async def execute`."""

    async def execute(self, tup: Tuple) -> None:  # type: ignore[override]
        if self._takes(tup):
            try:
                await self.delegate.execute(tup)
            except Exception as error:
                self.failed_by(tup, error)
            else:
                self.worked_on(tup)


def coordinated_class(delegate: Bolt) -> type[CoordinatedBolt]:
    """The one of the two classes that a bolt needs."""
    is_async = inspect.iscoroutinefunction(type(delegate).execute)
    return AsyncCoordinatedBolt if is_async else CoordinatedBolt


class Collector(DelegatingBoltCollector[Tuple]):
    """The delegate's collector: counts what the delegate emits, and notes what it acks and fails.
    Made once the coordinated bolt is bound."""

    def __init__(self, bolt: CoordinatedBolt) -> None:
        super().__init__(bolt._collector)
        self._bolt = bolt

    def emit(
        self,
        values: Sequence[Any],
        anchors: Tuple | Iterable[Tuple] | None = None,
        stream: str = DEFAULT_STREAM,
    ) -> Sequence[int]:
        bolt = self._bolt
        tasks = self._inner.emit(values, bolt.anchors_of(anchors), stream)
        bolt.emitted(values, tasks)
        return tasks

    def emit_direct(
        self,
        task: int,
        values: Sequence[Any],
        anchors: Tuple | Iterable[Tuple] | None = None,
        stream: str = DEFAULT_STREAM,
    ) -> Sequence[int]:
        bolt = self._bolt
        tasks = self._inner.emit_direct(task, values, bolt.anchors_of(anchors), stream)
        bolt.emitted(values, tasks)
        return tasks

    def ack(self, tup: Tuple) -> None:
        self._bolt.ack_for_delegate(tup)

    def fail(self, tup: Tuple) -> None:
        self._bolt.fail_for_delegate(tup)


def _streams(outputs: Outputs) -> dict[str, Sequence[str] | Stream]:
    if isinstance(outputs, Mapping):
        return dict(outputs)
    return {DEFAULT_STREAM: outputs} if outputs else {}
