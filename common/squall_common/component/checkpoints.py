"""What a topology with checkpoints cannot have of its components' classes. Whoever submits one has
the classes, so it is named before anything starts; workers ask again, about the objects."""

from __future__ import annotations

import inspect
from collections.abc import Iterable
from typing import Any

from squall_common.component.component import Spout
from squall_common.component.delivery.rewinding import RewindableSpout
from squall_common.component.delivery.transactional import TransactionalSink
from squall_common.component.stateful import StatefulBolt
from squall_common.names import is_system_id
from squall_common.topology.model import Component, GroupingKind, PythonObject, Topology
from squall_common.topology.serialization import load_class


def component_problem(made: Any, component: Component) -> str | None:
    """Why a component cannot have checkpoints, as the end of a sentence about it; None if it can.
    `made` is its object, or its class."""
    cls = made if isinstance(made, type) else type(made)
    if issubclass(cls, Spout):
        if not issubclass(cls, RewindableSpout):
            return (
                "cannot be read again from a position, so it has no checkpoints; derive it "
                "from RewindableSpout"
            )
        if inspect.iscoroutinefunction(cls.next_tuple):
            return "is async; with checkpoints next_tuple() is a plain function, or blocking"
        return None
    if getattr(cls, "_squall_windowed", False):
        return None
    batches = any(
        getattr(cls, name, None) is not getattr(StatefulBolt, name)
        for name in ("execute_batch", "execute_columns")
    )
    if not made.auto_ack or not (made.auto_anchor or batches):
        return "acks or anchors by hand, so what it holds would be in no checkpoint"
    if issubclass(cls, TransactionalSink) and any(
        inspect.iscoroutinefunction(getattr(cls, name)) for name in ("execute", "execute_batch")
    ):
        return "is a transactional sink, whose execute() is a plain function"
    if issubclass(cls, StatefulBolt):
        return _grouping_problem(component)
    return None


def _grouping_problem(component: Component) -> str | None:
    for stream, grouping in component.inputs.items():
        if grouping.kind is not GroupingKind.FIELDS or not grouping.fields:
            return (
                f"keeps state by key, and groups {str(stream)!r} by {grouping.kind.value}; "
                "with checkpoints use a fields grouping: state belongs to its key"
            )
    return None


def class_problems(topology: Topology) -> Iterable[str]:
    """What is wrong with the classes of a topology's components, as far as they can be imported
    here."""
    for component in topology.components.values():
        if is_system_id(component.id) or not isinstance(component.object, PythonObject):
            continue
        try:
            cls = load_class(component.object.class_path)
        except Exception:  # the check of imports names it
            continue
        problem = component_problem(cls, component) if isinstance(cls, type) else None
        if problem is not None:
            yield f"{component.kind.value} {component.id!r} ({cls.__qualname__}) {problem}"
