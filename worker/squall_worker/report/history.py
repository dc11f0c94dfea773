"""A worker's part of the history (`topology.history.enable`): it brings the engine's recorder, the
errors and the users' metrics together with the writer."""

from __future__ import annotations

import asyncio
import json
import math
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from squall_common.component.metrics.consumers import DataPoint, TaskInfo
from squall_common.config.options.typed import TopologyOptions, WorkerOptions
from squall_common.daemon.clock import Clock
from squall_common.daemon.folders import Folder
from squall_common.daemon.logs import get_logger
from squall_common.history.schema import TEXT_CHARS_MAX, Row
from squall_common.history.settings import HistorySettings, history_url, is_on
from squall_common.history.writer import HistoryWriter
from squall_common.names import is_system_id
from squall_common.worker_files.launch_spec import LaunchSpec

if TYPE_CHECKING:
    from squall_engine.embed import EmbeddedEngine, Recorder

log = get_logger(__name__)


def with_polling(rows: Sequence[Row], busy_poll_ms: float) -> Sequence[Row]:
    """The rows of a worker that polls busily for so long. Its CPU says little about its load, and
    reports are to know that."""
    if not busy_poll_ms:
        return rows
    return [
        row._replace(n=math.ceil(busy_poll_ms))
        if (row.kind, row.name) == ("worker", "cpu_secs")
        else row
        for row in rows
    ]


class WorkerHistory:
    """Begins with the worker, so that errors that keep the worker from starting are
    written, too."""

    def __init__(
        self,
        spec: LaunchSpec,
        conf: Mapping[str, Any],
        *,
        clock: Clock,
        on_trouble: Callable[[Exception], None],
        before_reading: Callable[[], None] = lambda: None,
    ) -> None:
        """`conf` is the topology's, merged; where it is written is the node's to say.
        `before_reading` is called, on the loop, at the end of each interval."""
        self._before_reading = before_reading
        self._spec = spec
        self._clock = clock
        options = TopologyOptions.read(conf)
        self._settings = HistorySettings.of(options)
        self._busy_poll_ms = options.topology_worker_busy_poll_ms
        self._writer = HistoryWriter(
            Folder(history_url(WorkerOptions.read(spec.daemon_conf))),
            worker=f"{spec.hostname}:{spec.port}",
            incarnation=str(spec.incarnation),
            clock=clock,
            rotation_secs=self._settings.rotation_secs,
            rotation_bytes=self._settings.rotation_bytes,
            on_trouble=on_trouble,
        )
        self._recorder: Recorder | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._writer.start()

    @classmethod
    def of(
        cls,
        spec: LaunchSpec,
        conf: Mapping[str, Any],
        *,
        clock: Clock,
        on_trouble: Callable[[Exception], None],
        before_reading: Callable[[], None] = lambda: None,
    ) -> WorkerHistory | None:
        """None if the topology has no history."""
        if not is_on(conf):
            return None
        return cls(spec, conf, clock=clock, on_trouble=on_trouble, before_reading=before_reading)

    def follow(self, engine: EmbeddedEngine) -> None:
        """The engine has started: record what it does from now on. Call it on its loop."""
        self._recorder = engine.record_history(self._settings.key_rate, clock=self._clock)
        executors, tasks = len(engine.executors), len(engine.users())
        self.event("worker running", f"pid {os.getpid()}, {executors} executors, {tasks} tasks")
        self._wait()

    def _wait(self) -> None:
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(self._settings.interval_secs, self._on_timer)

    def _on_timer(self) -> None:
        self._read()
        self._wait()

    def _read(self) -> None:
        """Never raises: a failed reading must not disturb the other rows, nor a worker's stop."""
        self._before_reading()
        if self._recorder is not None:
            try:
                self._add(with_polling(self._recorder.read(), self._busy_poll_ms))
            except Exception as error:  # such as too many open files
                log.error("history_not_read", error=error, exc_info=error)

    def event(self, name: str, text: str = "") -> None:
        place = f"{self._spec.hostname}:{self._spec.port}"
        text = text[:TEXT_CHARS_MAX]
        self._add([Row(self._now_ms(), "event", name, stream=place, text=text)])

    def error(self, component: str, task: int, text: str, count: int) -> None:
        """An error of a component, from any thread; it stands for `count` of them."""
        if len(text) > TEXT_CHARS_MAX:  # the end has the message
            text = f"{text[: TEXT_CHARS_MAX // 4]}\n...\n{text[-TEXT_CHARS_MAX * 3 // 4 :]}"
        row = Row(self._now_ms(), "error", component=component, task=task, n=count, text=text)
        self._add([row])

    def offer(self, info: TaskInfo, points: Sequence[DataPoint]) -> None:
        """Takes the users' metrics, as a metrics consumer does."""
        self._add(metric_rows(info, points, self._now_ms()))

    def stopped(self, text: str) -> None:
        """The engine has ended: write the last rows."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._read()
        self._recorder = None
        self.event("worker stopped", text)

    async def close(self, secs: float) -> None:
        """Write the remaining rows, for at most `secs`."""
        if not await asyncio.to_thread(self._writer.close, secs):
            log.warning("history_not_finished", secs=round(secs, 1))

    def _add(self, rows: Sequence[Row]) -> None:
        self._writer.add(self._spec.topology_id, rows)

    def _now_ms(self) -> int:
        return int(self._clock.time() * 1000)


def metric_rows(info: TaskInfo, points: Iterable[DataPoint], at_ms: int) -> list[Row]:
    """The users' own metrics; the built-in ones are in other rows."""
    rows = []
    for point in points:
        if is_system_id(point.name):
            continue
        number = _number(point.value)
        rows.append(
            Row(
                at_ms,
                "metric",
                point.name,
                info.src_component_id,
                info.src_task_id,
                secs=info.update_interval_secs,
                value=number or 0.0,
                text=_json(point.value) if number is None else "",
            )
        )
    return rows


def _number(value: Any) -> float | None:
    try:
        return float(value) if isinstance(value, int | float) else None
    except OverflowError:
        return None


def _json(value: Any) -> str:
    try:
        text = json.dumps(value, default=str, ensure_ascii=False)
    except Exception:  # the topology's own __str__, among others
        text = str(type(value))
    return text[:TEXT_CHARS_MAX]
