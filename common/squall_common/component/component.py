"""Spouts and bolts: the classes that users write. (`construction` says how they travel.)"""

from __future__ import annotations

import logging
from collections.abc import Hashable, Iterable, Mapping, Sequence, Sized
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar

from squall_common.component.columns import Columns
from squall_common.component.constructed import Remembering
from squall_common.component.tuples import Tuple
from squall_common.errors import InvalidTopologyError, SquallError

if TYPE_CHECKING:
    from squall_common.component.collector import BoltCollector, SpoutCollector
    from squall_common.component.context import TopologyContext


@dataclass(frozen=True, slots=True, init=False)
class Stream:
    """One output stream: its fields, and whether the emitter picks the receiving task
    (`direct=True`: `emit_direct` only)."""

    fields: tuple[str, ...]
    direct: bool

    def __init__(self, fields: Sequence[str], *, direct: bool = False) -> None:
        if isinstance(fields, str):
            raise InvalidTopologyError(
                f"Stream({fields!r}): fields are a list of names",
                hint=f"write Stream([{fields!r}])",
            )
        object.__setattr__(self, "fields", tuple(fields))
        object.__setattr__(self, "direct", direct)


Outputs = Sequence[str] | Mapping[str, Sequence[str] | Stream]


class Component(Remembering):
    """What spouts and bolts share. Derive from `Spout` or `Bolt`.

    `context` (a `TopologyContext`) and `log` (a `logging.Logger`) are there from `open` or
    `prepare` on, not yet in the constructor.
    """

    #: Output fields, or a dict of streams: `{"default": ["word"], "errors": Stream(["why"])}`.
    outputs: Outputs = ()
    #: Run this component in a thread of its own, because it blocks.
    blocking: bool = False
    #: Configuration that it brings along: options that one component may have to itself
    #: (`{"topology.tick.tuple.freq.secs": 5}`) and keys of its own. The constructor may set it, and
    #: `conf` of the builder's `spout()` and `bolt()` counts above it.
    component_conf: Mapping[str, Any] = MappingProxyType({})

    context: TopologyContext
    log: logging.Logger

    #: What `_bind` takes from the collector.
    _calls: ClassVar[tuple[str, ...]] = ()

    # Any: a spout's or a bolt's, as Spout and Bolt declare it.
    def _bind(self, collector: Any, context: TopologyContext) -> None:
        """Give the component its collector, in the worker. The collector's bound methods become
        attributes of the component: a call costs no more than it must. A method that a subclass
        overrides stays, and reaches the collector through `super()`."""
        # Not through `__dict__` (see `construction.travels`), and past any `__setattr__`.
        set_own = partial(object.__setattr__, self)
        set_own("_collector", collector)
        set_own("context", context)
        name = f"topology.{context.this_component_id}.{context.this_task_id}"
        set_own("log", logging.getLogger(name))
        for name in self._calls:
            if _defined_by_squall(type(self), name) and hasattr(collector, name):
                set_own(name, getattr(collector, name))

    def _bound(self, call: str) -> Any:
        """The collector, for a call made through the class or `super()`."""
        collector = getattr(self, "_collector", None)
        if collector is None:
            raise _not_bound(self, f"{call}()")
        if not hasattr(collector, call):
            raise SquallError(
                f"{type(self).__name__}: {call}() cannot be called here",
                hint="it is for bolts that define execute_columns()",
            )
        return collector

    def report_error(self, exc: BaseException) -> None:
        """Show an error in `storm get-errors` and in the log, and go on. At most
        `topology.max.error.report.per.interval` of them are kept in an interval."""
        self._bound("report_error").report_error(exc)


class _Unbound:
    """Stands for an attribute that the worker sets, until it does. (Not `__getattr__`: a class that
    has one pays 15 ns more for every attribute of its objects.)"""

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, component: Component | None, owner: type) -> Any:
        if component is None:
            return self
        raise AttributeError(str(_not_bound(component, self._name)), name=self._name, obj=component)


