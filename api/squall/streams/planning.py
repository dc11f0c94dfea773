"""From a graph of calls to tasks: which steps run together, what they send each other, and under
which ids.

Narrow steps that follow each other are one task, also where they branch. A task begins at a source,
at a merge, after what has to move values (a key, a window, an async map, a bolt), and where two
steps have different names. Pure: nothing here makes a bolt.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from squall.streams.marked import find_marks
from squall.streams.nodes import (
    AsyncNode,
    Graph,
    KeyedNode,
    LateNode,
    Node,
    SinkNode,
    SourceNode,
    StepNode,
    WindowNode,
)
from squall.streams.steps import Step
from squall.streams.tasks import Output, Task
from squall.streams.values import TIME_FIELD, Layout, fields_of

LATE = "late"

_INNER = frozenset({"arm", "values", "key_by", "fields", "event_time"})


def tasks_of(graph: Graph) -> list[Task]:
    """The tasks of a program, sources before consumers. Adds what is wrong to the graph."""
    return _Planner(graph).run()


class _Planner:
    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._tasks: list[Task] = []
        self._of: dict[Node, Task] = {}
        self._children: dict[Node, list[Node]] = {node: [] for node in graph.nodes}
        for node in graph.nodes:
            for parent in node.parents:
                self._children[parent].append(node)
        self._needs_time = set(self._with_time())

    def run(self) -> list[Task]:
        for node in self._graph.nodes:
            if isinstance(node, StepNode):
                self._of[node] = self._steps(node)
            elif isinstance(node, LateNode):
                self._of[node] = self._of[node.parents[0]]
            else:
                self._of[node] = task = Task(node)
                self._tasks.append(task)
        self._name()
        for node in self._graph.nodes:
            if isinstance(node, StepNode) and node.is_output:
                self._output(node, Layout.VALUE, timed=False)
        for node in self._graph.nodes:
            self._connect(node)
        for node in self._graph.nodes:
            taken = [one for one in self._children[node] if not isinstance(one, LateNode)]
            if not taken and _emits(node):
                self._output(node, Layout.VALUE, timed=False)
        find_marks(self._tasks)
        return self._tasks

    def _with_time(self) -> Iterator[Node]:
        """The nodes whose values' times a window further on asks for."""
        found: set[Node] = set()
        for node in reversed(self._graph.nodes):
            for child in self._children[node]:
                if isinstance(child, WindowNode):
                    asks = child.windows.event_time is not None
                elif isinstance(child, SourceNode | SinkNode):
                    asks = False
                else:
                    again = isinstance(child, StepNode) and child.operation == "event_time"
                    asks = child in found and not again
                if asks:
                    if node.timed:
                        found.add(node)
                    elif isinstance(child, WindowNode):
                        self._graph.problems.append(
                            f"{child.where}: {child.label}: its windows are in event time, but the "
                            "stream has no event_time()"
                        )
        return iter(found)

    # -- which steps run together --

    def _steps(self, node: StepNode) -> Task:
        parent = node.parents[0]
        task = self._of.get(parent) if len(node.parents) == 1 else None
        if task is None or not task.steps or not _one_name(task, node):
            task = Task(node)
            self._tasks.append(task)
        task.steps.append(node)
        same = len(task.steps) > 1
        task.program.append(
            Step(
                parent=task.place_of(parent) if same else -1,
                operation=node.operation,
                function=node.function,
                label=node.described,
                extra=_extra(node),
            )
        )
        return task

    def _name(self) -> None:
        first: dict[str, Node] = {}
        for task in self._tasks:
            node = task.named
            if node.id is None:
                continue
            problem = None
            if not isinstance(node.id, str):
                problem = f"the id is {node.id!r}; expected a text"
            elif first.setdefault(node.id, node) is not node:
                problem = f"the id {node.id!r} is that of {first[node.id].described} already"
            if problem is not None:
                self._graph.problems.append(f"{node.where}: {node.label}: {problem}")
        taken = {task.named.id for task in self._tasks if task.named.id is not None}
        for task in self._tasks:
            given = task.named.id
            if given is None:
                name = _id_of(task)
                given, number = name, 1
                while given in taken:
                    number += 1
                    given = f"{name}-{number}"
                taken.add(given)
            task.id = given

    # -- what they send each other --

    def _connect(self, node: Node) -> None:
        if isinstance(node, LateNode):
            return  # a stream of its windows
        task = self._of[node]
        if isinstance(node, StepNode):
            if node is not task.steps[0]:
                return
            for parent in node.parents:
                grouping = _in_order(parent, "local_or_shuffle")
                self._input(task, parent, grouping, timed=node.timed)
        elif isinstance(node, AsyncNode):
            self._input(task, node.parents[0], "shuffle", timed=node.timed)
        elif isinstance(node, KeyedNode):
            layout = Layout.KEY if node.operation == "count" else Layout.KEYED
            timed = node in self._needs_time
            task.inputs.append((self._output(node.parents[0], layout, timed=timed), "key"))
        elif isinstance(node, WindowNode):
            self._connect_windows(task, node)
        else:
            for parent in node.parents:
                output = self._output(parent, Layout.VALUE, timed=False)
                by_key = output.layout is Layout.KEYED
                task.inputs.append((output, "key" if by_key else _in_order(parent, "shuffle")))

    def _connect_windows(self, task: Task, node: WindowNode) -> None:
        time = node.windows.event_time
        if not node.by_key and (node.parallelism or 1) != 1:
            self._graph.problems.append(
                f"{node.where}: {node.label}: windows without a key are in one task; leave out "
                "parallelism, or call key_by() before window()"
            )
        if node.late and time is None:
            self._graph.problems.append(
                f"{node.where}: {node.label}: late() needs windows in event time; call event_time()"
            )
        only_counts = node.operation == "count" and node.by_key and not node.late
        layout = Layout.KEY if only_counts else Layout.KEYED
        first, *others = [
            self._output(parent, layout, timed=time is not None, again=side > 0)
            for side, parent in enumerate(node.parents)
        ]
        for output in (first, *others):
            task.inputs.append((output, "key" if node.by_key else "global"))
        task.left = 1
        # The time of a result of windows is their end, which has no field `at`.
        task.windows = replace(
            node.windows,
            key=("key",) if node.by_key else (),
            event_time=time
            and replace(time, field=TIME_FIELD, late_stream=LATE if node.late else None),
        )

    def _input(self, task: Task, parent: Node, grouping: str, *, timed: bool) -> None:
        timed = timed and parent in self._needs_time
        task.inputs.append((self._output(parent, Layout.VALUE, timed=timed), grouping))

    def _output(self, node: Node, layout: Layout, *, timed: bool, again: bool = False) -> Output:
        """The stream that carries the values of a node. With `again` one of its own, for the other
        side of a join."""
        task = self._of[node]
        step = -1
        if isinstance(node, StepNode):
            step = task.place_of(node)
            if layout is Layout.VALUE:
                layout = _own_layout(node)
            fields = list(node.extra) if layout is Layout.NAMED else fields_of(layout, timed=timed)
        elif isinstance(node, SourceNode):
            layout, fields, timed = node.layout, list(node.fields), False
        elif isinstance(node, LateNode):
            layout, fields, timed = Layout.LATE, fields_of(Layout.LATE, timed=True), True
        elif isinstance(node, WindowNode):
            layout = Layout.WINDOW
            fields, timed = fields_of(layout, timed=False), node.timed
        else:
            timed = node in self._needs_time
            layout = Layout.PAIR if _is_pair(node) else Layout.VALUE
            fields = fields_of(layout, timed=timed)
        for output in task.outputs:
            if not again and (output.step, output.layout, output.timed) == (step, layout, timed):
                return output
        made = Output(task, self._stream_of(task, node), layout, timed, fields, step)
        if isinstance(node, SourceNode):
            made.of = node.of
        task.outputs.append(made)
        return made

    def _stream_of(self, task: Task, node: Node) -> str:
        if isinstance(node, SourceNode):
            return node.stream
        if isinstance(node, LateNode | WindowNode):
            return LATE if isinstance(node, LateNode) else "default"
        return "default" if not task.outputs else f"stream-{len(task.outputs) + 1}"


