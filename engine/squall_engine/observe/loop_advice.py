"""What the user of a component can do about a call that holds the loop.

Their own class can wait elsewhere. In a bolt that streams have made, what takes long is a function
of theirs; and a connector has neither: its work can be shared, or bounded.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from squall_engine.tasks.built import Built

_SQUALLS = ("squall.", "squall_common.", "squall_connectors.", "squall_drpc.")
_SHOWN_MAX = 3


def user_of(component: str, built: Sequence[Built]) -> Any:
    """The object of a component that has a task here, or None."""
    return next((one.task.user for one in built if one.task.component == component), None)


def advice(user: Any, work: str) -> str:
    """`user`: the component's object, None if it is not known; `work`: what it did."""
    if user is not None and type(user).__module__.startswith(_SQUALLS):
        steps = getattr(user, "_squall_steps", None)
        return _of_squall(user) if steps is None else _of_steps(list(steps))
    thread = "blocking = True gives it a thread"
    if work.endswith("tuple(s)"):
        return f"{thread}, async def execute lets it wait"
    return f"{thread}, async def next_tuple lets it wait" if "next_tuple" in work else thread


def _of_steps(steps: list[str]) -> str:
    """`steps` are those with functions of the user's, as "map(parse), orders.py:12"."""
    if not steps:
        return "the step is Squall's: named(ID, parallelism=N) and more workers share its work"
    shown = "; ".join(steps[:_SHOWN_MAX])
    if len(steps) > _SHOWN_MAX:
        shown += f"; and {len(steps) - _SHOWN_MAX} more"
    return (
        f"the functions of {shown}: map_async() for one that waits, "
        "named(ID, parallelism=N) and more workers for one that computes"
    )


def _of_squall(user: Any) -> str:
    """A connector, or another component that was not written by the user."""
    share = f"{type(user).__name__} is Squall's: more workers and executors share its work"
    bounded_by = getattr(user, "_squall_bounded_by", "")
    return f"{share}; {bounded_by} bounds that of a call" if bounded_by else share
