"""The door for programs that run tasks: worker, local mode, test kit, Spark, simulation, benchmark.

    prepared = prepare(topology, conf)
    settings = EngineSettings(
        prepared=prepared, topology_id="words-1-1700000000", slot=WorkerSlot("local", 1),
        executors=prepared.executors, daemon_conf=default_conf(),
    )
    engine = EmbeddedEngine(settings, EngineCallbacks(on_reported=print))
    await engine.start()
    engine.set_active(True)
    await engine.run_until_drained()
    await engine.stop(drain_secs=1.0)

Settings go in as values, and what leaves the engine comes through callbacks and the transport. The
rest of this package is the engine's own: a program that needs more of it adds to this module.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from squall_common.daemon.clock import Clock
from squall_common.errors import SquallError
from squall_common.topology.model import Topology
from squall_common.topology.serialization import Registry
from squall_engine.build.build import on_thread
from squall_engine.core import Source, decode_batches
from squall_engine.core.codec import ValueCodec
from squall_engine.core.inspectors import Observer
from squall_engine.core.known_classes import component_modules
from squall_engine.engine import Engine, tune_garbage_collector
from squall_engine.loading import ComponentStartError, make_user_object
from squall_engine.settings import EngineCallbacks, EngineSettings
from squall_engine.tasks.base import BoltTask
from squall_engine.tasks.in_hand import Before, InHand
from squall_engine.tasks.thread import ThreadBolt, ThreadSpout

if TYPE_CHECKING:
    from squall_engine.observe.metrics import Metrics as Metrics
    from squall_engine.observe.metrics import Tap

# Not everything that a program waits for ends with a turn: a spout's thread may find that it has
# come to its end. Such a change is seen this much later.
_LOOK_SECS = 0.01


class EngineEndedError(SquallError):
    """The engine has died or was stopped, and what was waited for will not happen any more."""


class EmbeddedEngine(Engine):
    """An engine, and what programs around it ask of it. On its loop, unless a method says so."""

    # ---- waiting ----

    async def run_until(self, condition: Callable[[], bool]) -> None:
        """Let the engine turn until `condition()` is true. It is asked after every turn (and now
        and then between), on the loop: it must be quick, and may raise to end the wait. Raises
        EngineEndedError when the engine has ended meanwhile; one wait at a time."""
        assert self.after_turn is None, "one wait at a time"
        loop = self.loop
        done: asyncio.Future[None] = loop.create_future()

        def look() -> None:
            if done.done():
                return
            try:
                if condition():
                    done.set_result(None)
                elif self.has_ended:
                    topology_id = self.worker_context.topology_id
                    raise EngineEndedError(f"the engine of {topology_id} has ended")
            except Exception as error:
                done.set_exception(error)

        timer: asyncio.TimerHandle

        def look_again() -> None:
            nonlocal timer
            look()
            timer = loop.call_later(_LOOK_SECS, look_again)

        timer = loop.call_later(_LOOK_SECS, look_again)
        self.after_turn = look
        look()
        try:
            await done
        finally:
            timer.cancel()
            self.after_turn = None

    async def run_until_drained(self, also: Callable[[], bool] | None = None) -> None:
        """Let the engine turn until nothing of this worker is in flight: inboxes and buffers are
        empty and the trees of its spouts settled. With `also` until that is true, too; it may raise
        to end the wait. Put a deadline on it with `asyncio.timeout`. Raises EngineEndedError."""

        def drained() -> bool:
            return (also is None or also()) and self.is_drained()

        await self.run_until(drained)

    # ---- what runs here ----

    def users(self, component: str | None = None) -> list[Any]:
        """The users' spouts and bolts, in the order of a turn; those of one component, by task."""
        return [
            one.task.user
            for one in self.built
            if component is None or one.task.component == component
        ]

    def failed_tuples(self) -> int:
        """How many tuples the bolts have failed so far."""
        bolts = (one.task for one in self.built if isinstance(one.task, BoltTask))
        return sum(sum(task.counts.failed.values()) for task in bolts)

    async def call(self, user: Any, method: str) -> None:
        """Call a method of a user's object where its other methods are called: on its thread if it
        has one. A coroutine is awaited. Raises what the method raises."""
        task = next(one.task for one in self.built if one.task.user is user)
        if isinstance(task, ThreadBolt | ThreadSpout):
            await on_thread(task, getattr(user, method))
            return
        result = getattr(user, method)()
        if inspect.isawaitable(result):
            await result

    def describe(self, now: float) -> Iterable[str]:
        """Each task in a line, for a dump; from any thread. `now` is of the engine's clock."""
        from squall_engine.observe.describe import describe_tasks

        return describe_tasks(self.built, now)

    def start_metrics(
        self,
        *,
        host: str,
        clock: Clock,
        report: Callable[[str, int, BaseException], None],
        log_dir: Path | None = None,
        tap: Tap | None = None,
    ) -> Metrics | None:
        """Feed the topology's metrics consumers, and `tap`, from now on; None when there is neither
        a consumer nor a tap. Close what is returned after `stop`."""
        if tap is None and not self.conf.get("topology.metrics.consumer.register"):
            return None
        from squall_engine.observe.metrics import Metrics

        metrics = Metrics.of(
            self.built,
            self.conf,
            topology_id=self.worker_context.topology_id,
            host=host,
            port=self.worker_context.worker_port,
            log_dir=log_dir,
            clock=clock,
            report=report,
            tap=tap,
        )
        if metrics is not None:
            metrics.start()
        return metrics


def value_codec(topology: Topology, conf: Mapping[str, Any], *, allow_pickle: bool) -> ValueCodec:
    """The codec of a topology's values, as its engines use it."""
    registry = Registry.from_conf(conf)
    return ValueCodec(registry, allow_pickle=allow_pickle, modules=component_modules(topology))


def section_rows(
    section: bytes, codec: ValueCodec, component: str, fields: tuple[str, ...]
) -> list[Any]:
    """The values of each tuple of a section that a transport was given to send: those that
    `component` emitted on a stream with these fields. Raises CodecError."""

    def source(task: int, stream: str) -> Source:
        return Source(component, task, stream, fields, local=False)

    batches = decode_batches(section, codec, source)
    return [row for batch in batches.values() for row in batch.rows()]


__all__ = [
    "Before",
    "ComponentStartError",
    "EmbeddedEngine",
    "EngineCallbacks",
    "EngineEndedError",
    "EngineSettings",
    "InHand",
    "Observer",
    "ValueCodec",
    "make_user_object",
    "section_rows",
    "tune_garbage_collector",
    "value_codec",
]
