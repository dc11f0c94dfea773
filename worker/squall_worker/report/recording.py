"""What a worker records of its run for others to read: its history, metrics, reporters, samples for
Prometheus, and spans. A topology has those that it asks for, and runs on without one that fails."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

from squall_common.cluster.values import CheckpointReport
from squall_common.config.options.typed import TopologyOptions, WorkerOptions
from squall_common.daemon.clock import Clock
from squall_common.daemon.loop.background import BackgroundTasks
from squall_common.daemon.loop.loop_lag import LoopLag
from squall_common.errors import SquallError
from squall_common.names import SYSTEM_COMPONENT, SYSTEM_TASK
from squall_common.worker_files.launch_spec import LaunchSpec
from squall_worker.localized import LocalizedTopology
from squall_worker.report.errors import ErrorReporter
from squall_worker.report.history import WorkerHistory
from squall_worker.report.samples import write_samples

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import TracerProvider

    from squall_engine.embed import EmbeddedEngine, Metrics, Reporters

# How long the last file of the history may take.
HISTORY_SECS = 1.5


class HistoryError(SquallError):
    """The history cannot be written; the topology runs on without it."""


class Recording:
    """Call `begin` before the tasks are made, `start` once they run, and `end` after they do.

    `began` is when the process began its work, by `clock`.
    """

    def __init__(
        self,
        spec: LaunchSpec,
        options: WorkerOptions,
        errors: ErrorReporter,
        *,
        tasks: BackgroundTasks,
        clock: Clock,
        began: float,
    ) -> None:
        self._spec = spec
        self._options = options
        self._errors = errors
        self._tasks = tasks
        self._clock = clock
        self._began = began
        self._metrics: Metrics | None = None
        self._reporters: Reporters | None = None
        self._history: WorkerHistory | None = None
        self._provider: TracerProvider | None = None  # of spans

    def begin(self, localized: LocalizedTopology) -> None:
        """Start the history, if the topology wants one."""

        def on_trouble(error: Exception) -> None:
            reason = HistoryError(f"the topology's history cannot be written: {error}")
            self._errors.report(SYSTEM_COMPONENT, SYSTEM_TASK, reason)

        self._history = WorkerHistory.of(
            self._spec,
            {**self._spec.daemon_conf, **localized.conf},
            clock=self._clock,
            on_trouble=on_trouble,
            before_reading=self._errors.note_rest,
        )
        if self._history is not None:
            self._errors.note = self._history.error

    def make_provider(self, options: TopologyOptions) -> TracerProvider | None:
        """Where spans go, if the topology is traced. It runs untraced if that cannot be."""
        if options.topology_tracing_enabled:
            from squall_worker.report.tracing import TracingError, make_provider

            worker = f"{self._spec.hostname}:{self._spec.port}"
            try:
                self._provider = make_provider(options, self._spec.topology_id, worker)
            except TracingError as error:
                self._errors.report(SYSTEM_COMPONENT, SYSTEM_TASK, error)
        return self._provider

    def start(
        self, engine: EmbeddedEngine, checkpoints: Callable[[], CheckpointReport | None]
    ) -> None:
        """Start metrics consumers and reporters, if the topology has any, and the samples for
        Prometheus, if the supervisor shows them; the history follows the engine."""
        if self._options.supervisor_metrics_port is not None:
            writing = write_samples(
                engine.samples(),
                self._spec.worker_dir,
                clock=self._clock,
                began=self._began,
                lag_secs=LoopLag.started().worst,
                checkpoints=checkpoints,
            )
            self._tasks.start("samples", writing)
        self._metrics = engine.start_metrics(
            host=self._spec.hostname,
            clock=self._clock,
            report=self._errors.report,
            log_dir=self._spec.artifacts_dir,
            observer=self._history,
        )
        self._reporters = engine.start_reporters(
            host=self._spec.hostname,
            clock=self._clock,
            report=self._errors.report,
            log_dir=self._spec.artifacts_dir,
        )
        if self._history is not None:
            self._history.follow(engine)

    async def end(self, why: str) -> list[asyncio.Task[None]]:
        """Give metrics consumers and the history their last data; they end beside the rest, in the
        tasks that are returned. `why` is the reason that the history names."""
        ending = []
        if self._metrics is not None:
            ending.append(asyncio.create_task(self._metrics.close()))
            await asyncio.sleep(0)  # its last reading is also the history's
        if self._reporters is not None:
            ending.append(asyncio.create_task(self._reporters.close()))
        if self._provider is not None:
            from squall_worker.report.tracing import close_provider

            ending.append(asyncio.create_task(close_provider(self._provider)))
        if self._history is not None:
            self._history.stopped(why)
            ending.append(asyncio.create_task(self._history.close(HISTORY_SECS)))
        return ending
