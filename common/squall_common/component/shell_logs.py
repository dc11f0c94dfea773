"""Handlers for the `log` commands of shell components (`topology.multilang.log.handler`)."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Protocol

from squall_common.errors import SquallError, describe
from squall_common.topology.serialization import load_class

if TYPE_CHECKING:
    from squall_common.component.context import TopologyContext

KEY = "topology.multilang.log.handler"


class ShellLogHandler(Protocol):
    """The interface of log handlers. One is made for each task, without arguments. It runs on the
    worker's event loop, so do slow work in another thread."""

    def set_up_context(self, context: TopologyContext) -> None:
        """Called once with the context of the task, before anything is logged."""

    def log(self, level: int, message: str) -> None:
        """Called when the component logs a message. `level` is one of Python's levels
        (logging.INFO ...)."""


class DefaultShellLogHandler:
    """Writes to the worker's log, through the logger `topology.COMPONENT.TASK`."""

    def __init__(self) -> None:
        self._log = logging.getLogger("topology")

    def set_up_context(self, context: TopologyContext) -> None:
        """Take the name of the logger from the task."""
        name = f"topology.{context.this_component_id}.{context.this_task_id}"
        self._log = logging.getLogger(name)

    def log(self, level: int, message: str) -> None:
        """Log the message."""
        self._log.log(level, "%s", message)


def make_log_handler(path: object, context: TopologyContext) -> ShellLogHandler:
    """Make the handler that `path` names as `module:Class`, or the default handler if `path` is
    None or names a Java class (Storm's configuration). Raises SquallError if there is no such class
    or it cannot be used."""
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
