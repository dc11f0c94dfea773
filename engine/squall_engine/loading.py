"""Creates users' spouts and bolts, and finds the invocation mode of each."""

from __future__ import annotations

import inspect
from typing import Any

from squall_common.component.component import Bolt, ShellWrapper, Spout
from squall_common.component.methods import defines, mode_problem
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


def invocation_mode_of(user: Any, component_id: str, task: int) -> InvocationMode:
    """The invocation mode of a component, from the methods that its class defines. Raises
    ComponentStartError when it defines none that the worker can call."""

    def refuse(why: str, hint: str | None = None) -> ComponentStartError:
        where = f"component {component_id!r} ({type(user).__qualname__})"
        return ComponentStartError(component_id, task, f"{where} {why}", hint=hint)

    if isinstance(getattr(user, "invocation_mode", None), InvocationMode):
        return user.invocation_mode  # type: ignore[no-any-return]
    problem = mode_problem(user)
    if problem is not None:
        raise refuse(*problem)
    if isinstance(user, Spout):
        return _mode(user, "next_tuple", _NEXT_TUPLE)
    if defines(user, "execute_columns"):
        return InvocationMode.COLUMNS
    if defines(user, "execute_batch"):
        return _mode(user, "execute_batch", _BATCH)
    return _mode(user, "execute", _EXECUTE)


# Each as it is called on the loop, awaited, and called on a thread.
_NEXT_TUPLE = (
    InvocationMode.NEXT_TUPLE,
    InvocationMode.ASYNC_NEXT_TUPLE,
    InvocationMode.THREAD_NEXT_TUPLE,
)
_BATCH = (InvocationMode.BATCH, InvocationMode.ASYNC_BATCH, InvocationMode.THREAD_BATCH)
_EXECUTE = (InvocationMode.SYNC, InvocationMode.ASYNC, InvocationMode.THREAD)


def _mode(
    user: Spout | Bolt, method: str, modes: tuple[InvocationMode, InvocationMode, InvocationMode]
) -> InvocationMode:
    if inspect.iscoroutinefunction(getattr(user, method)):
        return modes[1]
    return modes[2] if user.blocking else modes[0]