def _extra(node: StepNode) -> Any:
    """What a step gets beside its function."""
    time = node.time
    if time is None:
        return node.extra
    idle_ms = None if time.idle_secs is None else round(time.idle_secs * 1000)
    interval_ms = round(time.watermark_interval_secs * 1000)
    return [round(time.lag_secs * 1000), idle_ms, interval_ms, node.parts]


def _one_name(task: Task, node: StepNode) -> bool:
    """Whether a step may join a task: they do not have two names."""
    given = task.named.id
    return given is None or node.id is None or given == node.id


def _in_order(node: Node, otherwise: str) -> str:
    """The grouping by which the values of a node reach steps and sinks. Results of one key do not
    overtake each other: the last one counts, where a table keeps one row for each key. They go to
    the task of their key, or, where the values do not say it any more, to one task from each."""
    if not _has_order(node):
        return otherwise
    if isinstance(node, WindowNode) or _is_pair(node):
        return "key"
    return "forward"


def _has_order(node: Node) -> bool:
    """Whether the values are results by key or of windows, and what steps made of them."""
    if isinstance(node, StepNode):
        return any(map(_has_order, node.parents))
    return isinstance(node, KeyedNode | WindowNode)


def _is_pair(node: Node) -> bool:
    """Whether the values are a key with its result."""
    return isinstance(node, KeyedNode) and node.operation != "process"


def _own_layout(node: StepNode) -> Layout:
    if node.operation == "fields":
        return Layout.NAMED
    return Layout.KEYED if node.operation == "key_by" else Layout.VALUE


def _emits(node: Node) -> bool:
    """Whether the values of a node that nobody takes are emitted all the same: its component's
    stream is what Spark writes and tests look at."""
    if isinstance(node, SinkNode | SourceNode | LateNode):
        return False
    ends = ("print", "branch", "peek", "arm")
    return node.id is not None or not (isinstance(node, StepNode) and node.operation in ends)


def _id_of(task: Task) -> str:
    """An id that says what the task does: "flat_map-split", "window-count"."""
    outer = [node for node in task.steps if node.operation not in _INNER] or task.steps
    node: Node = outer[-1] if outer else task.node
    if isinstance(node, WindowNode):
        joins = "co_group" if node.join == "group" else "join"
        return joins if node.join else f"window-{node.label.partition('(')[0]}"
    call, _, inner = node.label.partition("(")
    inner = inner.removesuffix(")").replace(".", "_")
    return f"{call}-{inner}" if inner.isidentifier() else call
