"""Builds the tasks of a worker: user objects, outputs, calls. After this, the description of the
topology is no longer read."""

from __future__ import annotations

import asyncio
import inspect
import random
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Protocol

from squall_common.component.checkpoints import object_refusals
from squall_common.component.context import TopologyContext, WorkerContext
from squall_common.component.groupings import CustomGrouping
from squall_common.component.hooks import TaskHook
from squall_common.config.load import component_conf
from squall_common.config.options.typed import TopologyOptions
from squall_common.errors import SquallError, describe
from squall_common.names import DEAD_LETTER_STREAM, MARK_STREAM, is_system_id
from squall_common.topology.arguments import instantiate
from squall_common.topology.model import Component, GlobalStreamId, Grouping
from squall_engine.build.kinds import KindHost, NewTask, make_bolt, make_spout, rebind
from squall_engine.core import Edge, Emitter, Inspector, Ledger, Output, Source
from squall_engine.core.invocation import InvocationMode
from squall_engine.epochs.driver import EpochDriver
from squall_engine.grouping.routing import Balancers, Targets, make_grouper
from squall_engine.hooks.task_hooks import TaskHookError, TaskHooks, make_hook
from squall_engine.loading import ComponentStartError, invocation_mode_of
from squall_engine.observe.latencies import TimedCounts
from squall_engine.options import EngineOptions
from squall_engine.settings import EngineCallbacks
from squall_engine.state.sizes import gauges
from squall_engine.state.task_states import TaskStates
from squall_engine.tasks.async_ import asked_to_end
from squall_engine.tasks.base import Task, TaskParts
from squall_engine.tasks.built import Built
from squall_engine.tasks.spout import SpoutTask
from squall_engine.tasks.thread import ThreadBolt, ThreadSpout, on_thread


class BuildHost(KindHost, Protocol):
    """What building tasks needs from the engine."""

    ledger: Ledger
    rng: random.Random
    edges: Edges
    callbacks: EngineCallbacks
    worker_context: WorkerContext
    options: EngineOptions
    balancers: Balancers | None
    inspector: Inspector | None
    states: TaskStates | None
    epochs: EpochDriver | None

    def reject(self, component: str, task: int, error: Exception, roots: Collection[int]) -> None:
        """Report that a tuple cannot be delivered, and fail its trees."""


class Edges:
    """The edges of a worker. With one for each pair of tasks, a turn would have only a tuple or two
    for each, and thousands of tasks that send to thousands would have millions; therefore the tasks
    of a component share theirs, except those that run on threads of their own."""

    def __init__(self, local_tasks: Collection[int], near_tasks: Collection[int]) -> None:
        self._local_tasks = local_tasks
        self._near_tasks = near_tasks
        self._shared: dict[tuple[str, str, str], Targets] = {}

    def targets(
        self, source: Source, consumer: str, tasks: Sequence[int], *, shared: bool
    ) -> Targets:
        """The edges from what one task emits on one stream to the tasks of a consumer."""
        place = (source.component, source.stream, consumer)
        targets = self._shared.get(place) if shared else None
        if targets is None:
            targets = Targets(
                [Edge(task, source, local=task in self._local_tasks) for task in tasks],
                self._near_tasks,
            )
            if shared:
                self._shared[place] = targets
        return targets


def build_task(host: BuildHost, task: int) -> Built:
    """Construct the user's object of a task and bind it. Raises ComponentStartError."""
    component = host.plan.component_of(task)
    user = host.callbacks.make_object(component, task)
    mode = invocation_mode_of(user, component.id, task)
    conf = component_conf(host.worker_context.conf, component.conf)
    options = host.options.of(component.id)
    for refusal in object_refusals(component, user, has_checkpoints=host.epochs is not None):
        raise ComponentStartError(component.id, task, refusal.what, hint=refusal.remedy)
    if host.epochs is not None:
        host.epochs.admit(task, user, mode)
    context = TopologyContext(host.worker_context, task, conf)
    threaded = mode in (
        InvocationMode.THREAD,
        InvocationMode.THREAD_BATCH,
        InvocationMode.THREAD_NEXT_TUPLE,
    )
    outputs = _outputs(host, component, task, context, shared=not threaded)
    ledger = host.ledger.fresh() if threaded else host.ledger
    emitter = Emitter(
        component.id,
        task,
        outputs,
        host.rng.getrandbits,
        inspector=host.inspector,
        on_rejected=lambda error, roots: host.reject(component.id, task, error, roots),
    )
    parts = TaskParts(
        host,
        component.id,
        task,
        host.plan.executor_of[task],
        list(outputs.values()),
        TimedCounts(),
    )
    hooks = _make_hooks(host, parts, options)
    stored = None if host.states is None else host.states.get(task)
    new = NewTask(host, mode, parts, user, options, emitter, ledger, context, hooks, stored)
    built: Task = make_spout(new) if host.plan.is_spout(task) else make_bolt(new)
    built.user, built.hooks = user, hooks
    if host.epochs is not None:
        built.stored_bytes = partial(host.epochs.stored_bytes, task)
    for name, read in gauges(built).items():
        context.gauge(name, read)
    context._add_hook = _hook_adder(new, built, conf)
    if mode in (InvocationMode.SHELL_BOLT, InvocationMode.SHELL_SPOUT):
        try:
            user.attach(built, conf, options, context, host.now)
        except SquallError as error:
            where = f"component {component.id!r}: {error.message}"
            raise ComponentStartError(component.id, task, where, hint=error.hint) from error
    return Built(built, conf, context, ledger if threaded else None, options, component.conf)


