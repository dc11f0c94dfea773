"""The streams of a program: `Stream`, `KeyedStream` and `WindowedStream`.

They only describe. Each method adds a node to the graph of the `StreamBuilder` and returns the
stream that comes of it; what is wrong is reported by `build`, all of it at once.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any, Generic, TypeVar, cast, overload

from squall.streams.bolts import KeyState
from squall.streams.functions import Spec, kind_problem, name_of, spec_of
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
    common_time,
    with_time,
)
from squall.streams.values import Windowed
from squall.windows.spec import EventTime, Windows
from squall_common.component.component import Bolt, ShellBolt
from squall_common.errors import InvalidTopologyError

T = TypeVar("T", covariant=True)
K = TypeVar("K", bound=Hashable, covariant=True)
R = TypeVar("R")
S = TypeVar("S")
A = TypeVar("A")
U = TypeVar("U")
H = TypeVar("H", bound=Hashable)
V = TypeVar("V")
L = TypeVar("L", covariant=True)
_Self = TypeVar("_Self", bound="Stream[Any]")

_CONCURRENCY = "topology.bolt.async.concurrency"


class Stream(Generic[T]):
    """A stream of values of type `T`.

        builder = StreamBuilder()
        lines = builder.source("lines", Sentences(), of=str)
        lines.map(str.lower).filter(str.isascii).print()
        topology = builder.build()

    Functions travel to the workers by import path: use functions of a module, classes, methods of
    classes (`str.lower`), and `functools.partial` for arguments. A lambda or a function that is
    made inside another one is refused by `build`.

    A value for which a function raises fails, as in a bolt: its message is emitted again by a
    spout that can.
    """

    def __init__(self, graph: Graph, node: Node) -> None:
        self._graph = graph
        self._node = node

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._node.label}>"

    # -- one value after the other --

    def map(self, function: Callable[[T], R]) -> Stream[R]:
        """The results of a function."""
        return Stream(self._graph, self._step("map", function))

    def filter(self, predicate: Callable[[T], Any]) -> Stream[T]:
        """The values for which `predicate` is true."""
        return Stream(self._graph, self._step("filter", predicate))

    def flat_map(self, function: Callable[[T], Iterable[R]]) -> Stream[R]:
        """The values in the lists that a function returns, or the values that it yields."""
        return Stream(self._graph, self._step("flat_map", function))

    def peek(self, function: Callable[[T], Any]) -> Stream[T]:
        """The same values, after calling a function with each."""
        return Stream(self._graph, self._step("peek", function))

    def print(self, prefix: str = "") -> Stream[T]:
        """The same values, after writing each to standard output, a line each. On a cluster that is
        the worker's log."""
        label = f"print({prefix!r})" if prefix else "print()"
        return Stream(self._graph, self._node_of("print", label, extra=prefix))

    def map_async(self, function: Callable[[T], Awaitable[R]], concurrency: int = 100) -> Stream[R]:
        """The results of an async function, of which each task awaits up to `concurrency` at a
        time. Results come as they are ready, in any order."""
        label = f"map_async({name_of(function)})"
        if not isinstance(concurrency, int) or isinstance(concurrency, bool) or concurrency < 1:
            self._graph.problem(label, f"concurrency is {concurrency!r}; expected 1 or more")
            concurrency = 1
        node = AsyncNode(
            parents=(self._node,),
            label=label,
            function=_spec(self._graph, "map_async", function),
            conf={_CONCURRENCY: concurrency},
        )
        return Stream(self._graph, self._graph.add(node))

    def branch(self, *predicates: Callable[[T], Any]) -> tuple[Stream[T], ...]:
        """One stream for each predicate. A value goes to the first whose predicate is true for it,
        and nowhere if none is.

            def is_small(amount: int) -> bool:
                return amount < 100

            def split(amounts):
                small, large = amounts.branch(is_small, bool)
        """
        label = f"branch({', '.join(map(name_of, predicates))})"
        if not predicates:
            self._graph.problem(label, "expected one predicate or more")
        specs = [_spec(self._graph, "branch", one) for one in predicates]
        parent = self._node_of("branch", label, extra=specs)
        return tuple(
            Stream(self._graph, self._node_of("arm", name_of(one), extra=arm, parent=parent))
            for arm, one in enumerate(predicates)
        )

    def merge(self: Stream[R], *others: Stream[R]) -> Stream[R]:
        """The values of this stream and of others. In event time the largest lag counts."""
        label = "merge()"
        known = [one for one in others if _belongs(self._graph, label, one)]
        parents = (self._node, *(other._node for other in known))
        if len(set(parents)) != len(parents):
            self._graph.problem(label, "a stream is merged with itself")
        if len({parent.timed for parent in parents}) > 1:
            self._graph.problem(label, "only some of the streams have event_time()")
        node = StepNode(parents=parents, label=label, operation="merge")
        return Stream(self._graph, self._graph.add(node))

    # -- time, keys, windows --

    def event_time(
        self: _Self,
        at: Callable[[T], int | datetime],
        *,
        lag_secs: float = 0.0,
        idle_secs: float | None = None,
        watermark_interval_secs: float = 1.0,
        parts: Callable[[T], Hashable] | None = None,
    ) -> Stream[T]:
        """The same values, each with the time at which it happened: `at` returns milliseconds since
        the epoch or a datetime with a time zone. What comes of a value has its time, so windows
        further on are in event time.

        Windows wait for the task of the source that is furthest behind. If a task reads several
        files or partitions, `parts` returns which one a value is from, and they wait for the
        furthest behind of these: `parts=itemgetter("path")`. `lag_secs` is how far out of order the
        values of one task, or one part, are. One from which nothing came for `idle_secs` while
        others went on does not count (None: for 30 s; for 10 s if nothing has come from it at all),
        nor does a task whose source has ended. `watermark_interval_secs` is that of `EventTime`."""
        node = self._step("event_time", at)
        assert isinstance(node, StepNode)
        if parts is not None:
            node.parts = _spec(self._graph, "parts", parts)
        time = EventTime(
            lag_secs=lag_secs,
            idle_secs=idle_secs,
            watermark_interval_secs=watermark_interval_secs,
        )
        node.time = time if _is_sound(self._graph, node.label, time) else EventTime()
        return Stream(self._graph, node)

    @overload
    def key_by(self: Stream[H]) -> KeyedStream[H, H]: ...

    @overload
    def key_by(self, key: Callable[[T], H]) -> KeyedStream[H, T]: ...

    def key_by(self, key: Callable[[Any], Any] | None = None) -> KeyedStream[Any, Any]:
        """The same values by a key, which a function returns; without one, the value is the key.
        Values with the same key are processed by the same task, one after the other."""
        if key is None:
            return KeyedStream(self._graph, self._node_of("key_by", "key_by()"))
        return KeyedStream(self._graph, self._step("key_by", key))

    def window(self, windows: Windows) -> WindowedStream[None, T]:
        """Windows over all values, in one task: `tumbling`, `sliding` or `session` of
        `squall.windows`. What their `EventTime` leaves at its default is that of `event_time`."""
        parent = self._node
        if not (isinstance(parent, StepNode)):
            parent = self._node_of("values", "values")
        node = self._node_of("key_by", "all()", function=_nothing, parent=parent)
        return WindowedStream(self._graph, node, windows, by_key=False)

    # -- ends --

    def to(
        self,
        id: str,
        bolt: Bolt | ShellBolt,
        *,
        fields: Sequence[str] = (),
        parallelism: int | None = None,
        tasks: int | None = None,
        conf: Mapping[str, Any] | None = None,
    ) -> None:
        """Give the values to a bolt, which is the component `id`. Without `fields`, its tuples have
        one field `value`; results by key have `key` and `value`, and results of windows also
        `start_ms` and `end_ms`. With `fields`, each value is taken apart: a dict by its keys, a
        tuple or list by its length, anything else by its attributes. With one field, a value that
        has no attribute of its name, such as a text, is the field itself."""
        parent = self._named(fields)
        self._graph.add(
            SinkNode(
                parents=(parent,),
                label=f"to({type(bolt).__name__})",
                component=bolt,
                id=id,
                parallelism=parallelism,
                tasks=tasks,
                conf=dict(conf or {}),
            )
        )

    def through(
        self,
        id: str,
        bolt: Bolt,
        *,
        of: Callable[..., R] | None = None,
        fields: Sequence[str] = (),
        stream: str = "default",
        parallelism: int | None = None,
        tasks: int | None = None,
        conf: Mapping[str, Any] | None = None,
    ) -> Stream[R]:
        """The values that a bolt of your own makes of these. It gets tuples as in `to`; what it
        emits on `stream` is read as `StreamBuilder.source` reads a spout's."""
        parent = self._named(fields)
        node = source_node(
            self._graph,
            id,
            bolt,
            of,
            stream,
            label=f"through({type(bolt).__name__})",
            parents=(parent,),
        )
        node.parallelism, node.tasks, node.conf = parallelism, tasks, dict(conf or {})
        return Stream(self._graph, node)

    def output(self, id: str, fields: Sequence[str] = ()) -> Stream[Any]:
        """The same values, emitted by a component `id`, for those that read it by its name: `storm
        spark run --output id=PATH`, the test kit, and a bolt that follows with `to`. `fields` is as
        in `to`; the values are then a tuple of them each."""
        if not fields and not isinstance(self._node, StepNode) and self._node.id is None:
            self._node.id = id  # its only stream
            return self
        node = self._named(fields)
        if not isinstance(node, StepNode) or node is self._node:
            node = self._node_of("values", "output()")
        node.id = id
        node.is_output = True
        return Stream(self._graph, node)

    def named(
        self: _Self,
        id: str,
        parallelism: int | None = None,
        tasks: int | None = None,
        conf: Mapping[str, Any] | None = None,
    ) -> _Self:
        """Give the component that runs the last step an id, a parallelism, a number of tasks and a
        configuration, as in `TopologyBuilder`. Steps that are fused with it share them. Name what
        keeps a state: it is kept under this name.

            lines = StreamBuilder().source("lines", Sentences(), of=str)
            words = lines.flat_map(str.split).named("split", parallelism=4)
        """
        if self._node.id is not None:
            self._graph.problem(
                f"named({id!r})", f"{self._node.label} is {self._node.id!r} already"
            )
        self._node.id = id
        self._node.parallelism = parallelism
        self._node.tasks = tasks
        self._node.conf.update(conf or {})
        return self

    # -- how nodes are made --

    def _step(self, operation: str, function: Any) -> StepNode:
        spec = _spec(self._graph, operation, function)
        return self._node_of(operation, f"{operation}({name_of(function)})", function=spec)

    def _node_of(
        self,
        operation: str,
        label: str,
        *,
        function: Spec = None,
        extra: Any = None,
        parent: Node | None = None,
    ) -> StepNode:
        node = StepNode(
            parents=(parent or self._node,),
            label=label,
            operation=operation,
            function=function,
            extra=extra,
        )
        self._graph.add(node)
        return node

    def _named(self, fields: Sequence[str]) -> Node:
        """The node whose values are given away: those of a field for each name."""
        if isinstance(fields, str):
            self._graph.problem("fields", f"{fields!r} is a text; write [{fields!r}]")
            return self._node
        if not fields:
            return self._node
        return self._node_of("fields", f"fields({', '.join(fields)})", extra=list(fields))


