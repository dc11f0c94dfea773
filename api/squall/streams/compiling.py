"""From tasks to a topology: makes the bolt of each, and gives them to a `TopologyBuilder`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from squall._builder import BoltDeclarer, TopologyBuilder
from squall.streams.bolts import (
    AsyncMapBolt,
    CountBolt,
    FoldBolt,
    ProcessBolt,
    StepsBolt,
    TimedCountBolt,
)
from squall.streams.marked import marks_conf
from squall.streams.nodes import AsyncNode, KeyedNode, SinkNode, SourceNode, WindowNode
from squall.streams.plan import steps_of
from squall.streams.tasks import Task
from squall.streams.windowing import (
    ApplyBolt,
    JoinBolt,
    QueuedApplyBolt,
    QueuedJoinBolt,
    QueuedTotalBolt,
    WindowCountBolt,
    WindowFoldBolt,
)
from squall.windows.spec import Windows
from squall_common.component.component import Bolt, Spout
from squall_common.component.groupings import ForwardGrouping


def add_tasks(tasks: Sequence[Task], builder: TopologyBuilder, parallelism: int) -> None:
    """Add a component for each task. Those without a parallelism get this one."""
    for task in tasks:
        named = task.named
        conf = {**marks_conf(task), **named.conf}
        sizes: dict[str, Any] = {"tasks": named.tasks, "conf": conf}
        if task.is_spout:
            assert isinstance(task.node, SourceNode)
            spout = cast(Spout, task.node.component)
            declared = builder.spout(task.id, spout, task.executors(parallelism), **sizes)
            declared._plan = steps_of(task)
            continue
        declarer = builder.bolt(task.id, _bolt_of(task), task.executors(parallelism), **sizes)
        declarer._plan = steps_of(task)
        if task.windows is not None:
            declarer.windowed(task.windows)
        _subscribe(task, declarer)


def _subscribe(task: Task, declarer: BoltDeclarer) -> None:
    for output, grouping in task.inputs:
        if grouping == "key":
            declarer.fields(output.task.id, "key", stream=output.stream)
        elif grouping == "global":
            declarer.global_(output.task.id, stream=output.stream)
        elif grouping == "forward":
            declarer.custom(output.task.id, ForwardGrouping(), stream=output.stream)
        elif grouping == "shuffle":
            declarer.shuffle(output.task.id, stream=output.stream)
        else:
            declarer.local_or_shuffle(output.task.id, stream=output.stream)


def _bolt_of(task: Task) -> Any:
    node = task.node
    if task.steps:
        return StepsBolt(
            [output.encoded_input() for output, _ in task.inputs],
            [step.encoded() for step in task.program],
            [output.encoded_output() for output in task.outputs],
            *([task.marked] if task.marked else []),
        )
    if isinstance(node, SourceNode | SinkNode):
        return node.component
    if isinstance(node, WindowNode):
        return _window_bolt(task, node)
    (result,) = task.outputs
    if isinstance(node, AsyncNode):
        inputs = [output.encoded_input() for output, _ in task.inputs]
        return AsyncMapBolt(inputs, node.function, node.described, result.fields)
    assert isinstance(node, KeyedNode)
    count = TimedCountBolt if result.timed else CountBolt
    kinds = {"count": count, "fold": FoldBolt, "process": ProcessBolt}
    return kinds[node.operation](node.described, result.fields, *node.functions)


def _window_bolt(task: Task, node: WindowNode) -> Bolt:
    label, adds_up = node.described, _adds_up(node.windows)
    if node.operation == "join":
        left = [[output.task.id, output.stream] for output, _ in task.inputs[: task.left]]
        return (JoinBolt if adds_up else QueuedJoinBolt)(node.join, left)
    if node.operation == "apply":
        return (ApplyBolt if adds_up else QueuedApplyBolt)(label, *node.functions)
    if node.operation == "count":
        return WindowCountBolt() if adds_up else QueuedTotalBolt(label, None, None, None)
    if adds_up:
        return WindowFoldBolt(label, *node.functions)
    init, add, _, result = node.functions
    return QueuedTotalBolt(label, init, add, result)


def _adds_up(windows: Windows) -> bool:
    """Whether an `AggregateBolt` can have these windows."""
    if windows.gap_ms is not None:
        return True
    if windows.length_ms is not None:
        return windows.slide_ms is not None
    return windows.slide_count is not None and windows.event_time is None