def _make_hooks(host: BuildHost, parts: TaskParts, options: TopologyOptions) -> TaskHooks | None:
    """The hooks that the configuration names; None without any. Raises ComponentStartError."""
    class_paths = options.topology_auto_task_hooks
    if not class_paths:
        return None
    try:
        return _hooks_of(host, parts, options, [make_hook(path) for path in class_paths])
    except Exception as error:
        message, hint = describe(error), None
        if isinstance(error, SquallError):
            message, hint = error.message, error.hint
        where = f"component {parts.component!r}: {message}"
        raise ComponentStartError(parts.component, parts.task, where, hint=hint) from error


def _hooks_of(
    host: KindHost, parts: TaskParts, options: TopologyOptions, made: Sequence[TaskHook] = ()
) -> TaskHooks:
    def report(error: BaseException) -> None:
        host.report(parts.component, parts.task, error)
        if options.topology_bolt_die_on_error:
            host.die(error)

    return TaskHooks(parts.task, host.now, report, made)


def _hook_adder(new: NewTask, task: Task, conf: Mapping[str, Any]) -> Callable[[object], None]:
    """`context.add_task_hook`. The first hook of a task has its component bound anew."""

    def add(hook: object) -> None:
        if task.hooks is not None:
            task.hooks.add(hook, conf, new.context)
            return
        hooks = _hooks_of(new.host, new.parts, new.options)
        hooks.add(hook, conf, new.context)
        task.hooks = hooks
        rebind(replace(new, hooks=hooks), task)

    return add


def _outputs(
    host: BuildHost, component: Component, task: int, context: TopologyContext, *, shared: bool
) -> dict[str, Output]:
    outputs = {}
    for stream, info in component.streams.items():
        if is_system_id(stream) and stream not in (DEAD_LETTER_STREAM, MARK_STREAM):
            continue
        source = Source(component.id, task, stream, info.fields)
        output = Output(source, direct=info.direct)
        for consumer, grouping in host.plan.consumers_of(component.id, stream):
            targets = host.edges.targets(
                source, consumer.id, host.plan.tasks_of[consumer.id], shared=shared
            )
            try:
                grouper = make_grouper(
                    grouping,
                    source,
                    consumer.id,
                    targets,
                    rng=host.rng,
                    registry=host.worker_context.serialization,
                    make_custom=_custom_maker(context, GlobalStreamId(component.id, stream)),
                    balancers=host.balancers,
                    key_groups=_key_groups(host, consumer.id),
                )
            except Exception as error:
                raise ComponentStartError(
                    component.id,
                    task,
                    f"the grouping of {consumer.id!r} on stream {stream!r} of "
                    f"{component.id!r} cannot be used: {describe(error)}",
                ) from error
            output.add_consumer(grouper, targets.edges, targets.by_task)
        outputs[stream] = output
    return outputs


def _key_groups(host: BuildHost, consumer: str) -> int | None:
    if host.epochs is not None:
        return host.epochs.groups_of(consumer)
    return host.options.of(consumer).topology_state_max_parallelism


def _custom_maker(
    context: TopologyContext, stream: GlobalStreamId
) -> Callable[[Grouping, Sequence[int]], CustomGrouping]:
    def make(grouping: Grouping, targets: Sequence[int]) -> CustomGrouping:
        assert grouping.custom is not None
        custom = instantiate(grouping.custom)
        if not isinstance(custom, CustomGrouping):
            raise TypeError(f"{grouping.custom.class_path} is not a squall.CustomGrouping")
        custom.prepare(context, stream, tuple(targets))
        return custom

    return make


async def open_task(built: Built) -> None:
    """Call `open` or `prepare` (which may be a coroutine). Raises ComponentStartError."""
    task = built.task
    name = "open" if isinstance(task, SpoutTask) else "prepare"
    try:
        if isinstance(task, ThreadSpout | ThreadBolt):
            task.start_thread()
            await on_thread(task, built.open)
        else:
            result = built.open()
            if inspect.isawaitable(result):
                await result
        built.opened = True
    except (Exception, asyncio.CancelledError) as error:
        if isinstance(error, asyncio.CancelledError) and asked_to_end():
            raise
        hook_failed = isinstance(error, TaskHookError)
        what = str(error) if hook_failed else f"{name}() failed: {describe(error)}"
        raise ComponentStartError(
            task.component, task.task, f"component {task.component!r}: {what}"
        ) from error
    finally:
        built.context._add_hook = None
