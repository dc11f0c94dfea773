"""How much memory and CPU a worker may use, from what its topology declares. Pure.

The memory limit is the first of these that is set: `topology.worker.max.heap.size.mb`; the sum of
what the worker's tasks declare (`topology.component.resources.*.memory.mb`), if any component of
the topology declares it itself; `worker.heap.memory.mb` of the supervisor; none. That of CPU is the
sum of what its executors declare (`topology.component.cpu.pcore.percent`), if any component does.
Neither is above what the supervisor allows (`worker.max.memory.mb`,
`worker.max.cpu.pcore.percent`), which is also the limit of workers without any.

A worker is over its limit when the memory of its processes together exceeds the limit plus a
tolerance, which leaves room for the interpreter itself. A worker that is over it at two looks in a
row is drained and restarted; one over twice the limit is killed at the first look.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable
from dataclasses import dataclass

from squall_common.config.options.typed import TopologyOptions
from squall_common.topology.model import Executor
from squall_common.topology.prepared import PreparedTopology

MIB = 1024 * 1024

_ON_HEAP = "topology.component.resources.onheap.memory.mb"
_OF_WORKER = "topology.worker.max.heap.size.mb"
_OF_NODE = "worker.heap.memory.mb"
_MOST_OF_NODE = "worker.max.memory.mb"


@dataclass(frozen=True, slots=True)
class WorkerLimits:
    """`memory_mb` and `cpu_percent` (of one core): None means no limit. `memory_key` is the option
    that set the memory limit."""

    memory_mb: float | None = None
    memory_key: str = ""
    cpu_percent: float | None = None


NO_LIMITS = WorkerLimits()


# Zero counts as not declared, for a component as for a topology.
_UNDECLARED = TopologyOptions(
    topology_component_resources_onheap_memory_mb=0.0,
    topology_component_resources_offheap_memory_mb=0.0,
    topology_component_cpu_pcore_percent=0.0,
)


@dataclass(frozen=True, slots=True)
class _Declared:
    """What one task or executor of a component may use; `memory_itself` and `cpu_itself`: the
    component declares it, not only the topology for all."""

    memory_mb: float
    cpu_percent: float
    memory_itself: bool
    cpu_itself: bool

    @classmethod
    def of(cls, own: TopologyOptions, shared: TopologyOptions) -> _Declared:
        on_heap = own.topology_component_resources_onheap_memory_mb
        off_heap = own.topology_component_resources_offheap_memory_mb
        cpu = own.topology_component_cpu_pcore_percent
        return cls(
            memory_mb=(on_heap or shared.topology_component_resources_onheap_memory_mb)
            + (off_heap or shared.topology_component_resources_offheap_memory_mb),
            cpu_percent=cpu or shared.topology_component_cpu_pcore_percent,
            memory_itself=on_heap > 0 or off_heap > 0,
            cpu_itself=cpu > 0,
        )


def worker_limits(
    prepared: PreparedTopology | None,
    options: TopologyOptions,
    executors: Iterable[Executor],
    *,
    node_memory_mb: float | None,
    cpu_percent_min: float = 0.0,
    memory_mb_max: float | None = None,
    cpu_percent_max: float | None = None,
) -> WorkerLimits:
    """The limits of a worker that runs these executors. `options` are the topology's; without a
    `prepared`, only they count."""
    memory, key = options.topology_worker_max_heap_size_mb, _OF_WORKER
    cpu = None
    if prepared is not None:
        declared = {
            # Of the system's own components, other options may be invalid.
            name: _Declared.of(TopologyOptions.read_valid(one.conf, over=_UNDECLARED), options)
            for name, one in prepared.topology.components.items()
        }
        tasks = prepared.task_to_component
        ranges = list(executors)
        if not memory and any(one.memory_itself for one in declared.values()):
            ours = (tasks[task] for executor in ranges for task in executor.tasks if task in tasks)
            memory, key = sum(declared[one].memory_mb for one in ours), _ON_HEAP
        if any(one.cpu_itself for one in declared.values()):
            firsts = (tasks[one.task_start] for one in ranges if one.task_start in tasks)
            cpu = sum(declared[one].cpu_percent for one in firsts)
            cpu = max(cpu, cpu_percent_min) or None
    if not memory:
        memory, key = node_memory_mb, _OF_NODE
    if memory_mb_max is not None and (not memory or memory > memory_mb_max):
        memory, key = memory_mb_max, _MOST_OF_NODE
    if cpu_percent_max is not None:
        cpu = min(cpu or cpu_percent_max, cpu_percent_max)
    return WorkerLimits(memory or None, key if memory else "", cpu)


class Verdict(enum.Enum):
    """What a look at a worker's memory says."""

    FINE = "within the limit"
    OVER = "over the limit for long enough: restart it"
    FAR_OVER = "over twice the limit: end it now"


# A worker that is over its limit at this many looks in a row is restarted.
_LOOKS = 2


class MemoryGuard:
    """Judges one worker's memory, look after look."""

    def __init__(self, limits: WorkerLimits, *, margin_mb: float, hard_multiplier: float) -> None:
        assert limits.memory_mb is not None
        self.limit_bytes = limits.memory_mb * MIB
        self.soft_bytes = self.limit_bytes + margin_mb * MIB
        self.hard_bytes = self.limit_bytes * max(hard_multiplier, 1.0) + margin_mb * MIB
        self._limits = limits
        self._margin_mb = margin_mb
        self._over = 0

    def look(self, used_bytes: int) -> Verdict:
        if used_bytes <= self.soft_bytes:
            self._over = 0
            return Verdict.FINE
        self._over += 1
        if used_bytes > self.hard_bytes:
            return Verdict.FAR_OVER
        return Verdict.OVER if self._over >= _LOOKS else Verdict.FINE

    def explain(self, worker: str, used_bytes: int) -> str:
        """The message for people; `worker` is HOST:PORT."""
        used = f"used {used_bytes / MIB:.0f} MB"
        return _story(worker, used, self._limits, self._margin_mb, "It is restarted; if")


def explain_kill(worker: str, limits: WorkerLimits, margin_mb: float) -> str:
    """The message if the kernel has ended a process of a worker's cgroup."""
    what = "had a process ended by the kernel because its cgroup ran out of memory"
    return _story(worker, what, limits, margin_mb, "If")


def _story(worker: str, what: str, limits: WorkerLimits, margin_mb: float, then: str) -> str:
    if limits.memory_mb is None:
        return f"worker {worker} {what}"
    tolerance = f" (with a tolerance of {margin_mb:.0f} MB)" if margin_mb else ""
    advice = {
        _OF_WORKER: f"raise {_OF_WORKER}",
        _MOST_OF_NODE: f"raise {_MOST_OF_NODE} of the supervisor",
        _ON_HEAP: f"declare more ({_ON_HEAP} of its components), or set {_OF_WORKER}",
    }.get(limits.memory_key, f"set {_OF_WORKER}, or raise {_OF_NODE} of the supervisor")
    return (
        f"worker {worker} {what}; its limit is {limits.memory_mb:.0f} MB{tolerance}. {then} it "
        f"needs that much, {advice}."
    )
