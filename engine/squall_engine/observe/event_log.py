"""The event log: a sample of what components emit, for people, switched on while a topology runs.

With `topology.eventlogger.executors` above 0 every emit is inspected (so the collectors' fast paths
are off), and the samples that Nimbus' `debug` asks for go to `events.log` beside the worker's log,
written by a thread. Nothing waits for it: events that do not fit are dropped and counted.
"""

from __future__ import annotations

import logging
import logging.handlers
import queue
import random
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from squall_common.cluster.values import DebugOptions
from squall_common.daemon.logs import get_logger
from squall_engine.core.values import Inspector, Source

log = get_logger(__name__)

_QUEUE_MAX = 2_000
_VALUE_CHARS_MAX = 1_000
_FILE_BYTES_MAX = 10 * 1024 * 1024
_OLD_FILES_MAX = 5
_CLOSE_SECS = 1.0


class EventLog(Inspector):
    """Samples emits. `open` gives it a file; before that, and without, nothing is sampled."""

    def __init__(self, inner: Inspector | None = None) -> None:
        self._inner = inner
        self._random = random.Random()
        self._every = 0.0  # percent of the components that have none of their own
        self._of: dict[str, float] = {}
        self._queue: queue.Queue[tuple[float, Source, list[Any]] | None] = queue.Queue(_QUEUE_MAX)
        self._thread: threading.Thread | None = None
        self.dropped = 0

    def open(self, path: Path) -> None:
        """Write to a file from now on. Raises OSError."""
        handler = logging.handlers.RotatingFileHandler(
            path, maxBytes=_FILE_BYTES_MAX, backupCount=_OLD_FILES_MAX, encoding="utf-8"
        )
        self._thread = threading.Thread(
            target=self._write, args=(handler,), name="event log", daemon=True
        )
        self._thread.start()

    def sample(self, topology_id: str, debug: Mapping[str, DebugOptions]) -> None:
        """Set what to sample from now on, by component; the topology's own options are under its
        id."""
        found = {
            name: (options.sampling_pct if options.enable else 0.0)
            for name, options in debug.items()
        }
        every = found.pop(topology_id, 0.0)
        if (every, found) != (self._every, self._of):
            log.info("event_sampling", topology_percent=every, components=found)
        self._every, self._of = every, found

    def inspect(self, source: Source, values: Sequence[Any]) -> Sequence[Any]:
        percent = self._of.get(source.component, self._every)
        if percent and self._thread is not None and self._random.random() * 100 < percent:
            try:
                self._queue.put_nowait((time.time(), source, list(values)))
            except queue.Full:
                if not self.dropped:
                    log.warning("events_dropped", why="the event log is behind")
                self.dropped += 1
        return values if self._inner is None else self._inner.inspect(source, values)

    def _write(self, handler: logging.Handler) -> None:
        while (event := self._queue.get()) is not None:
            at, source, values = event
            stamp = time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(at))
            line = f"{stamp} {source.component} {source.task} {source.stream} {_shown(values)}"
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