if not TYPE_CHECKING:
    for _name in ("context", "log"):
        _unbound = _Unbound()
        _unbound.__set_name__(Component, _name)
        setattr(Component, _name, _unbound)


def _defined_by_squall(cls: type, name: str) -> bool:
    return any(name in base.__dict__ for base in (Component, Spout, Bolt)) and all(
        name not in base.__dict__ for base in cls.__mro__ if base not in (Component, Spout, Bolt)
    )


def _not_bound(component: Component, what: str) -> SquallError:
    start = "open" if isinstance(component, Spout) else "prepare"
    return SquallError(
        f"{type(component).__name__}: {what} is not there yet",
        hint=f"components run in a worker: use it in {start}() or later, not in the constructor",
    )


class Spout(Component):
    """A source of a topology.

    A message emitted with a `message_id` is *accepted*: exactly one of `ack` and `fail` is called
    with that id later, on the task that emitted it, and the source must keep the message until
    `ack`. One emitted without is sent and forgotten. All methods are called from one thread.

        class Sentences(Spout):
            outputs = ["sentence"]

            def next_tuple(self):
                self.emit(["the cow jumped over the moon"], message_id=self.next_id())

    `next_tuple` may be `async def`; with `blocking = True` it runs in a thread of its own and may
    wait for its source.
    """

    _calls = ("emit", "emit_direct", "emit_columns", "report_error")

    def open(self, conf: Mapping[str, Any], context: TopologyContext) -> None:
        """Called once, before anything else, in the worker. `conf` is the topology's
        configuration with the component's own on top. An exception ends the worker."""

    def next_tuple(self) -> Any:
        """Emit one message, or return at once when there is none now: the worker asks again."""
        raise NotImplementedError(f"{type(self).__name__} does not define next_tuple()")

    def ack(self, msg_id: Any) -> None:
        """The message with this id was processed by everybody, or (`topology.max.replays`) its dead
        letter was: the source may forget it."""

    def fail(self, msg_id: Any) -> None:
        """The message with this id failed or timed out: emit it again, or give it up."""

    def activate(self) -> None:
        """Called when the topology is activated: `next_tuple` will be called from now on."""

    def deactivate(self) -> None:
        """Called when the topology is deactivated or killed: `next_tuple` is called no more;
        `ack` and `fail` still are."""

    def exhausted(self) -> bool:
        """Whether the source has ended, so that `next_tuple` will emit nothing any more. A spout
        that defines this is *bounded*: `storm spark run` can run it to its end. A cluster does not
        ask."""
        return False

    def close(self) -> None:
        """Called at a graceful stop. There is no such call when the worker is killed."""

    def emit(
        self, values: Sequence[Any], *, message_id: Hashable | None = None, stream: str = "default"
    ) -> Sequence[int]:
        """Emit a tuple; with a `message_id` it is tracked until `ack` or `fail`.

        Returns the ids of the tasks that it goes to. Never waits. Raises when the values do not
        match the stream's fields. The values must not be changed afterwards.
        """
        result: Sequence[int] = self._bound("emit").emit(
            values, message_id=message_id, stream=stream
        )
        return result

    def emit_direct(
        self,
        task: int,
        values: Sequence[Any],
        *,
        message_id: Hashable | None = None,
        stream: str = "default",
    ) -> Sequence[int]:
        """Emit a tuple to one task, on a direct stream."""
        result: Sequence[int] = self._bound("emit_direct").emit_direct(
            task, values, message_id=message_id, stream=stream
        )
        return result

    def emit_columns(
        self,
        columns: Sequence[Sequence[Any]],
        *,
        message_ids: Sequence[Hashable] | None = None,
        stream: str = "default",
    ) -> None:
        """Emit many tuples at once, given as one list for each field, all of one length; with
        `message_ids` (as many) they are tracked one by one. For the hottest spouts: it costs a
        third of as many calls of `emit`. `topology.max.spout.pending` is looked at between calls of
        `next_tuple`, so it may be exceeded by one call's tuples.

            def next_tuple(self):
                lines = list(islice(self.lines, 100))
                self.emit_columns([lines])
        """
        self._bound("emit_columns").emit_columns(columns, message_ids=message_ids, stream=stream)

    @property
    def pending_count(self) -> int:
        """How many messages of this task are under way: emitted with a message id, and neither
        acked nor failed (Storm's `getPendingCount`). 0 where nothing is tracked: without ackers,
        and on Spark."""
        pending: Sized = getattr(self, "_squall_pending", ())
        return len(pending)

    if TYPE_CHECKING:

        def _bind(self, collector: SpoutCollector, context: TopologyContext) -> None: ...


