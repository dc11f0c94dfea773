"""What a worker may use, and when it uses too much."""

from typing import Any

import pytest

from squall_common.config.options.typed import TopologyOptions
from squall_common.topology.model import Component, ComponentKind, Executor, ShellObject, Topology
from squall_common.topology.prepared import prepare
from squall_supervisor.confine.limits import MIB, MemoryGuard, Verdict, WorkerLimits, worker_limits

ON_HEAP = "topology.component.resources.onheap.memory.mb"
OFF_HEAP = "topology.component.resources.offheap.memory.mb"
CPU = "topology.component.cpu.pcore.percent"
OF_WORKER = "topology.worker.max.heap.size.mb"
CONF: dict[str, Any] = {
    ON_HEAP: 128.0, OFF_HEAP: 0.0, CPU: 10.0, OF_WORKER: None, "topology.acker.executors": 0,
}  # fmt: skip


def topology(*, bolt: dict[str, Any], spout: dict[str, Any] | None = None) -> Topology:
    """A bolt "a" of tasks 1 to 4, and a spout "b" of task 5."""
    shell = ShellObject("python3", "x.py")
    return Topology(
        {
            "a": Component("a", ComponentKind.BOLT, shell, parallelism=4, conf=bolt),
            "b": Component("b", ComponentKind.SPOUT, shell, parallelism=1, conf=spout or {}),
        }
    )


def limits(
    made: Topology | None, *executors: Executor, conf: dict[str, Any] | None = None, **node: Any
) -> WorkerLimits:
    node.setdefault("node_memory_mb", None)
    merged = {**CONF, **(conf or {})}
    prepared = None if made is None else prepare(made, merged)
    return worker_limits(prepared, TopologyOptions.read(merged), executors, **node)


def test_a_worker_without_declarations_has_no_limit() -> None:
    assert limits(topology(bolt={}), Executor(1, 5)) == WorkerLimits()
    assert limits(None) == WorkerLimits()


def test_the_workers_own_limit_comes_first() -> None:
    made = topology(bolt={ON_HEAP: 64})
    found = limits(made, Executor(1, 1), conf={OF_WORKER: 512}, node_memory_mb=100.0)
    assert (found.memory_mb, found.memory_key) == (512.0, OF_WORKER)


def test_declarations_of_tasks_are_summed_and_others_count_with_the_default() -> None:
    made = topology(bolt={ON_HEAP: 64, OFF_HEAP: 36})
    assert limits(made, Executor(1, 3), Executor(5, 5)).memory_mb == 3 * 100 + 128
    assert limits(made, Executor(5, 5)).memory_mb == 128  # one that declares nothing


def test_the_nodes_limit_applies_to_workers_without_declarations() -> None:
    found = limits(topology(bolt={}), Executor(1, 1), node_memory_mb=300.0)
    assert (found.memory_mb, found.memory_key) == (300.0, "worker.heap.memory.mb")
    made = topology(bolt={OFF_HEAP: 1})
    assert limits(made, Executor(1, 1), node_memory_mb=300.0).memory_mb == 129


def test_zero_counts_as_not_declared() -> None:
    made = topology(bolt={ON_HEAP: 0, OFF_HEAP: 36, CPU: 0})
    found = limits(made, Executor(1, 2), conf={ON_HEAP: 100.0})
    assert (found.memory_mb, found.cpu_percent) == (2 * 136, None)
    assert limits(topology(bolt={ON_HEAP: 0}), Executor(1, 2)) == WorkerLimits()


def test_what_a_component_declares_counts_even_if_it_is_the_default() -> None:
    made = topology(bolt={ON_HEAP: 128.0})
    assert limits(made, Executor(1, 2), conf={ON_HEAP: 64.0}).memory_mb == 2 * 128


def test_cpu_is_by_executor_and_has_a_minimum() -> None:
    made = topology(bolt={CPU: 30})
    assert limits(made, Executor(1, 2), Executor(3, 4), Executor(5, 5)).cpu_percent == 70
    assert limits(made, Executor(1, 2), cpu_percent_min=50.0).cpu_percent == 50
    assert limits(topology(bolt={}), Executor(1, 2), cpu_percent_min=50.0).cpu_percent is None


def test_unknown_executors_are_ignored() -> None:
    made = topology(bolt={ON_HEAP: 64, CPU: 30})
    assert limits(made, Executor(90, 95)) == WorkerLimits()


def guard(mb: float = 100, key: str = OF_WORKER) -> MemoryGuard:
    return MemoryGuard(WorkerLimits(mb, key), margin_mb=20, hard_multiplier=2.0)


def test_a_peak_is_tolerated_and_lasting_excess_is_not() -> None:
    watch = guard()
    looks = [100, 120, 121, 120, 121, 121, 130]
    verdicts = [watch.look(mb * MIB) for mb in looks]
    assert verdicts == [Verdict.FINE] * 5 + [Verdict.OVER] * 2


def test_far_too_much_memory_is_acted_on_at_once() -> None:
    watch = guard()
    assert watch.look(220 * MIB) is Verdict.FINE
    assert watch.look(220 * MIB + 1) is Verdict.FAR_OVER
    assert guard().look(220 * MIB + 1) is Verdict.FAR_OVER


@pytest.mark.parametrize(
    ("key", "advice"),
    [
        (OF_WORKER, "raise topology.worker.max.heap.size.mb"),
        (ON_HEAP, "declare more"),
        ("worker.heap.memory.mb", "set topology.worker.max.heap.size.mb, or raise worker.heap"),
    ],
)
def test_the_message_says_where_how_much_and_what_to_do(key: str, advice: str) -> None:
    said = guard(512, key).explain("node1:6700", 812 * MIB)
    assert said.startswith("worker node1:6700 used 812 MB; its limit is 512 MB")
    assert advice in said


def test_no_topology_declares_itself_beyond_what_the_supervisor_allows() -> None:
    most: dict[str, Any] = {"memory_mb_max": 200.0, "cpu_percent_max": 60.0}
    key = "worker.max.memory.mb"
    greedy = topology(bolt={ON_HEAP: 4096, CPU: 800})
    for found in (
        limits(greedy, Executor(1, 4), **most),
        limits(topology(bolt={}), Executor(1, 1), conf={OF_WORKER: 90_000}, **most),
        limits(topology(bolt={}), Executor(1, 1), **most),  # one that declares nothing
        limits(None, **most),
    ):
        assert (found.memory_mb, found.memory_key, found.cpu_percent) == (200.0, key, 60.0)
    modest = topology(bolt={ON_HEAP: 64, CPU: 20})
    found = limits(modest, Executor(1, 2), **most)
    assert (found.memory_mb, found.memory_key, found.cpu_percent) == (128.0, ON_HEAP, 20.0)
    guard = MemoryGuard(limits(greedy, Executor(1, 4), **most), margin_mb=0, hard_multiplier=2)
    assert "raise worker.max.memory.mb of the supervisor" in guard.explain("h:1", 500 * MIB)
