"""The plan of a program as text: its components, what each does, and what it gets from where."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from squall.streams.nodes import SourceNode, WindowNode
from squall.streams.planning import Output, Task
from squall.windows.spec import Windows


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
    executors = named.parallelism or (1 if _alone(task) else parallelism)
    size = f"×{executors}" if named.tasks is None else f"×{executors}, {named.tasks} tasks"
    what = ", ".join(task.shown)
    if isinstance(task.node, WindowNode):
        what = f"{what} over {_windows(task.node.windows)}"
    inputs = " and ".join(f"{_source(output)} ({_grouping(how)})" for output, how in task.inputs)
    return task.id, size, what, f"<- {inputs}" if inputs else ""


def _alone(task: Task) -> bool:
    return isinstance(task.node, SourceNode) or (
        isinstance(task.node, WindowNode) and not task.node.by_key
    )


def _source(output: Output) -> str:
    if output.stream == "default":
        return output.task.id
    return f"{output.task.id}:{output.stream}"


def _grouping(how: str) -> str:
    return "by key" if how == "key" else how.replace("_", " ")


def _windows(windows: Windows) -> str:
    time = "event time" if windows.event_time is not None else "processing time"
    if windows.gap_ms is not None:
        return f"sessions with a gap of {_secs(windows.gap_ms)} of {time}"
    length = _length(windows.length_ms, windows.length_count)
    interval = _length(windows.slide_ms, windows.slide_count)
    kind = f"tumbling {length}" if length == interval else f"{length} every {interval}"
    counts = windows.length_ms is None and windows.slide_ms is None
    return kind if counts and windows.event_time is None else f"{kind} of {time}"


def _length(millis: int | None, count: int | None) -> str:
    return f"{count} values" if millis is None else _secs(millis)


def _secs(millis: int) -> str:
    return f"{millis / 1000:g} s"