class Bolt(Component):
    """A step of a topology.

        class Split(Bolt):
            outputs = ["word"]

            def execute(self, tup):
                for word in tup["sentence"].split():
                    self.emit([word])

    By default what `execute` emits is anchored to its tuple, and the tuple is acked when `execute`
    returns and failed when it raises. `execute` may be `async def` (then many tuples are worked on
    at once). A bolt may define `execute_batch(self, tuples)` or, for the hottest paths,
    `execute_columns(self, columns)` in its place.
    """

    _calls = (
        "emit",
        "emit_direct",
        "emit_columns",
        "ack",
        "fail",
        "reset_timeout",
        "report_error",
    )

    #: Ack the tuple when `execute` returns. Otherwise every tuple must be acked or failed by hand.
    auto_ack: bool = True
    #: Anchor what is emitted to the current tuple, unless `anchors` says otherwise.
    auto_anchor: bool = True
    #: Keeps nothing from one tuple to the next that matters: it may run on a stream on Spark, where
    #: every micro-batch makes it anew. (A bolt that keeps something is a `StatefulBolt`.)
    stateless: bool = False

    def prepare(self, conf: Mapping[str, Any], context: TopologyContext) -> None:
        """Called once, before anything else, in the worker. `conf` is the topology's
        configuration with the component's own on top. An exception ends the worker."""

    def execute(self, tup: Tuple) -> Any:
        """Process one tuple."""
        raise NotImplementedError(f"{type(self).__name__} does not define execute()")

    def execute_batch(self, tuples: list[Tuple]) -> None:
        """Process some tuples of one source. A bolt that defines this is not asked to `execute`.
        `emit` must name its `anchors`; what was not failed is acked when it returns (`auto_ack`),
        and when it raises, what is not settled fails."""
        raise NotImplementedError(f"{type(self).__name__} does not define execute_batch()")

    def execute_columns(self, columns: Columns) -> None:
        """Process some tuples of one source, as one list for each field. A bolt that defines this
        is asked for neither `execute` nor `execute_batch`.

            def execute_columns(self, columns):
                words, origins = [], []
                for row, line in enumerate(columns["line"]):
                    found = line.split()
                    words += found
                    origins += [row] * len(found)
                self.emit_columns([words], origins=origins)

        What was not settled by `columns.ack(row)` or `columns.fail(row)` is acked when it returns
        (`auto_ack`; otherwise it stays in flight until they are called), and fails when it raises.
        """
        raise NotImplementedError(f"{type(self).__name__} does not define execute_columns()")

    def emit_columns(
        self,
        columns: Sequence[Sequence[Any]],
        *,
        origins: Sequence[int] | None = None,
        stream: str = "default",
    ) -> None:
        """In `execute_columns`: emit many tuples at once, given as one list for each field, all of
        one length. `origins[i]` is the row of the batch that tuple `i` comes from and is anchored
        to; None: as many tuples as rows, each from its row; `()`: anchored to none (as always with
        `auto_anchor` off). Raises when the values do not match the stream's fields or a row is
        settled already; then nothing or a part was emitted."""
        self._bound("emit_columns").emit_columns(columns, origins=origins, stream=stream)

    def flush(self) -> Any:
        """Called on Spark when the input has ended (of a micro-batch, on a stream), before
        `cleanup`: emit what was held back. May be `async def`. On a cluster input has no end and
        nobody calls it; a bolt that is driven by ticks usually calls it itself on each tick."""

    def cleanup(self) -> None:
        """Called at a graceful stop. There is no such call when the worker is killed."""

    def emit(
        self,
        values: Sequence[Any],
        *,
        anchors: Tuple | Iterable[Tuple] | None = None,
        stream: str = "default",
    ) -> Sequence[int]:
        """Emit a tuple, anchored to the current one (`anchors=None`), to those given, or to none
        (`anchors=()`).

        Returns the ids of the tasks that it goes to. Never waits. Raises when the values do not
        match the stream's fields, or an anchor is settled already. The values must not be changed
        afterwards.
        """
        result: Sequence[int] = self._bound("emit").emit(values, anchors=anchors, stream=stream)
        return result

    def emit_direct(
        self,
        task: int,
        values: Sequence[Any],
        *,
        anchors: Tuple | Iterable[Tuple] | None = None,
        stream: str = "default",
    ) -> Sequence[int]:
        """Emit a tuple to one task, on a direct stream."""
        result: Sequence[int] = self._bound("emit_direct").emit_direct(
            task, values, anchors=anchors, stream=stream
        )
        return result

    def ack(self, tup: Tuple) -> None:
        """This tuple was processed. Raises when it is settled already."""
        self._bound("ack").ack(tup)

    def fail(self, tup: Tuple) -> None:
        """This tuple was not processed: its message fails at the spout at once. Raises when it is
        settled already."""
        self._bound("fail").fail(tup)

    def reset_timeout(self, tup: Tuple) -> None:
        """Start the message time-out of this tuple's message anew."""
        self._bound("reset_timeout").reset_timeout(tup)

    if TYPE_CHECKING:

        def _bind(self, collector: BoltCollector[Tuple], context: TopologyContext) -> None: ...


