"""Key groups: the shares in which keyed state moves between tasks.

    key group = stable hash of the key % max_parallelism
    task      = key group * parallelism // max_parallelism

A task has a contiguous range of groups. With another number of tasks, whole groups move, and no
entry has to be looked at. The number of groups is fixed when a topology is submitted
(`topology.state.max.parallelism`), because it decides which group a key is in.

The *key* is the value of the field that the input is grouped by, or the tuple of the values of
several. A fields grouping into a bolt with key groups chooses tasks by these functions, so that a
tuple finds its state: `engine`'s routing lays its edges out by group.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from squall_common.component.groupings import stable_hash
from squall_common.topology.serialization import Registry

MAX_PARALLELISM_MIN = 128  # of those that nobody has set
MAX_PARALLELISM_MAX = 32_768
BOUND = -1
"""The group of entries that belong to no key, and so to their task: see `KeyedState`."""

_NO_REGISTRY = Registry()


def max_parallelism(tasks: int) -> int:
    """The number of key groups of a bolt that is submitted with so many tasks, if it is not
    configured: the most tasks that it can ever have."""
    wanted = tasks + tasks // 2
    rounded = 1 << max(0, wanted - 1).bit_length()
    return max(tasks, min(MAX_PARALLELISM_MAX, max(MAX_PARALLELISM_MIN, rounded)))


def key_group(key: Any, max_parallelism: int, registry: Registry = _NO_REGISTRY) -> int:
    """The group of a key, from 0 to `max_parallelism` - 1. Raises NoStableHashError for a value of
    a type that a fields grouping cannot hash."""
    return stable_hash(key, registry) % max_parallelism


def task_of_group(group: int, parallelism: int, max_parallelism: int) -> int:
    """The index, among the tasks of its component, of the task that has a group."""
    return group * parallelism // max_parallelism


def groups_of_task(index: int, parallelism: int, max_parallelism: int) -> range:
    """The groups of the task with an index from 0 to `parallelism` - 1. Raises ValueError if there
    are fewer groups than tasks, or no such task."""
    if not 0 <= index < parallelism <= max_parallelism:
        raise ValueError(
            f"task {index} of {parallelism} cannot have any of {max_parallelism} key groups"
        )
    start = -(-index * max_parallelism // parallelism)
    end = -(-(index + 1) * max_parallelism // parallelism)
    return range(start, end)


def by_group(targets: Sequence[Any], max_parallelism: int) -> list[Any]:
    """The tasks (or what leads to them) of a component, laid out by group: what belongs to group
    `g` is at index `g`."""
    count = len(targets)
    return [
        targets[task_of_group(group, count, max_parallelism)] for group in range(max_parallelism)
    ]
