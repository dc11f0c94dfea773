"""`StreamBuilder`: makes a topology of streams."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar, overload

from squall._builder import TopologyBuilder
from squall.streams.compiling import add_tasks
from squall.streams.nodes import Graph
from squall.streams.plan import Plan, plan_of
from squall.streams.planning import tasks_of
from squall.streams.stream import Stream, source_node
from squall_common.component.component import ShellSpout, Spout
from squall_common.errors import InvalidTopologyError
from squall_common.topology.model import Topology

T = TypeVar("T")


class StreamBuilder:
    """Puts a topology together from streams.

        builder = StreamBuilder()
        lines = builder.source("lines", Sentences(), of=str)
        words = lines.flat_map(str.split)
        words.key_by().count().print()
        topology = builder.build()

    Steps that look at one value after the other are fused into one bolt; what follows a key, a
    window or an async map is another one. `print(builder.plan())` shows them.

    Nothing is checked until `build`, which reports everything that is wrong at once.
    """

    def __init__(self, parallelism: int = 1) -> None:
        """`parallelism` is that of the components that `named` gives none; sources, sinks and
        windows without a key have one."""
        self._graph = Graph()
        self._parallelism = parallelism

    @overload
    def source(
        self,
        id: str,
        spout: Spout | ShellSpout,
        of: Callable[..., T],
        *,
        stream: str = "default",
        parallelism: int | None = None,
        tasks: int | None = None,
        conf: Mapping[str, Any] | None = None,
    ) -> Stream[T]: ...

    @overload
    def source(
        self,
        id: str,
        spout: Spout | ShellSpout,
        of: None = None,
        *,
        stream: str = "default",
        parallelism: int | None = None,
        tasks: int | None = None,
        conf: Mapping[str, Any] | None = None,
    ) -> Stream[Any]: ...

    def source(
        self,
        id: str,
        spout: Spout | ShellSpout,
        of: Callable[..., Any] | None = None,
        *,
        stream: str = "default",
        parallelism: int | None = None,
        tasks: int | None = None,
        conf: Mapping[str, Any] | None = None,
    ) -> Stream[Any]:
        """The stream of a spout, which is the component `id`.

        A spout with one field gives the field's values; `of` is then only their type, for type
        checkers. A spout with several gives `of(field=value, ...)`, such as a dataclass; without
        `of`, a dict. The other arguments are as in `TopologyBuilder.spout`.

            builder = StreamBuilder()
            lines = builder.source("lines", Sentences(), of=str)
        """
        label = f"source({type(spout).__name__})"
        node = source_node(self._graph, id, spout, of, stream, label=label)
        node.parallelism, node.tasks, node.conf = parallelism, tasks, dict(conf or {})
        return Stream(self._graph, node)

    def plan(self) -> Plan:
        """The components that the streams become, for people. Raises InvalidTopologyError as
        `build` does for calls that are wrong."""
        tasks = tasks_of(self._checked())
        self._checked()
        return plan_of(tasks, self._parallelism)

    def to_topology_builder(self) -> TopologyBuilder:
        """The components in a new `TopologyBuilder`, for what streams do not have, such as worker
        hooks. Raises InvalidTopologyError for calls that are wrong."""
        tasks = tasks_of(self._checked())
        self._checked()
        builder = TopologyBuilder()
        add_tasks(tasks, builder, self._parallelism)
        return builder

    def build(self) -> Topology:
        """Return the topology. Raises InvalidTopologyError, which lists all its problems."""
        return self.to_topology_builder().build()

    def __repr__(self) -> str:
        return f"StreamBuilder({len(self._graph.nodes)} steps)"

    def _checked(self) -> Graph:
        problems = list(dict.fromkeys(self._graph.problems))
        if problems:
            raise InvalidTopologyError.listing(problems)
        return self._graph
