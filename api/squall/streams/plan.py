"""The plan of a program: its components, what each does, and what it gets from where; as text, and
as what travels with each component for the UI and the CLI."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from squall.streams.functions import path_of
from squall.streams.nodes import (
    AsyncNode,
    KeyedNode,
    Node,
    SinkNode,
    SourceNode,
    StepNode,
    WindowNode,
)
from squall.streams.tasks import Output, Task
from squall.windows.spec import WindowPlan, options_of
from squall.windows.words import words_of
from squall_common.component.component import ShellBolt, ShellSpout
from squall_common.topology.plan import PlanStep

_OWN = "squall.streams."  # modules of this room


@dataclass(frozen=True, slots=True)
class Plan:
    """The components that streams become.

        builder = StreamBuilder()
        builder.source("lines", Sentences(), of=str).map(str.lower).print()
        print(builder.plan())

    `rows` has one for each component: its id, how many executors it has, what it does, and the
    streams that it gets, with their groupings.
    """

    rows: tuple[tuple[str, str, str, str], ...]

    def __str__(self) -> str:
        widths = [max((len(row[i]) for row in self.rows), default=0) for i in range(3)]
        lines = []
        for row in self.rows:
            padded = [text.ljust(width) for text, width in zip(row, widths, strict=False)]
            lines.append("  ".join([*padded, row[3]]).rstrip())
        return "\n".join(lines)


def plan_of(tasks: Sequence[Task], parallelism: int) -> Plan:
    """The plan of tasks, of which those without a parallelism have this one."""
    return Plan(tuple(_row(task, parallelism) for task in tasks))


def _row(task: Task, parallelism: int) -> tuple[str, str, str, str]:
    named = task.named
    executors = task.executors(parallelism)
    size = f"×{executors}" if named.tasks is None else f"×{executors}, {named.tasks} tasks"
    what = ", ".join(node.label for node in task.shown)
    if isinstance(task.node, WindowNode):
        windows = task.node.windows
        read = WindowPlan.read(options_of(windows.conf()))
        what = f"{what} over {words_of(read, event_time=windows.event_time is not None)}"
    inputs = " and ".join(f"{_source(output)} ({_grouping(how)})" for output, how in task.inputs)
    return task.id, size, what, f"<- {inputs}" if inputs else ""


def _source(output: Output) -> str:
    if output.stream == "default":
        return output.task.id
    return f"{output.task.id}:{output.stream}"


def _grouping(how: str) -> str:
    return {"key": "by key", "forward": "in order"}.get(how, how.replace("_", " "))


def steps_of(task: Task) -> tuple[PlanStep, ...]:
    """What a component does. (Its windows, if it has any, follow from its configuration.)"""
    return tuple(PlanStep(node.label, _paths(node)) for node in task.shown)


def _paths(node: Node) -> tuple[str, ...]:
    paths = dict.fromkeys(path_of(one) for one in _called(node) if one is not None)
    return tuple(path for path in paths if not path.startswith(_OWN))


def _called(node: Node) -> Iterator[Any]:
    """The functions and classes of the user's that a node calls."""
    if isinstance(node, SourceNode | SinkNode):
        if not isinstance(node.component, ShellSpout | ShellBolt):
            yield type(node.component)
        if isinstance(node, SourceNode):
            yield node.of
    elif isinstance(node, StepNode):
        yield node.function
        if node.operation == "branch":
            yield from node.extra
    elif isinstance(node, AsyncNode):
        yield node.function
    elif isinstance(node, KeyedNode | WindowNode):
        yield from node.functions
