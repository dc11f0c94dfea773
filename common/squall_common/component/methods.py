"""Which of its methods a component may define together: checked by `build()`, and again by workers,
which may get a topology from elsewhere."""

from __future__ import annotations

import inspect

from squall_common.component.component import Bolt, Component, Spout


def defines(component: Component, method: str) -> bool:
    """Whether the component's class has a method of its own, not the one of Spout or Bolt."""
    base: type[Component] = Spout if isinstance(component, Spout) else Bolt
    mine = getattr(type(component), method, None)
    return mine is not None and mine is not getattr(base, method, None)


def acks_in_batches(spout: Spout) -> bool:
    """Whether the spout's `ack_batch` is called. A class that overrides `ack` alone, below one
    that defines both, gets its calls of `ack`."""
    for cls in type(spout).__mro__:
        own = vars(cls)
        if cls is Spout or "ack" in own or "ack_batch" in own:
            return cls is not Spout and "ack_batch" in own
    return False


def mode_problem(component: Component) -> tuple[str, str | None] | None:
    """Why no worker can call the component, and what to do; None if it can. The reason continues a
    sentence about its class."""
    if isinstance(component, Spout):
        if not defines(component, "next_tuple"):
            return "does not define next_tuple()", None
        if _is_async(component, "exhausted"):
            return (
                "has an async exhausted(), whose answer is needed at once",
                "define it without async, and have next_tuple() remember the end of the source",
            )
        return _async_problem(component, "next_tuple")
    if defines(component, "execute_columns"):
        if _is_async(component, "execute_columns"):
            return (
                "has an async execute_columns(), but columns are processed on the worker's loop",
                "define async execute_batch() or async execute() instead",
            )
        if component.blocking:
            return (
                "is blocking and has execute_columns(), which runs on the worker's loop",
                "define execute_batch() instead, which runs on the bolt's own thread",
            )
        return None
    if defines(component, "execute_batch"):
        return _async_problem(component, "execute_batch")
    if not defines(component, "execute"):
        return "does not define execute()", None
    return _async_problem(component, "execute")


def _is_async(component: Component, method: str) -> bool:
    return inspect.iscoroutinefunction(getattr(component, method))


def _async_problem(component: Component, method: str) -> tuple[str, str | None] | None:
    if component.blocking and _is_async(component, method):
        return (
            f"is blocking, and its {method}() is async",
            "choose one: blocking = True for calls that block, async for calls that await",
        )
    return None