class KeyedStream(Stream[T], Generic[K, T]):
    """A stream of values of type `T` by a key of type `K`, as `key_by` makes it.

        words = StreamBuilder().source("words", Sentences(), of=str)
        words.key_by().count().print()
        words.key_by(len).reduce(max).print("largest of each length: ")

    What is kept for each key is kept as in a `StatefulBolt`. `map` and the other methods of
    `Stream` see the values, without the key.
    """

    def count(self) -> Stream[tuple[K, int]]:
        """How many values each key has had: emitted with each value."""
        return Stream(self._graph, self._keyed("count", "count()"))

    def reduce(self: KeyedStream[Any, V], function: Callable[[V, V], V]) -> Stream[tuple[K, V]]:
        """The values of each key, put together two by two: `function(so far, value)`. The first
        value is the first result. Emitted with each value."""
        label = f"reduce({name_of(function)})"
        spec = _spec(self._graph, "reduce", function)
        return Stream(self._graph, self._keyed("fold", label, None, spec, None))

    @overload
    def aggregate(self, init: Callable[[], A], add: Callable[[A, T], A]) -> Stream[tuple[K, A]]: ...

    @overload
    def aggregate(
        self, init: Callable[[], A], add: Callable[[A, T], A], result: Callable[[A], R]
    ) -> Stream[tuple[K, R]]: ...

    def aggregate(
        self,
        init: Callable[[], Any],
        add: Callable[[Any, T], Any],
        result: Callable[[Any], Any] | None = None,
    ) -> Stream[tuple[K, Any]]:
        """The total of the values of each key: `init()` is that of none, `add(total, value)` that
        with one value more, and `result(total)` (without it, the total) is emitted with each
        value."""
        label = f"aggregate({name_of(add)})"
        specs = _specs(self._graph, "aggregate", init, add, result)
        return Stream(self._graph, self._keyed("fold", label, *specs))

    def update_state_by_key(
        self, update: Callable[[S, T], S], init: Callable[[], S]
    ) -> Stream[tuple[K, S]]:
        """The state of each key after each value: `update(state, value)` returns the next one, and
        `init()` the first."""
        label = f"update_state_by_key({name_of(update)})"
        init_spec, spec = _specs(self._graph, "update_state_by_key", init, update)
        return Stream(self._graph, self._keyed("fold", label, init_spec, spec, None))

    def process(self, function: Callable[[K, T, KeyState[Any]], Iterable[R] | None]) -> Stream[R]:
        """The values that `function(key, value, state)` returns or yields. `state` is that of the
        key: see `KeyState`.

            def new_users(key, value, state):
                if state.get() is None:
                    state.put(True)
                    yield value
        """
        label = f"process({name_of(function)})"
        spec = _spec(self._graph, "process", function)
        return Stream(self._graph, self._keyed("process", label, spec))

    def window(  # type: ignore[override]
        self, windows: Windows
    ) -> WindowedStream[K, T]:
        """Windows of each key: `tumbling`, `sliding` or `session` of `squall.windows`. They are in
        event time if the stream has `event_time`. What the `EventTime` of `windows` leaves at its
        default is that of the stream:

            late = EventTime(allowed_lateness_secs=60)
            words = StreamBuilder().source("words", Sentences(), of=str).event_time(len, lag_secs=5)
            words.key_by().window(tumbling(secs=60, event_time=late)).count().print()
        """
        return WindowedStream(self._graph, self._node, windows, by_key=True)

    def join(
        self, other: KeyedStream[Any, U], windows: Windows
    ) -> WindowResults[Windowed[K, tuple[T, U]], T | U]:
        """Each pair of values with the same key that are in the same window. In event time the
        larger lag of the two streams counts."""
        return WindowResults(self._graph, self._join("inner", other, windows))

    def left_join(
        self, other: KeyedStream[Any, U], windows: Windows
    ) -> WindowResults[Windowed[K, tuple[T, U | None]], T | U]:
        """The same, and values of this stream without a partner, with None."""
        return WindowResults(self._graph, self._join("left", other, windows))

    def right_join(
        self, other: KeyedStream[Any, U], windows: Windows
    ) -> WindowResults[Windowed[K, tuple[T | None, U]], T | U]:
        """The same as `join`, and values of the other stream without a partner, with None."""
        return WindowResults(self._graph, self._join("right", other, windows))

    def full_join(
        self, other: KeyedStream[Any, U], windows: Windows
    ) -> WindowResults[Windowed[K, tuple[T | None, U | None]], T | U]:
        """The same as `join`, and values of either stream without a partner, with None."""
        return WindowResults(self._graph, self._join("full", other, windows))

    def co_group(
        self, other: KeyedStream[Any, U], windows: Windows
    ) -> WindowResults[Windowed[K, tuple[list[T], list[U]]], T | U]:
        """For each key and window the values of this stream and those of the other one."""
        return WindowResults(self._graph, self._join("group", other, windows))

    def _keyed(self, operation: str, label: str, *functions: Spec) -> Node:
        node = KeyedNode(
            parents=(self._node,), label=label, operation=operation, functions=functions
        )
        return self._graph.add(node)

    def _join(self, kind: str, other: KeyedStream[Any, Any], windows: Windows) -> Node:
        label = (
            "co_group()" if kind == "group" else f"{'' if kind == 'inner' else kind + '_'}join()"
        )
        if not isinstance(other, KeyedStream):
            self._graph.problem(label, "expected a stream by key; call key_by() on it")
            return self._node
        if not _belongs(self._graph, label, other):
            return self._node
        times = (self._node.event_time, other._node.event_time)
        windows = checked_windows(self._graph, label, windows)
        if windows.event_time is None and (times[0] is None) != (times[1] is None):
            self._graph.problem(label, "only one of the streams has event_time()")
        node = WindowNode(
            parents=(self._node, other._node),
            label=label,
            operation="join",
            windows=replace(windows, event_time=with_time(windows, common_time(times))),
            join=kind,
        )
        return self._graph.add(node)


