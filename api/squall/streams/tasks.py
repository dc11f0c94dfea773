"""The tasks of a program, and the streams that they emit, as `planning` finds them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from squall.streams.functions import Spec
from squall.streams.nodes import Node, SinkNode, SourceNode, StepNode, WindowNode
from squall.streams.steps import Step
from squall.streams.values import Layout
from squall.windows.spec import Windows


@dataclass(eq=False, slots=True)
class Output:
    """A stream that a task emits; of a task of steps, `step` is the one whose values these are."""

    task: Task
    stream: str
    layout: Layout
    timed: bool
    fields: list[str]
    step: int = -1
    of: Spec = None

    def encoded_input(self) -> list[Any]:
        """As an input of a bolt of ours."""
        return [self.task.id, self.stream, self.layout.value, self.timed, self.of]

    def encoded_output(self) -> list[Any]:
        """As an output of a task of steps."""
        return [self.step, self.stream, self.layout.value, self.timed, self.fields]


@dataclass(eq=False, slots=True)
class Task:
    """A component: a source, fused steps, or one operation."""

    node: Node  # of the source or the operation; of steps: the first
    id: str = ""
    steps: list[StepNode] = field(default_factory=list)
    program: list[Step] = field(default_factory=list)
    inputs: list[tuple[Output, str]] = field(default_factory=list)  # with a grouping
    outputs: list[Output] = field(default_factory=list)
    left: int = 0  # of a join: how many of the inputs are on the left
    windows: Windows | None = None
    marked: list[list[Any]] = field(default_factory=list)  # as `StepsBolt` gets it
    marks_from: list[str] = field(default_factory=list)  # the components whose marks it gets

    @property
    def named(self) -> Node:
        """The node that the user named; otherwise the last."""
        nodes: list[Node] = [*self.steps] if self.steps else [self.node]
        return next((node for node in nodes if node.id is not None), nodes[-1])

    def executors(self, default: int) -> int:
        """How many it has: those that the user gave it, or else the program's `default`."""
        node = self.node
        alone = isinstance(node, WindowNode) and not node.by_key
        if self.named.parallelism is not None:
            return self.named.parallelism
        return 1 if alone or isinstance(node, SourceNode | SinkNode) else default

    @property
    def is_spout(self) -> bool:
        return isinstance(self.node, SourceNode) and not self.node.parents

    @property
    def shown(self) -> list[Node]:
        """What it does, for people: a call each."""
        nodes: list[Node] = [*self.steps] if self.steps else [self.node]
        return [node for node in nodes if getattr(node, "operation", "") != "arm"]

    def place_of(self, step: Node) -> int:
        """The place of a step in the program."""
        return self.steps.index(step)  # type: ignore[arg-type]
