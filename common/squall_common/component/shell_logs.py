"""Where the `log` commands of shell components go (`topology.multilang.log.handler`)."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Protocol

from squall_common.errors import SquallError, describe
from squall_common.topology.serialization import load_class

if TYPE_CHECKING:
    from squall_common.component.context import TopologyContext

KEY = "topology.multilang.log.handler"


class ShellLogHandler(Protocol):
    """One is made for each task, without arguments. It runs on the worker's event loop: what takes
    time belongs in a thread of its own."""

    def set_up_context(self, context: TopologyContext) -> None:
        """Called once, before anything is logged, with the context of the task."""

    def log(self, level: int, message: str) -> None:
        """The component logged a message, at one of Python's levels (logging.INFO ...)."""


class DefaultShellLogHandler:
    """To the worker's log, under the logger `topology.COMPONENT.TASK`."""

    def __init__(self) -> None:
        self._log = logging.getLogger("topology")

    def set_up_context(self, context: TopologyContext) -> None:
        name = f"topology.{context.this_component_id}.{context.this_task_id}"
        self._log = logging.getLogger(name)

    def log(self, level: int, message: str) -> None:
        self._log.log(level, "%s", message)


def make_log_handler(path: object, context: TopologyContext) -> ShellLogHandler:
    """By `module:Class`. None, and the name of a Java class (Storm's configuration): the default
    one. Raises SquallError for a class that is not there or is none."""
    handler: ShellLogHandler = DefaultShellLogHandler()
    if isinstance(path, str) and ":" in path:
        try:
            handler = load_class(path)()
            if not (callable(handler.log) and callable(handler.set_up_context)):
                raise TypeError("its log or its set_up_context cannot be called")
        except Exception as error:
            raise SquallError(
                f"{KEY}: {path!r} cannot be used: {describe(error)}",
                hint="name a class of the package as module:Class, with the methods "
                "set_up_context(context) and log(level, message)",
            ) from error
    handler.set_up_context(context)
    return handler