class WindowResults(Stream[T], Generic[T, L]):
    """The results of windows over values of type `L`; `late` has the values that came too late."""

    def late(self) -> Stream[L]:
        """The values that came too late for their windows, each with its own time. Without this
        they are dropped, and counted in the log.

            words = StreamBuilder().source("words", Sentences(), of=str).event_time(len)
            counts = words.key_by().window(tumbling(secs=60)).count()
            counts.print()
            counts.late().print("too late: ")
        """
        windows = self._node
        assert isinstance(windows, WindowNode)
        windows.late = True
        node = self._graph.add(LateNode(parents=(windows,), label="late()"))
        return Stream(self._graph, self._node_of("late", "late()", parent=node))


class WindowedStream(Generic[K, T]):
    """The windows of a stream of values of type `T`, by a key of type `K`; None without a key.

        words = StreamBuilder().source("words", Sentences(), of=str)
        words.key_by().window(tumbling(secs=60)).count().print()

    Each operation makes a stream of `Windowed`, one for each key and window.
    """

    def __init__(self, graph: Graph, node: Node, windows: Windows, *, by_key: bool) -> None:
        self._graph = graph
        self._node = node
        self._by_key = by_key
        windows = checked_windows(graph, "window()", windows)
        self._windows = replace(windows, event_time=with_time(windows, node.event_time))

    def __repr__(self) -> str:
        return f"<WindowedStream {self._node.label}>"

    def count(self) -> WindowResults[Windowed[K, int], T]:
        """How many values each window holds."""
        return WindowResults(self._graph, self._window("count", "count()"))

    def reduce(
        self: WindowedStream[Any, V], function: Callable[[V, V], V]
    ) -> WindowResults[Windowed[K, V], V]:
        """The values of each window, put together two by two. The function must be associative:
        what it makes of several values is put together, too."""
        label = f"reduce({name_of(function)})"
        spec = _spec(self._graph, "reduce", function)
        return WindowResults(self._graph, self._window("fold", label, None, spec, spec, None))

    @overload
    def aggregate(
        self,
        init: Callable[[], A],
        add: Callable[[A, T], A],
        merge: Callable[[A, A], A],
    ) -> WindowResults[Windowed[K, A], T]: ...

    @overload
    def aggregate(
        self,
        init: Callable[[], A],
        add: Callable[[A, T], A],
        merge: Callable[[A, A], A],
        result: Callable[[A], R],
    ) -> WindowResults[Windowed[K, R], T]: ...

    def aggregate(
        self,
        init: Callable[[], Any],
        add: Callable[[Any, T], Any],
        merge: Callable[[Any, Any], Any],
        result: Callable[[Any], Any] | None = None,
    ) -> WindowResults[Windowed[K, Any], T]:
        """The total of each window: `init()` is that of no value, `add(total, value)` that with one
        value more, `merge(first, second)` that of two, which it must not change. `result(total)`
        is emitted; without it, the total. As in an `AggregateBolt`, each value costs the same, in
        however many sliding windows it is."""
        label = f"aggregate({name_of(add)})"
        specs = _specs(self._graph, "aggregate", init, add, merge, result)
        return WindowResults(self._graph, self._window("fold", label, *specs))

    def group(self) -> WindowResults[Windowed[K, list[T]], T]:
        """The values of each window, as a list, in the order in which they came."""
        return WindowResults(self._graph, self._window("apply", "group()", None))

    def apply(self, function: Callable[[list[T]], R]) -> WindowResults[Windowed[K, R], T]:
        """What a function makes of the list of values of each window."""
        label = f"apply({name_of(function)})"
        spec = _spec(self._graph, "apply", function)
        return WindowResults(self._graph, self._window("apply", label, spec))

    def _window(self, operation: str, label: str, *functions: Spec) -> Node:
        node = WindowNode(
            parents=(self._node,),
            label=label,
            operation=operation,
            windows=self._windows,
            by_key=self._by_key,
            functions=functions,
        )
        return self._graph.add(node)


