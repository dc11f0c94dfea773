"""Hooks: code that is called about what tasks and workers do, without being a part of the topology.

    TaskHook     about one task: what it emits, executes, acks and fails
    WorkerHook   when a worker starts and when it ends

Task hooks are listed by class in `topology.auto.task.hooks`, and then each task of the topology has
one object of each class; a component may also add one with `context.add_task_hook`. Worker hooks
are added with `TopologyBuilder.add_worker_hook`. The names are Storm's, in Python's style.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from squall_common.component.constructed import RecordsConstruction
from squall_common.component.tuples import Tuple

if TYPE_CHECKING:
    from squall_common.component.context import TopologyContext, WorkerTopologyContext


@dataclass(frozen=True, slots=True)
class EmitInfo:
    """A task emitted a tuple. `out_tasks` are the tasks that receive it; None if it was one of many
    in a call of `emit_columns`, which does not return them."""

    values: Sequence[Any]
    stream: str
    task_id: int
    out_tasks: Sequence[int] | None


@dataclass(frozen=True, slots=True)
class SpoutAckInfo:
    """A message was acked. `complete_latency_ms`: since the spout emitted it; None if unknown."""

    message_id: Any
    spout_task_id: int
    complete_latency_ms: float | None


@dataclass(frozen=True, slots=True)
class SpoutFailInfo:
    """A message failed or timed out. `fail_latency_ms`: since the spout emitted it; None if
    unknown."""

    message_id: Any
    spout_task_id: int
    fail_latency_ms: float | None


@dataclass(frozen=True, slots=True)
class BoltExecuteInfo:
    """A bolt executed a tuple, or was given it (a shell bolt). `execute_latency_ms`: how long the
    call took; of a batch, its share of the call."""

    tuple: Tuple
    executing_task_id: int
    execute_latency_ms: float


@dataclass(frozen=True, slots=True)
class BoltAckInfo:
    """A bolt acked a tuple. `process_latency_ms`: since it began to execute it; None if unknown."""

    tuple: Tuple
    acking_task_id: int
    process_latency_ms: float | None


@dataclass(frozen=True, slots=True)
class BoltFailInfo:
    """A bolt failed a tuple. `fail_latency_ms`: since it began to execute it; None if unknown."""

    tuple: Tuple
    failing_task_id: int
    fail_latency_ms: float | None


class TaskHook:
    """Sees what one task does. A subclass defines the methods that it needs; only these are called.

        class Slow(TaskHook):
            def prepare(self, conf, context):
                self.slow = context.counter("slow-tuples")

            def bolt_execute(self, info):
                if info.execute_latency_ms > 100:
                    self.slow.inc()

    It is called on the thread of its task, between the component's own calls, so it must be quick.
    An error that it raises is reported as an error of its task and changes nothing else: the tuple
    goes its way. (With `topology.bolt.die.on.error` the worker ends, as for any other error.)
    """

    def prepare(self, conf: Mapping[str, Any], context: TopologyContext) -> None:
        """Called once, before any other method and before the component's `open` or `prepare`. An
        exception ends the worker."""

    def cleanup(self) -> None:
        """Called at a graceful stop, after the component's `close` or `cleanup`."""

    def emit(self, info: EmitInfo) -> None:
        """The task emitted a tuple."""

    def spout_ack(self, info: SpoutAckInfo) -> None:
        """A message of this spout was acked; its `ack` has been called."""

    def spout_fail(self, info: SpoutFailInfo) -> None:
        """A message of this spout failed; its `fail` has been called."""

    def bolt_execute(self, info: BoltExecuteInfo) -> None:
        """The bolt executed a tuple, or raised an error instead. Its ack, if it is automatic, comes
        after this."""

    def bolt_ack(self, info: BoltAckInfo) -> None:
        """The bolt acked a tuple."""

    def bolt_fail(self, info: BoltFailInfo) -> None:
        """The bolt failed a tuple, or it failed because the bolt raised an error."""


class WorkerHook(RecordsConstruction):
    """Is called when a worker starts and when it ends.

        class Database(WorkerHook):
            def __init__(self, url):
                self.url = url

            def start(self, conf, context):
                context.resources["database"] = connect(self.url)

            def shutdown(self):
                ...

        builder.add_worker_hook(Database("postgresql://..."))

    Like a component, it is constructed anew in each worker, from the arguments of its constructor.
    """

    def start(self, conf: Mapping[str, Any], context: WorkerTopologyContext) -> Any:
        """Called once in each worker, before its components are constructed. `context.resources`
        is a dict that all its tasks share. An exception ends the worker. May be `async def`."""

    def shutdown(self) -> Any:
        """Called at a graceful stop, after the components' `close` and `cleanup`, but not if the
        worker is killed. An exception is reported. May be `async def`."""
