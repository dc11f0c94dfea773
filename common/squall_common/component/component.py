"""Spouts and bolts: the base classes of components. (`construction` describes how their objects
get to the workers.)"""

from __future__ import annotations

import logging
from collections.abc import Hashable, Iterable, Mapping, Sequence, Sized
from dataclasses import dataclass, field
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar

from squall_common.component.columns.columns import Columns
from squall_common.component.constructed import RecordsConstruction
from squall_common.component.tuples import Tuple
from squall_common.component.typed import StreamTypes, checking, classes_of
from squall_common.errors import InvalidTopologyError, SquallError

if TYPE_CHECKING:
    from squall_common.component.collector import BoltCollector, SpoutCollector
    from squall_common.component.context import TopologyContext


@dataclass(frozen=True, slots=True, init=False)
class Stream:
    """One output stream: its fields, and whether it is a direct stream. With `direct=True` the
    emitter picks the receiving task: only `emit_direct` can emit on it.

        outputs = {"default": ["word"], "errors": Stream(["why"]), "to": Stream(["n"], direct=True)}

    Fields may declare their types, which every emit is then checked against:

        outputs = Stream({"word": str, "count": int, "note": str | None})
    """

    fields: tuple[str, ...]
    direct: bool
    types: Mapping[str, Any] | None = field(init=False, hash=False)  # by field

    def __init__(self, fields: Sequence[str] | Mapping[str, Any], *, direct: bool = False) -> None:
        if isinstance(fields, str):
            raise InvalidTopologyError(
                f"Stream({fields!r}): fields must be a list of names",
                hint=f"write Stream([{fields!r}])",
            )
        object.__setattr__(self, "fields", tuple(fields))
        object.__setattr__(self, "direct", direct)
        types = dict(fields) if isinstance(fields, Mapping) else None
        for name, declared in (types or {}).items():
            classes_of(declared, name)
        object.__setattr__(self, "types", types)


Outputs = Sequence[str] | Stream | Mapping[str, Sequence[str] | Stream]


def declared_types(outputs: Any) -> dict[str, Mapping[str, Any]]:
    """The types that `outputs` declares: stream -> field -> type. Streams without any are left
    out."""
    streams = outputs if isinstance(outputs, Mapping) else {"default": outputs}
    return {
        stream: fields.types
        for stream, fields in streams.items()
        if isinstance(fields, Stream) and fields.types
    }


class Component(RecordsConstruction):
    """The base of spouts and bolts. Derive from `Spout` or `Bolt`.

    `context` (a `TopologyContext`) and `log` (a `logging.Logger`) are available from `open` or
    `prepare` on, not in the constructor.
    """

    #: The output fields, or a dict of streams: `{"default": ["word"], "errors": Stream(["why"])}`.
    #: A `Stream` may declare types: `Stream({"word": str, "count": int})`.
    outputs: Outputs = ()
    #: Run each task of this component in a separate thread, because it blocks: `next_tuple`,
    #: `execute` or `execute_batch`. Not together with `async def` or `execute_columns`.
    blocking: bool = False
    #: The component's own configuration: options that can be set for one component
    #: (`{"topology.tick.tuple.freq.secs": 5}`), and keys of your own. The constructor may set it.
    #: The `conf` argument of the builder's `spout()` and `bolt()` overrides it.
    component_conf: Mapping[str, Any] = MappingProxyType({})

    context: TopologyContext
    log: logging.Logger

    #: The methods that `_bind` takes from the collector.
    _calls: ClassVar[tuple[str, ...]] = ()

    # Any: a spout's or a bolt's, as Spout and Bolt declare it.
    def _bind(self, collector: Any, context: TopologyContext) -> None:
        """Give the component its collector, in the worker. The collector's bound methods become
        attributes of the component, so that a call goes straight to them. A method that a subclass
        overrides stays, and reaches the collector through `super()`."""
        types = declared_types(self.outputs)
        if types:
            collector = checking(collector, StreamTypes(context.this_component_id, types))
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
        """The collector, for a call that is made through the class or `super()`."""
        collector = getattr(self, "_collector", None)
        if collector is None:
            raise _not_bound(self, f"{call}()")
        if not hasattr(collector, call):
            raise SquallError(
                f"{type(self).__name__}: {call}() cannot be called here",
                hint="it is for bolts that define execute_columns()",
            )
        return collector

    def credentials_updated(self, credentials: Mapping[str, str]) -> None:
        """Called when the topology has got other credentials than those that `context.credentials`
        had in `open` or `prepare`: between two of the component's other methods, on its thread. May
        not be `async def`. An exception is reported as the component's.

            def credentials_updated(self, credentials):
                self.client.log_in(credentials["user"], credentials["password"])
        """

    def report_error(self, exc: BaseException) -> None:
        """Report an error, which `storm get-errors` and the log will show, and continue. At most
        `topology.max.error.report.per.interval` errors per interval are kept."""
        self._bound("report_error").report_error(exc)


