"""Checks the options of a rebalance: when it is asked for, not when it is carried out."""

from __future__ import annotations

import difflib
import json
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from typing import Any

from squall_common.cluster.values import RebalanceOptions
from squall_common.component.checkpoints import Place, all_refusals
from squall_common.config.load import check_json, validate_conf
from squall_common.config.options.judge import mapped, without_made_up
from squall_common.config.options.typed import TopologyOptions
from squall_common.config.schema import TASKS_MAX
from squall_common.errors import ConfigError, InvalidTopologyError
from squall_common.names import is_system_id
from squall_common.topology.system import metrics_consumers
from squall_nimbus.store.topology_store import StoredTopology
from squall_nimbus.topologies.submit import parse_conf

# The tasks, owner and name of a topology never change while it lives.
_FIXED_KEYS = frozenset(
    {
        "storm.id",
        "topology.name",
        "topology.tasks",
        "topology.component.tasks",
        "topology.max.task.parallelism",
        "topology.acker.executors",
        "topology.eventlogger.executors",
        "topology.workers",
        "topology.users",
        "topology.groups",
        "topology.readonly.users",
        "topology.readonly.groups",
    }
)
_FIXED_PREFIXES = ("topology.submitter.", "storm.zookeeper.", "nimbus.")


def check_rebalance(
    topology: StoredTopology,
    options: RebalanceOptions,
    blob_problems: Callable[[TopologyOptions], list[str]],
    size_problems: Callable[[int | None, Mapping[str, int]], list[str]],
    bound: Collection[str] = (),
) -> RebalanceOptions:
    """Return the options, made canonical. `blob_problems(options)` lists what is wrong with the
    blobs that a configuration names, `size_problems(workers, executors)` with the size that the
    topology would have; `bound` are the components whose state belongs to their tasks. Raises
    InvalidTopologyError, which lists all problems."""
    problems = []
    rescaled = _rescaled(topology, options.num_executors)
    if options.wait_secs is not None and options.wait_secs < 0:
        problems.append(f"wait time {options.wait_secs} s is negative")
    if options.num_workers is not None and not 1 <= options.num_workers <= TASKS_MAX:
        problems.append(
            f"a topology may have from 1 to {TASKS_MAX} workers; asked for {options.num_workers}"
        )
    tasks_of = Counter(topology.task_to_component.values())
    names = sorted(name for name in tasks_of if not is_system_id(name))
    for component, executors in options.num_executors.items():
        tasks = tasks_of[component]
        if tasks == 0:
            near = difflib.get_close_matches(component, names, 1)
            hint = f" (did you mean {near[0]!r}?)" if near else f"; it has {', '.join(names)}"
            problems.append(f"the topology has no component {component!r}{hint}")
        elif executors < 1:
            problems.append(f"{component!r} needs at least one executor; asked for {executors}")
        elif component in rescaled:
            problems += _rescale_problems(topology, component, executors)
            if component in bound:
                problems.append(
                    f"{component!r} has state that belongs to its tasks, not to keys (windows "
                    f"without a key, for one), so it keeps its {tasks} tasks (see "
                    "docs/concepts/state.md)"
                )
        elif executors > tasks and not rescales(topology, component):
            problems.append(
                f"{component!r} has {tasks} tasks, so it may have at most {tasks} executors; "
                f"asked for {executors}: to scale further, submit the topology with more tasks for "
                "it (tasks=N in the builder)"
            )
    total = sum({**tasks_of, **rescaled}.values())
    if total > TASKS_MAX:
        problems.append(f"the topology would have {total} tasks; the limit is {TASKS_MAX}")
    if not problems:
        problems += size_problems(options.num_workers, options.num_executors)
    overrides = None
    if options.topology_conf_overrides:
        conf = parse_conf(options.topology_conf_overrides)
        wrong = _override_problems(conf)
        if not wrong:
            changed = TopologyOptions.read(conf)
            wrong = [
                *blob_problems(changed),
                *_consumer_problems(conf, changed, topology.options),
                *_checkpoint_problems(topology, conf),
            ]
        problems += wrong
        conf = {**without_made_up(conf), **mapped(conf)}
        overrides = json.dumps(conf, sort_keys=True) if conf else None
    if rescaled and not problems:
        tasks_now = {**(topology.options.topology_component_tasks or {}), **rescaled}
        conf = {**json.loads(overrides or "{}"), "topology.component.tasks": tasks_now}
        overrides = json.dumps(conf, sort_keys=True)
    if problems:
        raise InvalidTopologyError.listing(problems)
    return RebalanceOptions(
        options.wait_secs, options.num_workers, dict(options.num_executors), overrides
    )


def rescales(topology: StoredTopology, component: str) -> bool:
    """Whether a rebalance sets the number of tasks of a component, not only of its executors: with
    checkpoints its state and its positions move between tasks."""
    has_checkpoints = topology.options.topology_checkpoint_interval_secs is not None
    return has_checkpoints and not is_system_id(component)


def _rescaled(topology: StoredTopology, asked: Mapping[str, int]) -> dict[str, int]:
    """The components that get another number of tasks."""
    return {
        name: number
        for name, number in asked.items()
        if number >= 1 and rescales(topology, name) and topology.tasks_of(name) not in (0, number)
    }


def _rescale_problems(topology: StoredTopology, component: str, tasks: int) -> list[str]:
    own = TopologyOptions.read(topology.compiled.components[component].conf)
    limit = own.topology_max_task_parallelism or topology.options.topology_max_task_parallelism
    if limit is not None and tasks > limit:
        return [f"{component!r} may have at most {limit} tasks (topology.max.task.parallelism)"]
    groups = own.topology_state_max_parallelism
    if groups is not None and tasks > groups:
        return [
            f"{component!r} may have at most {groups} tasks: its state has so many key groups "
            "(topology.state.max.parallelism)"
        ]
    return []


def _checkpoint_problems(topology: StoredTopology, conf: Mapping[str, Any]) -> list[str]:
    """What a topology could not have with checkpoints once these options are its own. (What it has
    already is not said again.)"""

    def problems(options: TopologyOptions) -> list[str]:
        return [str(one) for one in all_refusals(topology.compiled, options, Place.CLUSTER)]

    before = problems(topology.options)
    after = problems(TopologyOptions.read({**topology.conf, **conf}))
    return [problem for problem in after if problem not in before]


def _consumer_problems(
    conf: Mapping[str, Any], changed: TopologyOptions, current: TopologyOptions
) -> list[str]:
    """A consumer with a component has tasks."""
    key = "topology.metrics.consumer.register"
    hints = any("parallelism.hint" in one for one in changed.topology_metrics_consumer_register)
    if key in conf and (hints or metrics_consumers(current)):
        return [
            f"{key} cannot be changed by a rebalance: consumers with parallelism.hint are tasks"
        ]
    return []


def _override_problems(conf: dict[str, Any]) -> list[str]:
    problems = [
        f"{key} cannot be changed by a rebalance"
        for key in conf
        if key in _FIXED_KEYS or key.startswith(_FIXED_PREFIXES)
    ]
    try:
        validate_conf(conf, where="conf overrides")
        check_json(conf, where="conf overrides")
    except ConfigError as error:
        problems += error.message.splitlines()
    return problems
