"""Which workers this one keeps a link to, and which of their ends are a loss. Pure.

A worker that leaves the assignment may be draining: its link is kept until it says goodbye, at
most `grace_secs`. One that ends otherwise, or whose link ends with frames that it never took, is
*lost*: the pending roots that went through its tasks are failed, so that they are replayed now and
not at the message timeout.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from squall_common.topology.model import WorkerSlot
from squall_worker.transport.link_table import Event, Left, Replaced


@dataclass(frozen=True, slots=True)
class _Leaving:
    tasks: frozenset[int]
    deadline: float
    said_goodbye: bool


class Membership:
    """The present workers, and those that are leaving."""

    def __init__(self, grace_secs: float) -> None:
        self._grace_secs = grace_secs
        self._present: dict[WorkerSlot, frozenset[int]] = {}
        self._leaving: dict[WorkerSlot, _Leaving] = {}
        self._left: set[WorkerSlot] = set()  # present ones whose incarnation has said goodbye
        # Tasks of present ones before the assignment changed: their incarnation may still run them.
        self._former: dict[WorkerSlot, frozenset[int]] = {}
        self._ended: set[WorkerSlot] = set()  # whose worker is gone and not replaced

    @property
    def slots(self) -> frozenset[WorkerSlot]:
        """Every worker that needs a link."""
        return frozenset(self._present) | frozenset(self._leaving)

    @property
    def present(self) -> frozenset[WorkerSlot]:
        """The workers of the assignment."""
        return frozenset(self._present)

    def assigned(self, tasks_by_slot: Mapping[WorkerSlot, frozenset[int]], now: float) -> None:
        """Take a new assignment: the other workers with their tasks."""
        for slot in self._present:
            tasks = self._tasks(slot)
            if slot not in tasks_by_slot:
                deadline = now + self._grace_secs
                self._leaving[slot] = _Leaving(tasks, deadline, slot in self._left)
                self._former.pop(slot, None)
            elif tasks != tasks_by_slot[slot]:
                self._former[slot] = tasks
        for slot in tasks_by_slot:
            self._leaving.pop(slot, None)
        self._present = dict(tasks_by_slot)
        self._left &= self._present.keys()
        self._ended &= self._present.keys()

    def happened(self, event: Event) -> frozenset[int]:
        """Take an event of a link; returns the tasks that were lost by it."""
        if isinstance(event, Replaced):
            self._left.discard(event.peer)
            self._ended.discard(event.peer)
            tasks = self._tasks(event.peer)
            self._former.pop(event.peer, None)
            if not event.left:
                return tasks
        elif isinstance(event, Left):
            leaving = self._leaving.get(event.peer)
            if leaving is not None:
                self._leaving[event.peer] = _Leaving(leaving.tasks, leaving.deadline, True)
            elif event.peer in self._present:
                self._left.add(event.peer)
            if not event.drained:
                return self._tasks(event.peer)
        return frozenset()

    def ended(self, slot: WorkerSlot) -> frozenset[int]:
        """A worker is gone without a goodbye; returns the tasks that were lost by it. Anything sent
        to it since is lost when the next one greets."""
        if slot not in self._present or slot in self._ended or slot in self._left:
            return frozenset()
        self._ended.add(slot)
        return self._tasks(slot)

    def expire(self, now: float, backlog_bytes: Callable[[WorkerSlot], int]) -> frozenset[int]:
        """Forget the leaving workers that have said goodbye or whose time is up; returns the tasks
        that were lost by it."""
        lost: set[int] = set()
        for slot, leaving in list(self._leaving.items()):
            if leaving.said_goodbye or now >= leaving.deadline:
                del self._leaving[slot]
                if not leaving.said_goodbye or backlog_bytes(slot) > 0:
                    lost |= leaving.tasks
        return frozenset(lost)

    def deadline(self) -> float:
        """When `expire` is next worth calling."""
        return min((one.deadline for one in self._leaving.values()), default=float("inf"))

    def _tasks(self, slot: WorkerSlot) -> frozenset[int]:
        leaving = self._leaving.get(slot)
        if leaving is not None:
            return leaving.tasks
        return self._present.get(slot, frozenset()) | self._former.get(slot, frozenset())
