"""A task that is ready to be opened or prepared, with its context."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from squall_common.component.context import TopologyContext
from squall_common.config.options.typed import TopologyOptions
from squall_engine.core import Ledger
from squall_engine.tasks.base import Task
from squall_engine.tasks.spout import SpoutTask


@dataclass(slots=True)
class Built:
    """A task, ready to be opened or prepared. `ledger` is its own (a thread's), or None."""

    task: Task
    conf: Mapping[str, Any]
    context: TopologyContext
    ledger: Ledger | None
    options: TopologyOptions
    own_conf: Mapping[str, Any]  # the component's own, without the topology's
    opened: bool = False  # open or prepare has returned: close or cleanup is owed

    def open(self) -> Any:
        """Prepare the hooks, then call `open` or `prepare`, which may be a coroutine."""
        task = self.task
        if task.hooks is not None:
            task.hooks.prepare(self.conf, self.context)
        start = task.user.open if isinstance(task, SpoutTask) else task.user.prepare
        return start(self.conf, self.context)

    def close(self) -> Any:
        """Call `close` or `cleanup`, which may be a coroutine, if that is owed. After it, call
        `clean_up_hooks`."""
        if not self.opened:
            return None
        task = self.task
        return task.user.close() if isinstance(task, SpoutTask) else task.user.cleanup()

    def clean_up_hooks(self) -> None:
        """Call `cleanup` of the hooks."""
        if self.task.hooks is not None:
            self.task.hooks.cleanup()
