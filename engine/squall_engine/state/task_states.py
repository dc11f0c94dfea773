"""The stateful tasks of a worker whose state is stored."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor

from squall_common.component.refusals import refuse
from squall_common.component.stored_state import DISK, stored_refusals
from squall_common.daemon.logs import get_logger
from squall_common.errors import SquallError
from squall_common.names import topology_name_of
from squall_common.state.keyed import KeyedState
from squall_common.state.task_store import TaskPlace
from squall_common.topology.model import Component, PythonObject
from squall_common.topology.serialization import Registry, load_class
from squall_engine.core.codec import ValueCodec
from squall_engine.loading import ComponentStartError
from squall_engine.options import EngineOptions
from squall_engine.plan import Plan
from squall_engine.state.backends import make_state
from squall_engine.state.keys import AsyncKeyedState, key_fields, key_finder, unkeyed_inputs
from squall_engine.state.stored_task import CallLater, StoredTask
from squall_engine.state.stores import MakeStore, store_maker

log = get_logger(__name__)

_THREADS_MAX = 4
_HURRY_SECS = 0.02  # between two flushes of a worker that ends
_CLOSE_SECS = 5.0


class TaskStates:
    """Opens, flushes and closes them."""

    def __init__(
        self,
        plan: Plan,
        options: EngineOptions,
        make_store: MakeStore,
        make_codec: Callable[[], ValueCodec],
        *,
        topology_id: str,
        registry: Registry,
        now: Callable[[], float],
    ) -> None:
        self._plan = plan
        self._options = options
        self._make_store = make_store
        self._make_codec = make_codec
        self._topology = topology_name_of(topology_id)
        self._registry = registry
        self._now = now
        self._threads = ThreadPoolExecutor(_THREADS_MAX, thread_name_prefix="state")
        self._tasks: dict[int, StoredTask] = {}

    @classmethod
    def of(
        cls,
        plan: Plan,
        options: EngineOptions,
        make_codec: Callable[[], ValueCodec],
        *,
        topology_id: str,
        registry: Registry,
        now: Callable[[], float],
    ) -> TaskStates | None:
        """None if this worker stores no state. Raises ConfigError, InvalidTopologyError."""
        stateful = any(
            options.of(plan.task_to_component[task]).topology_state_max_parallelism
            for task in plan.local_user_tasks()
        )
        if not stateful:
            return None
        if options.topology.topology_state_backend == DISK:
            # (A bolt's own is refused where it is submitted, to a cluster or to local mode. In a
            # test, which stores nothing, it has no effect.)
            refuse(stored_refusals(plan.topology, options.topology))
        make_store = store_maker(options.topology)
        if make_store is None:
            return None
        return cls(
            plan,
            options,
            make_store,
            make_codec,
            topology_id=topology_id,
            registry=registry,
            now=now,
        )

    async def open(self) -> None:
        """Restore the state of all tasks, a few at a time. Raises ComponentStartError."""
        tasks = [
            task
            for task in self._plan.local_user_tasks()
            if self._options.of(self._plan.task_to_component[task]).topology_state_max_parallelism
        ]
        loop = asyncio.get_running_loop()
        opening = [loop.run_in_executor(self._threads, self._open, task) for task in tasks]
        done = await asyncio.gather(*opening, return_exceptions=True)
        for task, result in zip(tasks, done, strict=True):
            if isinstance(result, BaseException):
                component = self._plan.task_to_component[task]
                message = result.message if isinstance(result, SquallError) else str(result)
                hint = result.hint if isinstance(result, SquallError) else None
                raise ComponentStartError(
                    component,
                    task,
                    f"component {component!r} (task {task}): {message}",
                    hint=hint,
                ) from result
            self._tasks[task] = result

    def _open(self, task: int) -> StoredTask:
        plan = self._plan
        component = plan.component_of(task)
        for source, grouping in unkeyed_inputs(component):
            raise SquallError(
                f"its state is stored, but it subscribes to {str(source)!r} by a "
                f"grouping ({grouping}) that does not give each key a task of its own",
                hint="subscribe by the fields of the key, or globally",
            )
        options = self._options.of(component.id)
        groups = options.topology_state_max_parallelism
        assert groups is not None
        tasks = plan.tasks_of[component.id]
        if len(tasks) > groups:
            raise SquallError(
                f"it has {len(tasks)} tasks and only {groups} key groups",
                hint="raise topology.state.max.parallelism of the bolt",
            )
        place = TaskPlace(self._topology, component.id, tasks.index(task), len(tasks), groups)
        store = self._make_store(place)
        state: KeyedState
        if not _may_be_async(component):
            codec = self._make_codec()
            state = make_state(options, groups, codec, registry=self._registry)
        elif options.topology_state_backend == DISK:
            raise SquallError(
                "its calls are coroutines, whose state cannot be on disk (topology.state.backend) "
                "without checkpoints",
                hint="set topology.checkpoint.interval.secs, or define execute without async",
            )
        else:
            state = AsyncKeyedState(groups, self._make_codec(), registry=self._registry)
        state.key_checks.fields = key_fields(component)
        start = self._now()
        store.open(state)
        log.info(
            "state_restored",
            component=component.id,
            task=task,
            keys=len(state),
            bytes=store.size,
            secs=round(self._now() - start, 3),
        )
        return StoredTask(
            component.id,
            task,
            state,
            store,
            self._make_codec(),
            key_finder(plan.topology, component),
            interval_secs=options.topology_state_checkpoint_interval_ms / 1000,
            threads=self._threads,
            now=self._now,
        )

    def get(self, task: int) -> StoredTask | None:
        """The state of a task; None if it has none."""
        return self._tasks.get(task)

    @property
    def tasks(self) -> Mapping[int, StoredTask]:
        return self._tasks

    def begin(self, call_later: CallLater) -> None:
        """Flush from now on."""
        for task in self._tasks.values():
            task.begin(call_later)

    def hurry(self) -> None:
        """Flush more often, because the worker ends."""
        for task in self._tasks.values():
            task.hurry(_HURRY_SECS)

    async def close(self) -> None:
        """Store what is left, after the bolts' cleanup."""
        await asyncio.gather(*(task.close(_CLOSE_SECS) for task in self._tasks.values()))
        self._threads.shutdown(wait=False, cancel_futures=True)


def _may_be_async(component: Component) -> bool:
    """Whether several calls of the bolt may be under way at a time."""
    if not isinstance(component.object, PythonObject):
        return False
    try:
        cls = load_class(component.object.class_path)
    except Exception:  # a test's own class; what its worker cannot import is reported elsewhere
        return True
    return any(
        inspect.iscoroutinefunction(getattr(cls, name, None))
        for name in ("execute", "execute_batch")
    )
