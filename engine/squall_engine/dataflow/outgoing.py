"""The outgoing edges of a worker's tasks, and where they lead."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol

from squall_common.names import MARK_STREAM, is_system_id
from squall_common.topology.model import WorkerSlot
from squall_engine.backpressure.credit import Allowance
from squall_engine.core import Batch, Edge, Outbox
from squall_engine.dataflow.remote import Outbound
from squall_engine.plan import Plan
from squall_engine.tasks.base import NO_LOCK, Task
from squall_engine.tasks.bolt import BoltTask


class TupleBuffer(Protocol):
    """Tuples on their way to one task: an edge, or an object in its place (see
    `Flow.wrap_edges`)."""

    def __len__(self) -> int: ...
    def take(self) -> Batch: ...
    def drop_oldest(self, keep: int) -> None: ...


class OutgoingEdge:
    """An edge, its target, and the credit for it."""

    __slots__ = (
        "_edge", "_from_core", "allowance", "component", "droppable", "inner", "outbound", "rest",
        "sent_bytes",
        "slot", "stream", "target", "task", "tuple_bytes",
    )  # fmt: skip

    def __init__(self, edge: Edge, target: BoltTask | None, *, inner: bool) -> None:
        self._from_core = edge
        self.task: int = edge.task
        self.component: str = edge.source.component
        self.stream: str = edge.source.stream
        self.target = target  # None: on another worker
        self.inner = inner  # within a cycle
        # Metrics and logged events never wait: without room they are dropped, and counted.
        self.droppable = is_system_id(self.stream) and self.stream != MARK_STREAM
        self.slot: WorkerSlot | None = None
        self.outbound: Outbound | None = None  # of the slot
        self.allowance: Allowance | None = None  # None: on this worker, or the worker is unknown
        self.rest: Batch | None = None  # taken from the edge, but there was no more credit
        self.tuple_bytes = 256  # credit for one tuple, by the last section
        self.sent_bytes = 0  # to another worker, since this one began
        self.edge = edge

    @property
    def edge(self) -> TupleBuffer:
        """Where emitted tuples wait: the core's edge, or an object in its place."""
        return self._edge

    @edge.setter
    def edge(self, edge: TupleBuffer) -> None:
        self._edge: TupleBuffer = edge
        # Where nothing is to be decided about its tuples, the core delivers them by itself.
        direct = edge is self._from_core and not (self.inner or self.droppable)
        inbox = self.target.inbox if direct and self.target is not None else None
        self._from_core.inbox = inbox


class OutputGroup:
    """The outgoing edges of one task, or of several tasks that share them."""

    __slots__ = ("lock", "on_loop", "outbox", "outgoing_edges")

    def __init__(
        self,
        edges: Sequence[Edge],
        outgoing_edges: list[OutgoingEdge],
        lock: AbstractContextManager[Any],
    ) -> None:
        self.outgoing_edges = outgoing_edges
        self.outbox = Outbox(list(zip(edges, outgoing_edges, strict=True)))
        self.lock = lock  # of the task
        self.on_loop = lock is NO_LOCK


def output_groups(
    tasks: Sequence[Task], bolt_of: Mapping[int, BoltTask], plan: Plan
) -> dict[Task, OutputGroup]:
    """The output group of each task; tasks that share their edges have the same one. `bolt_of` has
    the bolts of this worker."""
    found: dict[Task, OutputGroup] = {}
    by_edge: dict[Edge, OutputGroup] = {}
    without: OutputGroup | None = None  # of the tasks on the loop that have no edges
    for task in tasks:
        # Tasks that share one edge share all: only the first of them looks at all.
        firsts = (output.first_edge for output in task.outputs)
        first = next((edge for edge in firsts if edge is not None), None)
        if first is not None:
            group = by_edge.get(first)
        else:
            group = without if task.lock is NO_LOCK else None
        if group is None:
            edges = [edge for output in task.outputs for edge in output.edges]
            outgoing_edges = [
                OutgoingEdge(
                    edge,
                    bolt_of.get(edge.task),
                    inner=plan.on_one_cycle(task.component, edge.task),
                )
                for edge in edges
            ]
            group = OutputGroup(edges, outgoing_edges, task.lock)
            by_edge |= dict.fromkeys(edges, group)
            if not edges and group.on_loop:
                without = group
        found[task] = group
    return found