class _Unbound:
    """A placeholder for an attribute until the worker sets it. (Not `__getattr__`: in a class that
    has one, every attribute of its objects costs 15 ns more.)"""

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
        f"{type(component).__name__}: {what} is not available yet",
        hint=f"components run in a worker: use it in {start}() or later, not in the constructor",
    )


class Spout(Component):
    """A source of a topology.

    A message that is emitted with a `message_id` is *accepted*: later, exactly one of `ack` and
    `fail` is called with that id, on the task that emitted it, and the source must keep the message
    until `ack`. A tuple that is emitted without an id is not tracked. All methods are called from
    one thread.

        class Sentences(Spout):
            outputs = ["sentence"]

            def open(self, conf, context):
                self.ids = itertools.count()

            def next_tuple(self):
                self.emit(["the cow jumped over the moon"], message_id=next(self.ids))

    `next_tuple` may be `async def`. With `blocking = True` it runs in a separate thread and may
    wait for its source.
    """

    _calls = ("emit", "emit_direct", "emit_columns", "report_error")

    def open(self, conf: Mapping[str, Any], context: TopologyContext) -> Any:
        """Called once in the worker, before any other method. `conf` is the topology's
        configuration, overridden by the component's own. An exception ends the worker. May be
        `async def`, unless the spout is `blocking`."""

    def next_tuple(self) -> Any:
        """Emit one message, or return at once if there is none now. The worker calls it again and
        again."""
        raise NotImplementedError(f"{type(self).__name__} does not define next_tuple()")

    def ack(self, msg_id: Any) -> None:
        """Called when the whole tuple tree of the message with this id has been processed, or
        (`topology.max.replays`) that of its dead letter. The source may now forget the message."""

    def ack_batch(self, msg_ids: Sequence[Any]) -> None:
        """Called instead of `ack`, with the ids of all messages that are done since the last call,
        if a subclass defines it: for a source with many messages, one call is cheaper than one for
        each. An exception is reported, and the call is not repeated."""
        for msg_id in msg_ids:
            self.ack(msg_id)

    def fail(self, msg_id: Any) -> None:
        """Called when the message with this id failed or timed out. Emit it again, or give it
        up."""

    def activate(self) -> None:
        """Called when the topology is activated: from now on `next_tuple` is called."""

    def deactivate(self) -> None:
        """Called when the topology is deactivated or killed: `next_tuple` is no longer called, but
        `ack` and `fail` still are."""

    def exhausted(self) -> bool | None:
        """Whether the source has ended, so that `next_tuple` will emit nothing more. A spout that
        defines this is *bounded*: `storm wait` waits until all spouts of a topology say so, and
        `storm spark run` can run it to its end.

            def exhausted(self):
                return self.at_end and not self.failed  # what it is to emit again

        Called where `next_tuple` is, after a call of it that emitted nothing, about once a second
        at most. It must not block or be a coroutine. While failed messages wait to be emitted
        again it is False. None: as configured, this source has no end. An exception is reported,
        and counts as False."""
        return False

    def close(self) -> Any:
        """Called at a graceful stop, but not if the worker is killed. May be `async def`, unless
        the spout is `blocking`."""

    def emit(
        self, values: Sequence[Any], *, message_id: Hashable | None = None, stream: str = "default"
    ) -> Sequence[int]:
        """Emit a tuple. If it has a `message_id`, it is tracked until `ack` or `fail`.

        Returns the ids of the tasks that receive it. Never waits. Raises ValueError if the values
        do not match the stream's fields. Do not change the values afterwards.
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
        """Emit a tuple to one task, on a direct stream. Otherwise like `emit`."""
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
        """Emit many tuples at once, given as one list for each field, all of the same length. With
        `message_ids`, a list of that length, they are tracked one by one. For the hottest spouts: a
        call costs a third of the same number of calls of `emit`. `topology.max.spout.pending` is
        checked between calls of `next_tuple`, so one call's tuples may exceed it.

            def next_tuple(self):
                lines = list(islice(self.lines, 100))
                self.emit_columns([lines])
        """
        self._bound("emit_columns").emit_columns(columns, message_ids=message_ids, stream=stream)

    @property
    def pending_count(self) -> int:
        """The number of pending messages of this task: emitted with a message id, and neither acked
        nor failed yet (Storm's `getPendingCount`). 0 if nothing is tracked: without ackers, and on
        Spark."""
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

    By default, tuples that `execute` emits are anchored to its input tuple, which is acked when
    `execute` returns and failed when it raises. `execute` may be `async def`; then many tuples are
    processed concurrently. A bolt may define `execute_batch(self, tuples)` or, for the hottest
    paths, `execute_columns(self, columns)` instead. `execute_batch` may be `async def`, or run on
    the bolt's own thread with `blocking = True`, which suits a bolt that writes to a database:

        class Store(Bolt):
            blocking = True

            def execute_batch(self, tuples):
                with self.database:  # one transaction for all
                    self.database.executemany(INSERT, [tup.values for tup in tuples])
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

    #: Ack the tuple when `execute` returns. If False, the bolt must ack or fail every tuple itself.
    auto_ack: bool = True
    #: Anchor emitted tuples to the current tuple, unless `anchors` is given.
    auto_anchor: bool = True
    #: States that the bolt keeps nothing that matters from one tuple to the next, so it may run on
    #: a stream on Spark, where every micro-batch makes a new object. (A bolt that keeps something
    #: is a `StatefulBolt`.)
    stateless: bool = False

    def prepare(self, conf: Mapping[str, Any], context: TopologyContext) -> Any:
        """Called once in the worker, before any other method. `conf` is the topology's
        configuration, overridden by the component's own. An exception ends the worker. May be
        `async def`, unless the bolt is `blocking`."""

    def execute(self, tup: Tuple) -> Any:
        """Process one tuple."""
        raise NotImplementedError(f"{type(self).__name__} does not define execute()")

    def execute_batch(self, tuples: list[Tuple]) -> Any:
        """Process a batch of tuples from one source: those that are waiting, up to 1,024 (with
        `async def`, up to `topology.bolt.async.concurrency`). In a bolt that defines this method,
        `execute` is not called, and `emit` must be given its `anchors`. When the method returns,
        tuples that were not failed are acked (with `auto_ack`); when it raises, tuples that were
        neither acked nor failed fail."""
        raise NotImplementedError(f"{type(self).__name__} does not define execute_batch()")

    def execute_columns(self, columns: Columns) -> None:
        """Process a batch of tuples from one source, given as one list for each field. In a bolt
        that defines this method, `execute` and `execute_batch` are not called.

            def execute_columns(self, columns):
                words, counts = [], []
                for line in columns["line"]:
                    found = line.split()
                    words += found
                    counts.append(len(found))
                self.emit_columns([words], origins=FanOut(counts))

        When the method returns, rows for which neither `columns.ack(row)` nor `columns.fail(row)`
        was called are acked; with `auto_ack` off they stay in flight until one of them is called.
        When the method raises, those rows fail.
        """
        raise NotImplementedError(f"{type(self).__name__} does not define execute_columns()")

    def emit_columns(
        self,
        columns: Sequence[Sequence[Any]],
        *,
        origins: Sequence[int] | None = None,
        stream: str = "default",
    ) -> None:
        """In `execute_columns`, emit many tuples at once, given as one list for each field, all of
        the same length.

        `origins[i]` is the row of the batch to which tuple `i` is anchored. With `origins=None`
        there are as many tuples as rows, and each is anchored to its row. With
        `origins=FanOut(counts)`, `counts[row]` tuples are anchored to each row, in the order of the
        rows: the fast way to make several of one. With `origins=()`, and always with `auto_anchor`
        off, the tuples are not anchored. Raises ValueError if the values do not match the stream's
        fields or the origins the batch, and RuntimeError if a row is already acked or failed; some
        of the tuples may have been emitted by then.
        """
        self._bound("emit_columns").emit_columns(columns, origins=origins, stream=stream)

    def flush(self) -> Any:
        """Called on Spark at the end of the input (on a stream: of each micro-batch), before
        `cleanup`, and before each checkpoint. Emit what was held back. May be `async def`. It is
        not called on a cluster, where the input never ends; a bolt that is driven by ticks usually
        calls it on each tick."""

    def cleanup(self) -> Any:
        """Called at a graceful stop, but not if the worker is killed. May be `async def`, unless
        the bolt is `blocking`."""

    def emit(
        self,
        values: Sequence[Any],
        *,
        anchors: Tuple | Iterable[Tuple] | None = None,
        stream: str = "default",
    ) -> Sequence[int]:
        """Emit a tuple, anchored to the current tuple (`anchors=None`), to the given tuples, or to
        no tuple (`anchors=()`).

        Returns the ids of the tasks that receive it. Never waits. Raises ValueError if the values
        do not match the stream's fields, and RuntimeError if an anchor is already acked or failed.
        Do not change the values afterwards.
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
        """Emit a tuple to one task, on a direct stream. Otherwise like `emit`."""
        result: Sequence[int] = self._bound("emit_direct").emit_direct(
            task, values, anchors=anchors, stream=stream
        )
        return result

    def ack(self, tup: Tuple) -> None:
        """State that this tuple was processed. Raises RuntimeError if it is already acked or
        failed."""
        self._bound("ack").ack(tup)

    def fail(self, tup: Tuple) -> None:
        """State that this tuple could not be processed: its message fails at the spout at once.
        Raises RuntimeError if it is already acked or failed."""
        self._bound("fail").fail(tup)

    def reset_timeout(self, tup: Tuple) -> None:
        """Restart the message timeout of this tuple's message."""
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
        """`command` is the program and `script` its argument; no shell interprets them.
        `environment` is added to the worker's environment. With `change_child_cwd=False` the
        program runs in the worker's folder instead of `resources/`. `serializer` is "json" or
        "msgpack" (None: the topology's topology.multilang.serializer)."""
        setting = object.__setattr__
        setting(self, "command", command)
        setting(self, "script", script)
        setting(self, "outputs", outputs)
        setting(self, "environment", environment)
        setting(self, "change_child_cwd", change_child_cwd)
        setting(self, "serializer", serializer)

    def conf(self) -> dict[str, Any]:
        """The settings that are stored in the component's configuration, because Thrift's
        ShellComponent has no fields for them."""
        conf: dict[str, Any] = {}
        if self.environment:
            conf["topology.multilang.environment"] = dict(self.environment)
        if not self.change_child_cwd:
            conf["topology.multilang.change.child.cwd"] = False
        if self.serializer is not None:
            conf["topology.multilang.serializer"] = self.serializer
        return conf


class ShellWrapper:
    """A bolt that leaves its work to the child process of a shell bolt and stands between the
    worker and the child. For Squall's own use."""

    shell: ShellBolt

    def calls_of_child(self) -> BoltCollector[Any]:
        """The collector that makes the child's calls (emit, ack, fail). Called once, after the bolt
        is bound."""
        raise NotImplementedError

    def admits(self, tup: Any) -> bool:
        """Whether the child gets a tuple. If the answer is False, this bolt acks or fails it."""
        raise NotImplementedError


class ShellSpout(_Shell):
    """A spout in any language that speaks Storm's multilang protocol on its stdin and stdout. It
    runs in the package's `resources/` folder.

        builder.spout("words", ShellSpout("python3", "spout.py", outputs=["word"]))
    """

    __slots__ = ()


class ShellBolt(_Shell):
    """A bolt in any language that speaks Storm's multilang protocol on its stdin and stdout. It
    runs in the package's `resources/` folder.

        split = ShellBolt("ruby", "split.rb", outputs=["word"])
        builder.bolt("split", split, parallelism=4).shuffle("sentences")
    """

    __slots__ = ()
