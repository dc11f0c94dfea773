"""The hooks of one task, and the calls that are made to them.

The task's calls are wrapped where they are bound (`squall_engine.build.kinds`): its collector
reports emits, and its `execute` is timed. Acks and fails are reported by the core, as to the test
kit. Hooks that are added later, in `open` or `prepare`, have the task bound once more.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Hashable, Mapping, Sequence
from typing import Any

from squall_common.component.context import TopologyContext
from squall_common.component.hooks import (
    BoltAckInfo,
    BoltExecuteInfo,
    BoltFailInfo,
    EmitInfo,
    SpoutAckInfo,
    SpoutFailInfo,
    TaskHook,
)
from squall_common.errors import SquallError, describe
from squall_common.topology.import_paths import import_path
from squall_engine.core import Columns, Tuple

_EVENTS = ("emit", "spout_ack", "spout_fail", "bolt_execute", "bolt_ack", "bolt_fail")
# Tuples or messages in flight whose start is known, at most; beyond it the oldest have no latency.
# A bolt may never settle a tuple.
_STARTS_MAX = 100_000


class TaskHookError(SquallError):
    """A task hook raised an error, which is the cause."""


class TaskHooks:
    """The hooks of one task. Call all methods on the thread of the task."""

    def __init__(
        self,
        task: int,
        now: Callable[[], float],
        on_error: Callable[[BaseException], None],
        made: Sequence[TaskHook] = (),
    ) -> None:
        """`now()` are seconds; `on_error` reports an error of the task. `made` are hooks that
        `prepare` adds."""
        self._task = task
        self._now = now
        self._on_error = on_error
        self._made = made
        self._hooks: list[TaskHook] = []
        # By event, the hooks that define its method.
        self._called: dict[str, list[Callable[[Any], Any]]] = {event: [] for event in _EVENTS}
        self._started: dict[Any, float] = {}  # tuples of a bolt, or message ids of a spout
        self._columns_start: float | None = None  # of the call whose rows are settled now

    def prepare(self, conf: Mapping[str, Any], context: TopologyContext) -> None:
        """Add the hooks that were made for this task. Raises TaskHookError."""
        for hook in self._made:
            self.add(hook, conf, context)

    def add(self, hook: object, conf: Mapping[str, Any], context: TopologyContext) -> None:
        """Prepare a hook, and call it from now on. Raises SquallError for an object that is not a
        hook, and what its `prepare` raises as TaskHookError."""
        if not isinstance(hook, TaskHook):
            raise SquallError(
                f"{hook!r} is not a task hook", hint="derive its class from squall.TaskHook"
            )
        try:
            hook.prepare(conf, context)
        except Exception as error:
            raise _failed(hook, "prepare", error) from error
        self._hooks.append(hook)
        for event in _EVENTS:
            if getattr(type(hook), event) is not getattr(TaskHook, event):
                self._called[event].append(getattr(hook, event))

    def cleanup(self) -> None:
        """The task ends."""
        for hook in self._hooks:
            try:
                hook.cleanup()
            except Exception as error:
                self._on_error(_failed(hook, "cleanup", error))

    def _call(self, event: str, info: object) -> None:
        for call in self._called[event]:
            try:
                call(info)
            except Exception as error:
                failed = _failed(call.__self__, event, error)  # type: ignore[attr-defined]
                failed.__cause__ = error
                self._on_error(failed)

    # ---- what happens in any task ----

    def emitted(self, values: Sequence[Any], stream: str, targets: Sequence[int] | None) -> None:
        if self._called["emit"]:
            self._call("emit", EmitInfo(values, stream, self._task, targets))

    def _began(self, what: Any, start: float) -> None:
        started = self._started
        started[what] = start
        if len(started) > _STARTS_MAX:
            del started[next(iter(started))]

    def _latency_ms(self, what: Any) -> float | None:
        """Since it began, which is forgotten."""
        start = self._started.pop(what, None)
        return None if start is None else (self._now() - start) * 1000

    # ---- a spout ----

    def message_began(self, message_id: Hashable) -> None:
        self._began(_key_of(message_id), self._now())

    def messages_settled(self, message_ids: Sequence[Any], failed: bool) -> None:
        """The outcome of messages of this spout, after the spout was notified."""
        for message_id in message_ids:
            latency_ms = self._latency_ms(_key_of(message_id))
            if failed:
                self._call("spout_fail", SpoutFailInfo(message_id, self._task, latency_ms))
            else:
                self._call("spout_ack", SpoutAckInfo(message_id, self._task, latency_ms))

    # ---- a bolt ----

    def around(self, execute: Callable[[Tuple], Any]) -> Callable[[Tuple], Any]:
        """`execute` that is reported."""

        def hooked(tup: Tuple) -> None:
            start = self._now()
            self._began(tup, start)
            try:
                execute(tup)
            finally:
                self.executed((tup,), self._now() - start)

        return hooked

    def around_async(
        self, execute: Callable[[Tuple], Awaitable[Any]]
    ) -> Callable[[Tuple], Awaitable[Any]]:
        """A coroutine that is reported."""

        async def hooked(tup: Tuple) -> None:
            start = self._now()
            self._began(tup, start)
            try:
                await execute(tup)
            finally:
                self.executed((tup,), self._now() - start)

        return hooked

    def around_batch(
        self, execute_batch: Callable[[list[Tuple]], Any]
    ) -> Callable[[list[Tuple]], Any]:
        """`execute_batch` that is reported."""

        def hooked(tuples: list[Tuple]) -> None:
            given, start = self._batch_began(tuples)
            try:
                execute_batch(tuples)
            finally:
                self.executed(given, self._now() - start)

        return hooked

    def around_async_batch(
        self, execute_batch: Callable[[list[Tuple]], Awaitable[Any]]
    ) -> Callable[[list[Tuple]], Awaitable[Any]]:
        """A coroutine for a batch that is reported."""

        async def hooked(tuples: list[Tuple]) -> None:
            given, start = self._batch_began(tuples)
            try:
                await execute_batch(tuples)
            finally:
                self.executed(given, self._now() - start)

        return hooked

    def _batch_began(self, tuples: Sequence[Tuple]) -> tuple[tuple[Tuple, ...], float]:
        start = self._now()
        for tup in tuples:
            self._began(tup, start)
        return tuple(tuples), start  # the component may change its list

    def around_columns(
        self, execute_columns: Callable[[Columns], Any], *, auto_ack: bool = True
    ) -> Callable[[Columns], Any]:
        """`execute_columns` that is reported, row by row. (The rows are tuples only here: they
        equal those that are acked, but are not the same objects.)"""

        def hooked(columns: Columns) -> None:
            rows = _rows(columns) if self._called["bolt_execute"] else []
            self._columns_start = start = self._now()
            try:
                execute_columns(columns)
            finally:
                if not auto_ack:
                    self._columns_start = None
                tuples = [Tuple(row, 0, 0, columns.source, True) for row in rows]
                self.executed(tuples, self._now() - start)

        return hooked

    def began(self, tup: Tuple, start: float) -> None:
        """A shell bolt was given a tuple: that is all of its execution that is seen here."""
        self._began(tup, start)
        self.executed((tup,), self._now() - start)

    def executed(self, tuples: Sequence[Tuple], secs: float) -> None:
        """Tuples were executed in one call."""
        if tuples and self._called["bolt_execute"]:
            each_ms = secs * 1000 / len(tuples)
            for tup in tuples:
                self._call("bolt_execute", BoltExecuteInfo(tup, self._task, each_ms))

    def settled(self, tup: Tuple, failed: bool) -> None:
        """A tuple was acked or failed."""
        self._settled(tup, failed, self._latency_ms(tup))

    def row_settled(self, tup: Tuple, failed: bool) -> None:
        """Likewise a row of a batch that is fed as columns: one of the last call, if the bolt acks
        automatically; otherwise it may be of any."""
        start = self._columns_start
        self._settled(tup, failed, None if start is None else (self._now() - start) * 1000)

    def _settled(self, tup: Tuple, failed: bool, latency_ms: float | None) -> None:
        if failed:
            self._call("bolt_fail", BoltFailInfo(tup, self._task, latency_ms))
        else:
            self._call("bolt_ack", BoltAckInfo(tup, self._task, latency_ms))


def make_hook(class_path: str) -> TaskHook:
    """An object of a class that `topology.auto.task.hooks` names. Raises SquallError."""
    where = f"topology.auto.task.hooks: {class_path}"
    cls = import_path(class_path)
    if not isinstance(cls, type) or not issubclass(cls, TaskHook):
        raise SquallError(f"{where} is not a task hook", hint="derive it from squall.TaskHook")
    try:
        return cls()
    except Exception as error:
        raise TaskHookError(
            f"{where} cannot be created: {describe(error)}",
            hint="its constructor is called without arguments",
        ) from error


def _rows(columns: Columns) -> list[tuple[Any, ...]]:
    if not columns.fields:
        return [()] * columns.rows
    return list(zip(*columns, strict=True))


def _failed(hook: TaskHook, method: str, error: BaseException) -> TaskHookError:
    name = type(hook).__name__
    return TaskHookError(f"task hook {name}: {method}() failed: {describe(error)}")


def _key_of(message_id: Any) -> Any:
    """The id, or its text if it cannot be in a dict."""
    try:
        hash(message_id)
    except TypeError:
        return repr(message_id)
    return message_id
