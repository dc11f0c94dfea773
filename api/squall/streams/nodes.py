"""The graph that a program builds by calling the methods of streams: one node for each call."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from squall.streams.functions import Spec
from squall.streams.values import Layout
from squall.windows.shell import RESULTS_LAG_MS
from squall.windows.spec import EventTime, Windows
from squall_common.component.component import Bolt, ShellBolt, ShellSpout, Spout

RESULTS_LAG_SECS = RESULTS_LAG_MS / 1000


@dataclass(eq=False, slots=True, kw_only=True)
class Node:
    """One call. `id` and the fields below it are those of the task, where the user named it."""

    parents: tuple[Node, ...] = ()
    label: str  # "map(split)"
    where: str = ""  # "words.py:12"
    id: str | None = None
    parallelism: int | None = None
    tasks: int | None = None
    conf: dict[str, Any] = field(default_factory=dict)

    @property
    def described(self) -> str:
        """What it is, and which line of the program wrote it."""
        return f"{self.label}, {self.where}" if self.where else self.label

    @property
    def timed(self) -> bool:
        """Whether its values have a time at which they happened."""
        return bool(self.parents) and self.parents[0].timed

    @property
    def event_time(self) -> EventTime | None:
        """How far out of order its values come."""
        return self.parents[0].event_time if self.parents else None


@dataclass(eq=False, slots=True, kw_only=True)
class SourceNode(Node):
    """A stream of a spout or bolt of the user's."""

    component: Spout | ShellSpout | Bolt | ShellBolt
    stream: str
    fields: tuple[str, ...]
    of: Spec  # None: the value of a single field, or a dict

    @property
    def timed(self) -> bool:
        return False

    @property
    def event_time(self) -> EventTime | None:
        return None

    @property
    def layout(self) -> Layout:
        return Layout.FIELD if len(self.fields) == 1 else Layout.ROW


@dataclass(eq=False, slots=True, kw_only=True)
class StepNode(Node):
    """A narrow step, or a merge, which is one with several parents."""

    operation: str
    function: Spec = None
    extra: Any = None
    time: EventTime | None = None  # of the operation "event_time"
    parts: Spec = None  # of the same
    is_output: bool = False  # its values are the stream "default" of its task

    @property
    def timed(self) -> bool:
        return self.time is not None or self.parents[0].timed

    @property
    def event_time(self) -> EventTime | None:
        return self.time or common_time(parent.event_time for parent in self.parents)


@dataclass(eq=False, slots=True, kw_only=True)
class AsyncNode(Node):
    """An async map."""

    function: Spec


@dataclass(eq=False, slots=True, kw_only=True)
class KeyedNode(Node):
    """An operation with a state for each key; its parent is a step "key_by"."""

    operation: str  # "count", "fold" or "process"
    functions: tuple[Spec, ...] = ()


@dataclass(eq=False, slots=True, kw_only=True)
class WindowNode(Node):
    """An operation on windows; its parents are steps "key_by", two for a join. Without a key, all
    values are in one task."""

    operation: str  # "count", "fold", "apply" or "join"
    windows: Windows
    by_key: bool = True
    functions: tuple[Spec, ...] = ()
    join: str = ""
    late: bool = False  # whether the program takes its late values

    @property
    def timed(self) -> bool:
        return self.windows.event_time is not None

    @property
    def event_time(self) -> EventTime | None:
        """Results of windows that end together have one time, and may come in several turns: the
        watermark of windows further on stays before it until later results come."""
        time = self.windows.event_time
        return time and replace(time, lag_secs=max(time.lag_secs, RESULTS_LAG_SECS))


@dataclass(eq=False, slots=True, kw_only=True)
class LateNode(Node):
    """The late values of windows, which are its parent."""


@dataclass(eq=False, slots=True, kw_only=True)
class SinkNode(Node):
    """A bolt of the user's that gets a stream."""

    component: Bolt | ShellBolt


_OWN = str(Path(__file__).parent)


def call_site() -> str:
    """The file and line of the program that called into this room."""
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_OWN):
        frame = frame.f_back
    return f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno}"


@dataclass(slots=True)
class Graph:
    """All nodes of a program, parents first, and what is wrong with them."""

    nodes: list[Node] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)

    def add(self, node: Node) -> Node:
        """Add a node, and return it."""
        node.where = node.where or call_site()
        self.nodes.append(node)
        return node

    def problem(self, label: str, what: str) -> None:
        """Note what is wrong with a call, for `build`."""
        self.problems.append(f"{call_site()}: {label}: {what}")


def with_time(windows: Windows, stream_time: EventTime | None) -> EventTime | None:
    """The event time of windows over a stream: what theirs leaves at its default is that of the
    stream."""
    own = windows.event_time
    if own is None or stream_time is None:
        return own if stream_time is None else stream_time
    given = {one.name: getattr(own, one.name) for one in fields(own)}
    changed = {one.name: given[one.name] for one in fields(own) if given[one.name] != one.default}
    return replace(stream_time, **changed)


def common_time(times: Iterable[EventTime | None]) -> EventTime | None:
    """The event time of several streams together, which waits for the one that is most out of
    order. A silent input holds windows up unless all streams say how long."""
    found = [time for time in times if time is not None]
    if not found:
        return None
    idle = [time.idle_secs for time in found if time.idle_secs is not None]
    return replace(
        found[0],
        lag_secs=max(time.lag_secs for time in found),
        watermark_interval_secs=min(time.watermark_interval_secs for time in found),
        idle_secs=max(idle) if len(idle) == len(found) else None,
        allowed_lateness_secs=max(time.allowed_lateness_secs for time in found),
    )