def source_node(
    graph: Graph,
    id: str,
    component: Any,
    of: Any,
    stream: str,
    *,
    label: str,
    parents: tuple[Node, ...] = (),
) -> SourceNode:
    """The node of a spout, or of a bolt of the user's."""
    outputs = getattr(component, "outputs", ())
    if not isinstance(outputs, Mapping):
        outputs = {"default": outputs}
    declared: Any = outputs.get(stream, ())
    names: Any = getattr(declared, "fields", declared)
    fields = tuple(names)
    if not fields:
        has = ", ".join(map(repr, outputs)) if any(outputs.values()) else "none"
        graph.problem(label, f"{id!r} has no fields on stream {stream!r} (it has {has})")
        fields = ("value",)
    node = SourceNode(
        parents=parents,
        label=label,
        id=id,
        component=component,
        stream=stream,
        fields=fields,
        of=_spec(graph, "of", of) if len(fields) > 1 and of not in (None, dict) else None,
    )
    return cast(SourceNode, graph.add(node))


def checked_windows(graph: Graph, label: str, windows: Any) -> Windows:
    """The windows of an operation, whose key and field of the timestamp are ours."""
    if not isinstance(windows, Windows):
        graph.problem(
            label, f"{windows!r:.100}: expected tumbling(...), sliding(...) or session(...)"
        )
        return Windows(length_count=1, slide_count=1)
    if windows.key:
        graph.problem(label, f"the windows have key={windows.key!r}; use key_by() instead")
    time = windows.event_time
    if time is not None and time.field is not None:
        graph.problem(
            label,
            f"EventTime names the field {time.field!r}; say what the time is with event_time()",
        )
    if time is not None and time.late_stream is not None:
        graph.problem(label, "EventTime has a late_stream; call late() on the results instead")
    if time is not None and not _is_sound(graph, label, time):
        time = None
    return replace(windows, key=(), event_time=time)


