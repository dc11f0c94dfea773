"""A task that is ready to be opened or prepared, with its context."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from squall_common.component.context import TopologyContext
from squall_common.config.options.typed import TopologyOptions
from squall_engine.core import Ledger
from squall_engine.tasks.base import Task


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
