"""How large a topology may be: what the administrator allows, and what fits into its assignment.

An assignment is one znode, which holds up to NODE_BYTES_MAX. It is written gzipped, and how well it
compresses depends on where executors run, which later rounds change. So its size is measured in the
worst order: every executor on a slot drawn at random, with its own start time. An assignment that
fits then always fits, and a topology whose assignment does not is refused before anything is
written: a topology that was accepted can always be moved.
"""

from __future__ import annotations

import random
from collections.abc import Iterable

from squall_common.cluster import codec
from squall_common.cluster.store import NODE_BYTES_MAX
from squall_common.cluster.values import Assignment
from squall_common.config.options.typed import NimbusOptions
from squall_common.config.schema import TASKS_MAX
from squall_common.topology.model import Executor, WorkerSlot

# The StormBase travels in the same transaction; and other node ids may compress a little worse.
_ASSIGNMENT_BYTES_MAX = NODE_BYTES_MAX - 100_000
# With fewer executors, every assignment fits: one takes some 110 bytes before gzip.
_ALWAYS_FITS = 4_000
_ID_CHARS, _HOST_CHARS = 36, 64  # of a node's id (a UUID) and of a long host name
_SAMPLE = 4_000
_HEX = "0123456789abcdef"
_START_SECS = 10**8  # start times lie within three years


def size_problems(nimbus: NimbusOptions, workers: int, executors: int) -> list[str]:
    """List what is wrong with a topology of this size, including system executors. Takes some
    0.2 s when it encodes, so do not call it on an event loop."""
    problems = [*_allowed(nimbus, workers, executors)]
    if not problems and executors > TASKS_MAX:
        problems.append(f"the topology asks for {executors} executors; the limit is {TASKS_MAX}")
    if not problems and executors > _ALWAYS_FITS:
        size = worst_assignment_bytes(executors, workers)
        if size > _ASSIGNMENT_BYTES_MAX:
            problems.append(
                f"the assignment of {executors} executors to {workers} workers can take {size} "
                f"bytes in ZooKeeper; the limit is {_ASSIGNMENT_BYTES_MAX}: ask for fewer "
                "executors (several tasks may share one: topology.tasks) or fewer workers"
            )
    return problems


def _allowed(nimbus: NimbusOptions, workers: int, executors: int) -> Iterable[str]:
    for key, limit, what, asked in (
        ("nimbus.slots.perTopology", nimbus.nimbus_slots_per_topology, "workers", workers),
        (
            "nimbus.executors.perTopology",
            nimbus.nimbus_executors_per_topology,
            "executors",
            executors,
        ),
    ):
        if limit is not None and asked > limit:
            yield f"the topology asks for {asked} {what}; this cluster allows {limit} ({key})"


def worst_assignment_bytes(executors: int, workers: int) -> int:
    """Return the size of the stored assignment if it compresses badly; the same for the same
    numbers. Only a part of it is encoded, since in this order all parts compress alike."""
    draw = random.Random(0)
    workers = min(workers, executors)  # there is no worker without executors
    nodes = ["".join(draw.choices(_HEX, k=_ID_CHARS)) for _ in range(min(workers, _SAMPLE))]
    host_of = {node: "".join(draw.choices(_HEX, k=_HOST_CHARS)) for node in nodes}
    placed = [Executor(task, task) for task in range(1, min(executors, _SAMPLE) + 1)]
    slots = [WorkerSlot(node, draw.randrange(1, 65_536)) for node in nodes]
    by_executor = Assignment(
        master_code_dir="",
        executor_slot={executor: draw.choice(slots) for executor in placed},
        executor_start_time_secs={executor: draw.randrange(_START_SECS) for executor in placed},
    )
    executors_bytes = len(codec.encode_assignment(by_executor)) * executors / len(placed)
    hosts_bytes = len(codec.encode_assignment(Assignment("", host_of))) * workers / len(nodes)
    return int(executors_bytes + hosts_bytes)
