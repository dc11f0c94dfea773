"""Which tasks of a program send marks of event time (`squall.windows.marks`), and to which: from
where `event_time` is called to windows. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from squall.streams.marking import FROM_INPUT
from squall.streams.nodes import AsyncNode, KeyedNode, WindowNode
from squall.streams.tasks import Output, Task

_FROM = "topology.bolts.watermark.from"


def find_marks(tasks: Sequence[Task]) -> None:
    """Set `marked` and `marks_from` of tasks, which are in order, sources first."""
    has_marks: dict[int, bool] = {}  # by identity of an output
    for task in tasks:
        are_marked = bool(task.inputs) and all(has_marks[id(one)] for one, _ in task.inputs)
        for output in task.outputs:
            has_marks[id(output)] = _has_marks(task, output, are_marked)
    wanted: set[int] = set()
    for task in reversed(tasks):
        inputs = [output for output, _ in task.inputs]
        mine = [one for one in task.outputs if id(one) in wanted]
        senders: list[str] = []
        is_window = isinstance(task.node, WindowNode) and task.node.timed
        origins = {id(one): _origin(task, one) for one in mine} if task.steps else {}
        if is_window:
            passes_on = all(has_marks[id(one)] for one in inputs)
        elif task.steps:
            passes_on = FROM_INPUT in origins.values()
        else:
            passes_on = bool(mine)
        if passes_on:
            wanted |= set(map(id, inputs))
            senders += [one.task.id for one in inputs]
        if any(step != FROM_INPUT for step in origins.values()):
            senders += [one.task.id for one in inputs if one.task.is_spout]  # that say their end
        task.marks_from = list(dict.fromkeys(senders))
        if task.steps:
            task.marked = [[one.stream, origins[id(one)]] for one in mine]


def _has_marks(task: Task, output: Output, are_marked: bool) -> bool:
    """Whether it can be said of a stream how far it is, if it can be of all inputs or not."""
    if not output.timed:
        return False
    if task.steps:
        return are_marked or _origin(task, output) != FROM_INPUT
    if isinstance(task.node, WindowNode):
        return output.stream == "default"  # how late late values are is not known
    return isinstance(task.node, AsyncNode | KeyedNode) and are_marked


def _origin(task: Task, output: Output) -> int:
    """The step of a task of steps that gives the values of a stream their time, or `FROM_INPUT`."""
    step = output.step
    while step != FROM_INPUT and task.steps[step].operation != "event_time":
        step = task.program[step].parent
    return step


def marks_conf(task: Task) -> dict[str, Any]:
    """What the configuration of a task's component says of marks."""
    conf: dict[str, Any] = {}
    if task.marks_from:
        conf[_FROM] = task.marks_from
    is_step = bool(task.steps) or isinstance(task.node, AsyncNode | KeyedNode)
    time = task.named.event_time
    if task.marks_from and is_step and time is not None:
        times = time.conf()
        for key in ("watermark.event.interval.ms", "watermark.idle.timeout.ms"):
            if f"topology.bolts.{key}" in times:
                conf[f"topology.bolts.{key}"] = times[f"topology.bolts.{key}"]
    return conf
