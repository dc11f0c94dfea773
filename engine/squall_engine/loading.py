"""Creates users' spouts and bolts, and finds the invocation mode of each."""

from __future__ import annotations

import inspect
from typing import Any

from squall_common.component.component import Bolt, ShellWrapper, Spout
from squall_common.errors import SquallError, describe
from squall_common.topology.arguments import instantiate
from squall_common.topology.model import (
    Component,
    ComponentKind,
    ForeignObject,
    PythonObject,
    ShellObject,
)
from squall_engine.core.invocation import InvocationMode


class ComponentStartError(SquallError):
    """A component could not be created, opened or prepared. `component` and `task` say which one;
    the cause is the user's exception, if there was one."""

    def __init__(self, component: str, task: int, message: str, *, hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.component = component
        self.task = task


def check_runnable(component: Component) -> None:
    """Raise SquallError for a component that no Squall worker can run."""
    if isinstance(component.object, ForeignObject):
        raise SquallError(
            f"component {component.id!r} is a serialized Java object, which only a JVM can run"
        )


def make_user_object(component: Component, task: int) -> Any:
    """Create the user's spout or bolt. Raises ComponentStartError."""
    if isinstance(component.object, ShellObject):
        from squall_engine.multilang.build import ShellProgram

        return ShellProgram(component)
    assert isinstance(component.object, PythonObject)
    try:
        made = instantiate(component.object)
    except Exception as error:
        raise ComponentStartError(
            component.id,
            task,
            f"component {component.id!r} ({component.object.class_path}) cannot be created: "
            f"{describe(error)}",
        ) from error
    if isinstance(made, ShellWrapper):
        from squall_engine.multilang.build import ShellProgram

        return ShellProgram(component, made)
    wanted = Spout if component.kind is ComponentKind.SPOUT else Bolt
    if not isinstance(made, wanted):
        raise ComponentStartError(
            component.id,
            task,
            f"component {component.id!r} is declared as a {component.kind.value}, but "
            f"{component.object.class_path} is not one (derive it from squall.{wanted.__name__})",
        )
    return made


def feed_of(user: Any, component_id: str, task: int) -> InvocationMode:
    """The invocation mode of a component, from the methods that its class defines. Raises
    ComponentStartError when it defines none that the worker can call."""

    def refuse(why: str, hint: str | None = None) -> ComponentStartError:
        where = f"component {component_id!r} ({type(user).__qualname__})"
        return ComponentStartError(component_id, task, f"{where} {why}", hint=hint)

    if isinstance(getattr(user, "feed", None), InvocationMode):
        return user.feed  # type: ignore[no-any-return]
    if isinstance(user, Spout):
        if not _defines(user, "next_tuple", Spout):
            raise refuse("does not define next_tuple()")
        is_async = inspect.iscoroutinefunction(user.next_tuple)
        if is_async and user.blocking:
            raise refuse("is blocking, and its next_tuple() is async: choose one")
        if is_async:
            return InvocationMode.ASYNC_NEXT_TUPLE
        return InvocationMode.THREAD_NEXT_TUPLE if user.blocking else InvocationMode.NEXT_TUPLE
    if _defines(user, "execute_columns", Bolt):
        if inspect.iscoroutinefunction(user.execute_columns):
            raise refuse("has an async execute_columns()", "make execute() async instead")
        if user.blocking:
            raise refuse("is blocking and has execute_columns()", "define execute() instead")
        return InvocationMode.COLUMNS
    if _defines(user, "execute_batch", Bolt):
        if inspect.iscoroutinefunction(user.execute_batch):
            raise refuse("has an async execute_batch()", "make execute() async instead")
        if user.blocking:
            raise refuse("is blocking and has execute_batch()", "define execute() instead")
        return InvocationMode.BATCH
    if not _defines(user, "execute", Bolt):
        raise refuse("does not define execute()")
    if inspect.iscoroutinefunction(user.execute):
        if user.blocking:
            raise refuse("is blocking, and its execute() is async: choose one")
        return InvocationMode.ASYNC
    return InvocationMode.THREAD if user.blocking else InvocationMode.SYNC


def _defines(user: object, name: str, base: type) -> bool:
    mine = getattr(type(user), name, None)
    return mine is not None and mine is not getattr(base, name, None)