def _is_sound(graph: Graph, label: str, time: EventTime) -> bool:
    """Whether the numbers of an event time are right; notes what is wrong with them."""
    try:
        time.conf()
    except InvalidTopologyError as error:
        graph.problem(label, str(error))
        return False
    return True


def _belongs(graph: Graph, label: str, other: Any) -> bool:
    """Whether it is a stream of the same builder; notes if it is not."""
    if not isinstance(other, Stream):
        graph.problem(label, f"{other!r:.100} is not a stream")
        return False
    if other._graph is not graph:
        graph.problem(label, "the other stream is one of another StreamBuilder")
        return False
    return True


def _specs(graph: Graph, operation: str, *functions: Any) -> list[Spec]:
    return [None if one is None else _spec(graph, operation, one) for one in functions]


def _spec(graph: Graph, operation: str, function: Any) -> Spec:
    """How a function travels. Notes what is wrong with it."""
    label = f"{operation}({name_of(function)})"
    try:
        spec = spec_of(function)
    except InvalidTopologyError as error:
        graph.problem(label, str(error).replace("\n", "; "))
        return None
    problem = kind_problem(operation, function)
    if problem is not None:
        graph.problem(label, "; ".join(problem))
    return spec


def _nothing(value: Any) -> None:
    """The key of all values together."""
