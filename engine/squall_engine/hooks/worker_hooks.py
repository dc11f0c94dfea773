"""The worker hooks of a topology, in one worker."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from squall_common.component.context import WorkerTopologyContext
from squall_common.component.hooks import WorkerHook
from squall_common.errors import SquallError, describe
from squall_common.topology.arguments import instantiate
from squall_common.topology.model import ForeignObject, PythonObject


class WorkerHookError(SquallError):
    """A worker hook could not be created, or raised an error, which is the cause."""


class WorkerHooks:
    """Starts the hooks in their order, and shuts those that have started down in the reverse
    order."""

    def __init__(
        self,
        hooks: Sequence[PythonObject | ForeignObject],
        make: Callable[[PythonObject], Any] = instantiate,
    ) -> None:
        """Raises SquallError for a hook that only a JVM could run."""
        self._hooks: list[PythonObject] = []
        for hook in hooks:
            if isinstance(hook, ForeignObject):
                raise SquallError(f"worker hook {hook} is a Java object, which only a JVM can run")
            self._hooks.append(hook)
        self._make = make
        self._started: list[WorkerHook] = []

    async def start(self, conf: Mapping[str, Any], context: WorkerTopologyContext) -> None:
        """Create the hooks and call `start` of each. Raises WorkerHookError."""
        for described in self._hooks:
            name = f"worker hook {described.class_path}"
            try:
                hook = self._make(described)
            except Exception as error:
                raise WorkerHookError(f"{name} cannot be created: {describe(error)}") from error
            if not isinstance(hook, WorkerHook):
                raise WorkerHookError(f"{name} is not one", hint="derive it from squall.WorkerHook")
            try:
                result = hook.start(conf, context)
                if inspect.isawaitable(result):
                    await result
            except Exception as error:
                raise WorkerHookError(f"{name}: start() failed: {describe(error)}") from error
            self._started.append(hook)

    async def shutdown(
        self,
        finish: Callable[[Awaitable[Any]], Awaitable[None]],
        report: Callable[[BaseException], None],
    ) -> None:
        """Call `shutdown` of the hooks that have started. `finish` awaits one that is a coroutine,
        `report` is called with each error."""
        started, self._started = self._started, []
        for hook in reversed(started):
            try:
                result = hook.shutdown()
                if inspect.isawaitable(result):
                    await finish(result)
            except Exception as error:
                name = type(hook).__name__
                failed = WorkerHookError(
                    f"worker hook {name}: shutdown() failed: {describe(error)}"
                )
                failed.__cause__ = error
                report(failed)
