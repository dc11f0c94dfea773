"""Checks of users' objects in the client: are they components, and can they be sent to workers?

Everything here comes from user code, so it can contain anything. Each problem becomes a line in a
list that names the component; no function here raises for one, except `grouping_object`.
"""

from __future__ import annotations

import inspect
import types
from collections.abc import Mapping, Sequence
from typing import Any

from squall_common.component.component import (
    Bolt,
    Component,
    Outputs,
    ShellBolt,
    ShellSpout,
    Spout,
    Stream,
)
from squall_common.component.methods import mode_problem
from squall_common.errors import InvalidTopologyError
from squall_common.names import DEFAULT_STREAM
from squall_common.topology.construction import (
    Constructed,
    changes_since_construction,
    python_object,
)
from squall_common.topology.model import (
    ComponentKind,
    ComponentObject,
    PythonObject,
    ShellObject,
    StreamInfo,
)


def one_line(error: InvalidTopologyError) -> str:
    """An error with its hint, as one line of a list."""
    return str(error).replace("\n", "; ")


def look_at(
    where: str,
    kind: ComponentKind,
    component: object,
    problems: list[str],
    local: list[type] | None = None,
) -> tuple[ComponentObject | None, dict[str, StreamInfo]]:
    """The object that is sent to workers and the streams of a component, if it has them. Adds what
    is wrong with the component to `problems`. `local` is as in `python_object`."""
    expected = (Spout, ShellSpout) if kind is ComponentKind.SPOUT else (Bolt, ShellBolt)
    if not isinstance(component, expected):
        problems.append(f"{where}: {_not_a_component(component, kind)}")
        return None, {}
    streams = _streams(where, component.outputs, problems)
    if isinstance(component, (ShellSpout, ShellBolt)):
        return ShellObject(component.command, component.script), streams
    problems.extend(f"{where}: {problem}" for problem in _class_problems(component))
    problems.extend(f"{where}: {problem}" for problem in _changes(component))
    try:
        return python_object(component, local), streams
    except InvalidTopologyError as error:
        problems.append(f"{where}: {one_line(error)}")
        return None, streams


def _not_a_component(component: object, kind: ComponentKind) -> str:
    name = kind.value.capitalize()
    if isinstance(component, type):
        return f"{component.__name__} is a class; pass an object of it: {component.__name__}(...)"
    if isinstance(component, types.LambdaType):
        return f"a function is not a {kind.value}; derive a class from {name}"
    if isinstance(component, (Spout, Bolt, ShellSpout, ShellBolt)):
        other = "bolt" if name == "Spout" else "spout"
        return f"{type(component).__name__} is a {other}; add it with .{other}(...)"
    return f"{component!r} is not a {kind.value}; derive its class from {name}"


def _class_problems(component: Component) -> list[str]:
    """Problems in a component's class that can be found before anything runs."""
    cls = type(component)
    problems = []
    base: type[Component] = Spout if isinstance(component, Spout) else Bolt
    methods = ("next_tuple",) if base is Spout else ("execute", "execute_batch", "execute_columns")
    problem = mode_problem(component)
    if problem is not None:
        why, hint = problem
        problems.append(f"{cls.__name__} {why}" + (f": {hint}" if hint else ""))
    for method in methods:
        function = getattr(cls, method, None)
        if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
            problems.append(
                f"{cls.__name__}.{method}() contains `yield`, so calling it would do nothing; "
                "emit with self.emit(...)"
            )
    return problems


def _changes(component: Constructed) -> list[str]:
    hint = (
        "only the constructor's arguments reach the workers: set it from one of them, or in "
        "open() or prepare()"
    )
    return [
        f"attribute {name!r} was {how} after the constructor; {hint}"
        for name, how in changes_since_construction(component).items()
    ]


def _streams(where: str, outputs: Outputs, problems: list[str]) -> dict[str, StreamInfo]:
    """The declared streams. `outputs` comes from user code and can contain anything."""
    declared: Any = outputs
    if isinstance(declared, str):
        problems.append(f"{where}: outputs is the text {declared!r}; write [{declared!r}]")
        return {}
    if not isinstance(declared, Mapping):
        if not isinstance(declared, (Sequence, Stream)):
            problems.append(
                f"{where}: outputs is {declared!r}; expected a list of fields or a dict of streams"
            )
            return {}
        declared = {DEFAULT_STREAM: declared} if isinstance(declared, Stream) or declared else {}
    streams = {}
    for stream, fields in declared.items():
        direct = fields.direct if isinstance(fields, Stream) else False
        names = fields.fields if isinstance(fields, Stream) else fields
        if isinstance(names, str) or not isinstance(names, Sequence):
            problems.append(
                f"{where}: the fields of stream {stream!r} are {names!r}; expected a list of names"
            )
            continue
        streams[stream] = StreamInfo(tuple(names), direct)
    return streams


def grouping_object(grouping: object) -> PythonObject:
    # Imported here: only topologies with a custom grouping pay for it.
    from squall_common.component.groupings import CustomGrouping

    if isinstance(grouping, type):
        raise InvalidTopologyError(
            f"{grouping.__name__} is a class; pass an object of it: {grouping.__name__}(...)"
        )
    if not isinstance(grouping, CustomGrouping) or not isinstance(grouping, Constructed):
        raise InvalidTopologyError(
            f"{grouping!r} is not a CustomGrouping; derive its class from squall.CustomGrouping"
        )
    changed = _changes(grouping)
    if changed:
        raise InvalidTopologyError("; ".join(changed))
    return python_object(grouping)


def hook_object(hook: object, local: list[type] | None = None) -> PythonObject:
    """The form in which a worker hook travels. `local` is as in `python_object`. Raises
    InvalidTopologyError."""
    from squall_common.component.hooks import WorkerHook

    if isinstance(hook, type):
        raise InvalidTopologyError(
            f"{hook.__name__} is a class; pass an object of it: {hook.__name__}(...)"
        )
    if not isinstance(hook, WorkerHook):
        raise InvalidTopologyError(
            f"{hook!r} is not a worker hook; derive its class from squall.WorkerHook"
        )
    changed = _changes(hook)
    if changed:
        raise InvalidTopologyError("; ".join(changed))
    return python_object(hook, local)
