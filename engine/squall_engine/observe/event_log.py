"""The event log: a sample of what components emit, for people, switched on while a topology runs.

The tuples that Nimbus' `debug` asks for go to `events.log` beside the worker's log, written by a
thread. Nothing waits for it: events that do not fit are dropped and counted.

Tuples are looked at where they are taken from an edge of their component, and only while somebody
asks for them: the edges are wrapped then, and at no other time. Of the edges that one stream has,
those to its first consumer are looked at, so that a tuple counts once however many consumers there
are; a stream without a consumer has no events.
"""

from __future__ import annotations

import logging
import logging.handlers
import queue
import random
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from squall_common.cluster.values import DebugOptions
from squall_common.daemon.logs import get_logger
from squall_common.names import is_system_id
from squall_common.topology.model import GroupingKind
from squall_engine.core import MANY, Batch, Source
from squall_engine.dataflow.outgoing import TupleBuffer
from squall_engine.plan import Plan

log = get_logger(__name__)

_QUEUE_MAX = 2_000
_VALUE_CHARS_MAX = 1_000
_FILE_BYTES_MAX = 10 * 1024 * 1024
_OLD_FILES_MAX = 5
_CLOSE_SECS = 1.0

# When, where from, the messages or trees, the values.
_Event = tuple[float, Source, list[str], list[Any]]


class EventEdge:
    """An edge whose tuples are looked at when they are taken."""

    __slots__ = ("_look", "inner")

    def __init__(self, inner: TupleBuffer, look: Callable[[Batch], None]) -> None:
        self.inner = inner
        self._look = look

    def __len__(self) -> int:
        return len(self.inner)

    def drop_oldest(self, keep: int) -> None:
        self.inner.drop_oldest(keep)

    def take(self) -> Batch:
        batch = self.inner.take()
        if len(batch):
            self._look(batch)
        return batch


class EventLog:
    """Samples what the tasks of a worker emit. Call its methods on the loop."""

    def __init__(
        self,
        plan: Plan,
        wrap: Callable[[Callable[[TupleBuffer, str, str, int], TupleBuffer]], None],
        message_of: Callable[[int], str | None],
    ) -> None:
        """`wrap(f)` replaces each edge by `f(edge, component, stream, target task)`; `message_of`
        names the message of a root if its spout runs here."""
        self._plan = plan
        self._wrap = wrap
        self._message_of = message_of
        self._random = random.Random()
        self._path: Path | None = None
        self._every = 0.0  # percent of the components that have none of their own
        self._of: dict[str, float] = {}
        self._queue: queue.Queue[_Event | None] = queue.Queue(_QUEUE_MAX)
        self._thread: threading.Thread | None = None
        self.dropped = 0

    def write_to(self, path: Path) -> None:
        """The file to write to, once there is something to write."""
        self._path = path

    def sample(self, topology_id: str, debug: Mapping[str, DebugOptions]) -> None:
        """Set what to sample from now on, by component; the topology's own options are under its
        id."""
        found = {
            name: (options.sampling_pct if options.enable else 0.0)
            for name, options in debug.items()
        }
        every = found.pop(topology_id, 0.0)
        if (every, found) == (self._every, self._of):
            return
        log.info("event_sampling", topology_percent=every, components=found)
        self._every, self._of = every, found
        if (every or any(found.values())) and not self._open():
            return
        self._wrap(self._wrapped)

    def _open(self) -> bool:
        """Start to write, if that is possible."""
        if self._thread is None and self._path is not None:
            try:
                handler = logging.handlers.RotatingFileHandler(
                    self._path,
                    maxBytes=_FILE_BYTES_MAX,
                    backupCount=_OLD_FILES_MAX,
                    encoding="utf-8",
                )
            except OSError as error:
                log.error("event_log_not_opened", error=error)
                return False
            self._thread = threading.Thread(
                target=self._write, args=(handler,), name="event log", daemon=True
            )
            self._thread.start()
        return self._thread is not None

    def _wrapped(self, edge: TupleBuffer, component: str, stream: str, task: int) -> TupleBuffer:
        """What stands in an edge's place now."""
        inner = edge.inner if isinstance(edge, EventEdge) else edge
        percent = self._of.get(component, self._every)
        if percent and not is_system_id(stream) and self._is_first(component, stream, task):
            return EventEdge(inner, self._look)
        return inner

    def _is_first(self, component: str, stream: str, task: int) -> bool:
        """Whether a task is of the first consumer of a stream, or with an all grouping the one that
        stands for all of its tasks."""
        for consumer, grouping in self._plan.consumers_of(component, stream):
            if consumer.id != self._plan.task_to_component[task]:
                return False
            if grouping.kind is GroupingKind.ALL:
                return task == min(self._plan.tasks_of[consumer.id])
            return True
        return False

    def _look(self, batch: Batch) -> None:
        percent = self._of.get(batch.source.component, self._every)
        draw = self._random.random
        picked = [i for i in range(len(batch)) if draw() * 100 < percent]
        if not picked:
            return
        tuples = batch.as_tuples()
        for place in picked:
            tup = tuples[place]
            roots = list(tup.anchors or ()) if tup.root == MANY else [tup.root] if tup.root else []
            messages = [self._message_of(root) or f"tree {root:016x}" for root in roots]
            event = (time.time(), tup.source, messages, list(tup.values))
            try:
                self._queue.put_nowait(event)
            except queue.Full:
                if not self.dropped:
                    log.warning("events_dropped", why="the event log is behind")
                self.dropped += 1

    def _write(self, handler: logging.Handler) -> None:
        while (event := self._queue.get()) is not None:
            at, source, messages, values = event
            stamp = time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(at))
            what = ", ".join(messages) or "no message"
            line = (
                f"{stamp} {source.component} {source.task} {source.stream} [{_printable(what)}] "
                f"{_printable(_shown(values))}"
            )
            handler.emit(logging.LogRecord("events", logging.INFO, "", 0, "%s", (line,), None))
        handler.close()

    def close(self) -> None:
        """Write the events that wait, and end."""
        if self._thread is not None:
            try:
                self._queue.put(None, timeout=_CLOSE_SECS)
            except queue.Full:
                return
            self._thread.join(_CLOSE_SECS)


def _shown(values: list[Any]) -> str:
    try:
        text = repr(values)
    except Exception as error:  # a user's own __repr__
        text = f"<no repr: {type(error).__name__}>"
    return text if len(text) <= _VALUE_CHARS_MAX else f"{text[:_VALUE_CHARS_MAX]}..."


def _printable(text: str) -> str:
    """Nothing from a topology can forge a line."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