@dataclass(frozen=True, slots=True)
class _Shell:
    command: str
    script: str
    outputs: Outputs
    environment: Mapping[str, str] | None
    change_child_cwd: bool
    serializer: str | None

    def __init__(
        self,
        command: str,
        script: str,
        *,
        outputs: Outputs = (),
        environment: Mapping[str, str] | None = None,
        change_child_cwd: bool = True,
        serializer: str | None = None,
    ) -> None:
        """`command` and `script` are the program's two arguments, as they are: no shell reads them.
        `environment` is added to that of the worker; with `change_child_cwd=False` it runs in the
        worker's folder and not in `resources/`; `serializer` is json (None: the topology's
        topology.multilang.serializer) or msgpack."""
        setting = object.__setattr__
        setting(self, "command", command)
        setting(self, "script", script)
        setting(self, "outputs", outputs)
        setting(self, "environment", environment)
        setting(self, "change_child_cwd", change_child_cwd)
        setting(self, "serializer", serializer)

    def conf(self) -> dict[str, Any]:
        """What of this travels in the component's configuration: Thrift's ShellComponent has no
        room for it."""
        conf: dict[str, Any] = {}
        if self.environment:
            conf["topology.multilang.environment"] = dict(self.environment)
        if not self.change_child_cwd:
            conf["topology.multilang.change.child.cwd"] = False
        if self.serializer is not None:
            conf["topology.multilang.serializer"] = self.serializer
        return conf


class ShellWrapper:
    """A bolt whose work the child of a shell bolt does, and that stands between the worker and the
    child. For parts of squall; what users wrap is up to them."""

    shell: ShellBolt

    def calls_of_child(self) -> BoltCollector[Any]:
        """Makes what the child emits, acks and fails. Asked once the bolt is bound."""
        raise NotImplementedError

    def admits(self, tup: Any) -> bool:
        """Whether the child gets a tuple. Who says no settles it."""
        raise NotImplementedError


class ShellSpout(_Shell):
    """A spout in any language, that speaks Storm's multilang protocol over its stdin and stdout:
    `ShellSpout("python3", "spout.py", outputs=["word"])`. It runs in the package's `resources/`."""

    __slots__ = ()


class ShellBolt(_Shell):
    """A bolt in any language, that speaks Storm's multilang protocol over its stdin and stdout:
    `ShellBolt("ruby", "split.rb", outputs=["word"])`. It runs in the package's `resources/`."""

    __slots__ = ()
