"""Local mode: runs topologies in this process, without ZooKeeper or any other process.

    with LocalCluster() as cluster:
        cluster.submit_topology("wordcount", conf, builder.build())
        cluster.wait_drained("wordcount")
        print(cluster.stats("wordcount"))

Every task of a topology runs on one event loop in a separate thread, in the same engine as in a
worker. `topology.testing.always.try.serialize` is on unless the topology's conf turns it off, so
errors that would otherwise appear only between two workers are found here.

`LocalTopologies` does the same in programs that run their own event loop.
"""

from __future__ import annotations

import asyncio
import importlib
import threading
import time
from collections import Counter
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, field, replace
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from squall_common.component.checkpoints import Place, all_refusals, class_refusals
from squall_common.component.refusals import refuse
from squall_common.config.load import default_conf, normalize_topology_conf
from squall_common.config.options.typed import TopologyOptions
from squall_common.daemon.clock import SystemClock
from squall_common.daemon.logs import get_logger
from squall_common.errors import SquallError
from squall_common.names import is_system_id, make_topology_id, topology_name_error
from squall_common.security.credentials import check_credentials
from squall_common.topology.model import Executor, Topology, WorkerSlot
from squall_common.topology.prepared import PreparedTopology, prepare
from squall_common.topology.system import validate_topology

if TYPE_CHECKING:
    from squall_common.cluster.values import ExecutorStats
    from squall_engine.embed import EmbeddedEngine, Metrics, Reporters
    from squall_engine.epochs.coordinating import EpochCounts
    from squall_engine.epochs.in_process import InProcessEpochs

log = get_logger(__name__)

_T = TypeVar("_T")
_SLOT = WorkerSlot("local", 1)
_POLL_SECS = 0.01
_LOOK_SECS = 0.1  # whether a topology has finished: once its sources have, all tasks are read
_THREAD_NAME = "squall local cluster"
_CALM_SECS = 0.05
_FINISH_SECS = 10.0


@dataclass(frozen=True, slots=True)
class LocalError:
    """An error that a component reported."""

    component: str
    task: int
    error: BaseException


@dataclass(slots=True)
class _Running:
    """A topology that is running here."""

    id: str
    topology: Topology
    options: TopologyOptions
    engine: EmbeddedEngine
    active: bool
    errors: list[LocalError] = field(default_factory=list)
    died: BaseException | None = None
    metrics: Metrics | None = None
    reporters: Reporters | None = None
    epochs: InProcessEpochs | None = None


class LocalTopologies:
    """Runs topologies on the event loop that is running. Methods that take a topology's `name`
    raise SquallError if no topology of that name is running."""

    _ERRORS_KEPT = 1_000  # per topology

    def __init__(
        self, conf: Mapping[str, Any] | None = None, *, code_dir: str | Path | None = None
    ) -> None:
        """`conf` overrides the defaults; each topology's own conf overrides `conf`. `code_dir` is
        the unpacked package; shell components run in its `resources/` folder."""
        self._code_dir = None if code_dir is None else Path(code_dir)
        self._conf = {**default_conf(), **(conf or {})}
        # Not from `conf`: a merged configuration holds a cluster's default. A topology's own conf
        # may turn it off.
        self._conf["topology.testing.always.try.serialize"] = True
        self._running: dict[str, _Running] = {}
        # The topologies that `shutdown` has ended without a checkpoint of all that they did.
        self.cut_short: list[str] = []
        self._submitted = 0

    async def submit_topology(
        self,
        name: str,
        conf: Mapping[str, Any],
        topology: Topology,
        *,
        initial_status: str = "ACTIVE",
        credentials: Mapping[str, str] | None = None,
    ) -> str:
        """Check, compile and start a topology. Its components find `credentials` in
        `context.credentials`. Returns its id. Raises SquallError if the name is in use, the
        topology or conf is invalid, or a component does not start."""
        from squall_engine.embed import EmbeddedEngine, EngineCallbacks, EngineSettings

        if error := topology_name_error(name):
            raise SquallError(error)
        if name in self._running:
            raise SquallError(f"topology {name!r} is already running", hint="kill it first")
        if initial_status not in ("ACTIVE", "INACTIVE"):
            raise SquallError(f"initial status {initial_status!r}; expected ACTIVE or INACTIVE")
        check_credentials(credentials or {})
        stored = normalize_topology_conf(
            {**conf, "topology.workers": 1},
            self._conf,
            name=name,
            components=topology.component_confs,
        )
        options = TopologyOptions.read(stored)
        validate_topology(topology, options)
        has_checkpoints = options.topology_checkpoint_interval_secs is not None
        refuse(
            [
                *all_refusals(topology, options, Place.PROCESS),
                *class_refusals(
                    topology,
                    has_checkpoints=has_checkpoints,
                    backend=options.topology_state_backend,
                ),
            ]
        )
        prepared = prepare(topology, stored)
        self._submitted += 1
        topology_id = make_topology_id(name, self._submitted, int(time.time()))
        errors: list[LocalError] = []

        def report(component: str, task: int, error: BaseException) -> None:
            errors.append(LocalError(component, task, error))
            del errors[: -self._ERRORS_KEPT]

        settings = EngineSettings(
            prepared=prepared,
            topology_id=topology_id,
            slot=_SLOT,
            executors=prepared.executors,
            daemon_conf=self._conf,
            code_dir=self._code_dir,
            credentials=credentials or {},
        )
        callbacks = EngineCallbacks(
            on_reported=report, on_fatal=lambda error: self._died(name, error)
        )
        epochs = None
        if has_checkpoints:
            epochs = _epochs_of(name, prepared, options)
            settings = replace(settings, epochs=await epochs.open())
        try:
            engine = EmbeddedEngine(settings, callbacks)
        except BaseException:
            if epochs is not None:
                await epochs.close()
            raise
        running = _Running(
            topology_id,
            topology,
            options,
            engine,
            active=False,
            errors=errors,
            epochs=epochs,
        )
        self._running[name] = running
        try:
            await engine.start()
        except BaseException:
            del self._running[name]
            if epochs is not None:
                await epochs.close()
            raise
        engine.track_failed_messages()
        running.metrics = engine.start_metrics(host="local", clock=SystemClock(), report=report)
        running.reporters = engine.start_reporters(host="local", clock=SystemClock(), report=report)
        self._set_active(running, initial_status == "ACTIVE")
        if epochs is not None:
            epochs.begin(engine)
        log.info("topology_started", topology_id=topology_id, tasks=len(prepared.task_to_component))
        return topology_id

    def upload_credentials(self, name: str, credentials: Mapping[str, str]) -> None:
        """Replace a topology's credentials: `credentials_updated` of its components is called.
        Raises SquallError for credentials that a cluster would not keep."""
        check_credentials(credentials)
        self._find(name).engine.set_credentials(credentials)

    async def kill_topology(self, name: str, wait_secs: float | None = None) -> None:
        """Stop the spouts, wait at most `wait_secs` (None: the message timeout) for tuples in
        flight to finish, then close everything. With checkpoints, take a last one."""
        running = self._find(name)
        if wait_secs is None:
            wait_secs = running.options.topology_message_timeout_secs
        await self._finish_epochs(running, wait_secs)
        drained = await running.engine.stop(wait_secs)
        if running.epochs is not None:
            await running.epochs.close()
        if running.metrics is not None:
            await running.metrics.close()
        if running.reporters is not None:
            await running.reporters.close()
        self._running.pop(name, None)
        log.info("topology_killed", topology_id=running.id, drained=drained)

    def activate(self, name: str) -> None:
        """Let the spouts emit."""
        self._set_active(self._find(name), True)

    def deactivate(self, name: str) -> None:
        """Stop the spouts; tuples in flight are still processed."""
        self._set_active(self._find(name), False)

    def names(self) -> list[str]:
        """The names of the running topologies, sorted."""
        return sorted(self._running)

    def stats(self, name: str) -> dict[Executor, ExecutorStats]:
        """Statistics by executor, as in a worker's heartbeat."""
        return self._find(name).engine.stats()

    def totals(self, name: str) -> dict[str, dict[str, int]]:
        """All-time counts by component: emitted, transferred, acked and failed, and for bolts also
        executed. System components are left out."""
        return self._find(name).engine.totals()

    def to_svg(self, name: str) -> str:
        """The topology as an SVG drawing, with the counts of `totals`."""
        notes = {
            component: f"{counts['emitted']} emitted, {counts['acked']} acked"
            + (f", {counts['failed']} failed" if counts["failed"] else "")
            for component, counts in self.totals(name).items()
        }
        return self._find(name).topology.to_svg(notes)

    def failed_messages(self, name: str) -> int:
        """How many messages of its spouts failed, and were not acked by a replay under the same
        message id."""
        return self._find(name).engine.failed_messages()

    def errors(self, name: str) -> list[LocalError]:
        """The errors that its components reported, oldest first (the last 1,000)."""
        return list(self._find(name).errors)

    def checkpoints(self, name: str) -> EpochCounts | None:
        """What has become of the topology's checkpoints since it was started; None if it takes
        none. Its `epoch` is the number of the last complete one."""
        epochs = self._find(name).epochs
        return None if epochs is None else epochs.counts

    def is_drained(self, name: str) -> bool:
        """Whether nothing is in flight: all inboxes are empty and every message is acked or
        failed."""
        return self._find(name).engine.is_drained()

    async def wait_drained(self, name: str, timeout_secs: float = 30.0) -> None:
        """Wait until nothing has been in flight and nothing has been emitted for 50 ms. Raises
        TimeoutError after `timeout_secs`, and SquallError if the topology ends meanwhile."""
        from squall_engine.embed import EngineEndedError

        running = self._find(name)
        try:
            async with asyncio.timeout(timeout_secs):
                await running.engine.run_until_drained(calm_secs=_CALM_SECS)
        except TimeoutError as error:
            message = f"topology {name!r} has not drained in {timeout_secs} s"
            raise TimeoutError(message) from error
        except EngineEndedError:
            self._raise_if_died()
            raise

    def has_finished(self, name: str) -> bool | None:
        """Whether all of its input is read, and nothing is in flight: all tasks of all spouts say
        that their source has ended (`exhausted()`), and no tuple waits anywhere; with checkpoints,
        one has completed since, and transactional sinks have written its rows. None if a spout does
        not say whether its source ends."""
        running = self._find(name)
        ended = running.engine.sources_ended()
        if not ended:
            return ended
        work = running.engine.work_when_drained(at_end=True)
        return work is not None if running.epochs is None else running.epochs.has_drained(work)

    async def wait_finished(self, name: str, timeout_secs: float | None = None) -> None:
        """Wait until `has_finished`, at most `timeout_secs` (None: as long as it takes). The
        topology runs on, until it is killed. Raises TimeoutError at the timeout; SquallError at
        once if a spout does not say whether its source ends, and if the topology ends meanwhile."""
        deadline = None if timeout_secs is None else time.monotonic() + timeout_secs
        while not (finished := self.has_finished(name)):
            self._raise_if_died()
            if finished is None:
                raise SquallError(
                    f"a spout of topology {name!r} does not say whether its source ends, so its "
                    "end cannot be waited for",
                    hint="define exhausted() in its class; LinesSpout takes follow=False",
                )
            if deadline is not None and time.monotonic() >= deadline:
                raise TimeoutError(f"topology {name!r} has not finished in {timeout_secs:g} s")
            await asyncio.sleep(_LOOK_SECS)

    async def wait(self, secs: float | None = None, *, until_finished: bool = False) -> bool:
        """Wait until every topology has been killed, at most `secs` (None: forever); with
        `until_finished`, also no longer than until all of them have finished (`has_finished`).
        Returns whether they have. Raises SquallError if one of them died."""
        deadline = None if secs is None else time.monotonic() + secs
        look_at = 0.0
        while self._running and (deadline is None or time.monotonic() < deadline):
            self._raise_if_died()
            if until_finished and time.monotonic() >= look_at:
                if all(self.has_finished(name) for name in self._running):
                    return True
                look_at = time.monotonic() + _LOOK_SECS
            await asyncio.sleep(_POLL_SECS)
        self._raise_if_died()
        return False

    async def shutdown(self) -> None:
        """Stop every topology without waiting for tuples in flight. With checkpoints, take a last
        one, within ten seconds."""
        for name, running in list(self._running.items()):
            if not await self._finish_epochs(running, _FINISH_SECS):
                self.cut_short.append(name)
            await running.engine.stop(0)
            if running.epochs is not None:
                await running.epochs.close()
            if running.metrics is not None:
                await running.metrics.close()
            if running.reporters is not None:
                await running.reporters.close()
            self._running.pop(name, None)

    async def _finish_epochs(self, running: _Running, wait_secs: float) -> bool:
        """Take a last checkpoint, if it has them. Returns whether none is missing."""
        complete = True
        if running.epochs is not None and running.died is None:
            running.engine.set_active(False)
            complete = await running.epochs.finish(wait_secs)
            if not complete:
                log.warning(
                    "no_last_checkpoint",
                    topology_id=running.id,
                    what_now="its sinks lack what came after the one before, from which the next "
                    "start goes on",
                )
        if running.epochs is not None:
            await running.epochs.stop_commits()
        return complete

    def _set_active(self, running: _Running, active: bool) -> None:
        running.active = active
        running.engine.set_active(active)

    def _find(self, name: str) -> _Running:
        running = self._running.get(name)
        if running is None:
            raise SquallError(f"topology {name!r} is not running here")
        return running

    def _died(self, name: str, error: BaseException) -> None:
        running = self._running.get(name)
        if running is not None:
            running.died = error
            if running.epochs is not None:
                running.epochs.abandon()

    def _raise_if_died(self) -> None:
        for name, running in self._running.items():
            if running.died is not None:
                raise SquallError(
                    f"topology {name!r} died: {type(running.died).__name__}: {running.died}"
                ) from running.died


def _epochs_of(name: str, prepared: PreparedTopology, options: TopologyOptions) -> InProcessEpochs:
    from squall_engine.epochs.in_process import InProcessEpochs

    tasks = Counter(prepared.task_to_component.values())
    shape = {component: count for component, count in tasks.items() if not is_system_id(component)}
    return InProcessEpochs(prepared.topology, options, shape, name=name)


class LocalCluster:
    """`LocalTopologies` on a separate thread, for programs without an event loop. It has the same
    methods, which block until they are done; call them from one thread at a time. Use it in a
    `with` statement, or call `shutdown`.

        builder.spout("sentences", Sentences("text.txt"))
        builder.bolt("split", Split(), parallelism=2).shuffle("sentences")
        with LocalCluster() as cluster:
            cluster.submit_topology("words", {}, builder.build())
            cluster.wait_drained("words")
            assert cluster.totals("words")["split"]["failed"] == 0

    While topologies run, `sys.getswitchinterval()` of this process is at most a quarter of
    `topology.run.turn.ms`, so that other threads get their turn beside them; when the last one has
    ended, it is what your program has set.
    """

    def __init__(
        self, conf: Mapping[str, Any] | None = None, *, code_dir: str | Path | None = None
    ) -> None:
        """`conf` and `code_dir` are those of `LocalTopologies`."""
        self._topologies = LocalTopologies(conf, code_dir=code_dir)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    def __enter__(self) -> LocalCluster:
        return self

    def __exit__(self, *_: object) -> None:
        self.shutdown()

    def submit_topology(
        self,
        name: str,
        conf: Mapping[str, Any],
        topology: Topology,
        *,
        initial_status: str = "ACTIVE",
        credentials: Mapping[str, str] | None = None,
    ) -> str:
        """Check, compile and start a topology. Returns its id. Raises SquallError; see
        `LocalTopologies.submit_topology`."""
        return self._run(
            self._topologies.submit_topology(
                name, conf, topology, initial_status=initial_status, credentials=credentials
            )
        )

    def upload_credentials(self, name: str, credentials: Mapping[str, str]) -> None:
        """Replace a topology's credentials; see `LocalTopologies.upload_credentials`."""
        self._call(lambda: self._topologies.upload_credentials(name, credentials))

    def kill_topology(self, name: str, wait_secs: float | None = None) -> None:
        """Stop the spouts, wait at most `wait_secs` (None: the message timeout) for tuples in
        flight to finish, then close everything."""
        self._run(self._topologies.kill_topology(name, wait_secs))

    def activate(self, name: str) -> None:
        """Let the spouts emit."""
        self._call(lambda: self._topologies.activate(name))

    def deactivate(self, name: str) -> None:
        """Stop the spouts; tuples in flight are still processed."""
        self._call(lambda: self._topologies.deactivate(name))

    def names(self) -> list[str]:
        """The names of the running topologies, sorted."""
        return self._call(self._topologies.names)

    def stats(self, name: str) -> dict[Executor, ExecutorStats]:
        """Statistics by executor, as in a worker's heartbeat."""
        return self._call(lambda: self._topologies.stats(name))

    def totals(self, name: str) -> dict[str, dict[str, int]]:
        """All-time counts by component; see `LocalTopologies.totals`."""
        return self._call(lambda: self._topologies.totals(name))

    def to_svg(self, name: str) -> str:
        """The topology as an SVG drawing, with the counts of `totals`."""
        return self._call(lambda: self._topologies.to_svg(name))

    def _repr_html_(self) -> str:
        """In a notebook: every running topology, with its counts so far."""
        names = self.names()
        shown = [f"<h4>{escape(name)}</h4>{self.to_svg(name)}" for name in names]
        return "".join(shown) or "<p>No topologies are running.</p>"

    def show(self, secs: float = 10.0, *, every_secs: float = 1.0) -> None:
        """In a notebook: draw every running topology with its counts, and draw it again every
        `every_secs` seconds, for `secs` seconds or until no topology is running. Interrupt the cell
        to stop earlier. Raises SquallError without IPython, and if a topology died."""
        try:
            display = importlib.import_module("IPython.display").display
        except ImportError:
            raise SquallError(
                "LocalCluster.show() draws in a notebook, and IPython was not found",
                hint="elsewhere, write to_svg(NAME) to a file, or print totals(NAME)",
            ) from None
        deadline = time.monotonic() + secs
        drawing = display(self, display_id=True)
        while self.names() and (left := deadline - time.monotonic()) > 0:
            self.wait(min(every_secs, left))
            drawing.update(self)

    def failed_messages(self, name: str) -> int:
        """How many messages of its spouts failed for good; see `LocalTopologies`."""
        return self._call(lambda: self._topologies.failed_messages(name))

    def errors(self, name: str) -> list[LocalError]:
        """The errors that its components reported, oldest first (the last 1,000)."""
        return self._call(lambda: self._topologies.errors(name))

    def checkpoints(self, name: str) -> EpochCounts | None:
        """What has become of the topology's checkpoints; see `LocalTopologies.checkpoints`."""
        return self._call(lambda: self._topologies.checkpoints(name))

    def wait_drained(self, name: str, timeout_secs: float = 30.0) -> None:
        """Wait until nothing has been in flight and nothing has been emitted for 50 ms. Raises
        TimeoutError after `timeout_secs`, and SquallError if the topology ends meanwhile."""
        self._run(self._topologies.wait_drained(name, timeout_secs))

    def wait_until(self, condition: Callable[[], bool], timeout_secs: float = 30.0) -> None:
        """Poll `condition` (in this thread) until it is true. Raises TimeoutError after
        `timeout_secs`."""
        deadline = time.monotonic() + timeout_secs
        while not condition():
            if time.monotonic() >= deadline:
                raise TimeoutError(f"the condition is still false after {timeout_secs} s")
            time.sleep(_POLL_SECS)

    def has_finished(self, name: str) -> bool | None:
        """Whether all of its input is read, and nothing is in flight; None if a spout does not say
        whether its source ends. See `LocalTopologies.has_finished`."""
        return self._call(lambda: self._topologies.has_finished(name))

    def wait_finished(self, name: str, timeout_secs: float | None = None) -> None:
        """Wait until `has_finished`, at most `timeout_secs` (None: as long as it takes). The
        topology runs on, until it is killed. Raises TimeoutError at the timeout; SquallError at
        once if a spout does not say whether its source ends, and if the topology ends meanwhile."""
        self._run(self._topologies.wait_finished(name, timeout_secs))

    def wait(self, secs: float | None = None, *, until_finished: bool = False) -> bool:
        """Wait until every topology has been killed, at most `secs` (None: until interrupted); with
        `until_finished`, also no longer than until all of them have finished (`has_finished`).
        Returns whether they have. Raises SquallError if one of them died."""
        return self._run(self._topologies.wait(secs, until_finished=until_finished))

    @property
    def cut_short(self) -> list[str]:
        """The topologies with checkpoints that have ended without a last one."""
        return list(self._topologies.cut_short)

    def shutdown(self) -> None:
        """Stop every topology and the thread. Idempotent."""
        if self._loop is None or self._thread is None:
            return
        loop, thread = self._loop, self._thread
        self._run(self._topologies.shutdown())
        self._loop = self._thread = None
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()

    def _run(self, coroutine: Coroutine[Any, Any, _T]) -> _T:
        if threading.current_thread().name == _THREAD_NAME:
            # It would wait for its own import for good.
            coroutine.close()
            raise SquallError(
                "a module of the topology's components uses a LocalCluster while it is imported",
                hint='put the code that a program runs behind `if __name__ == "__main__":`',
            )
        future = asyncio.run_coroutine_threadsafe(coroutine, self._started())
        try:
            return future.result()
        except BaseException:
            # Interrupted while waiting (Ctrl-C): the coroutine must not continue on its own.
            future.cancel()
            raise

    def _call(self, call: Callable[[], _T]) -> _T:
        async def on_loop() -> _T:
            return call()

        return self._run(on_loop())

    def _started(self) -> asyncio.AbstractEventLoop:
        if self._loop is None:
            import uvloop

            loop: asyncio.AbstractEventLoop = uvloop.new_event_loop()
            self._loop = loop
            self._thread = threading.Thread(
                target=_run_loop, args=(loop,), name=_THREAD_NAME, daemon=True
            )
            self._thread.start()
        return self._loop


def _run_loop(loop: asyncio.AbstractEventLoop) -> None:
    asyncio.set_event_loop(loop)
    try:
        loop.run_forever()
    finally:
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.run_until_complete(loop.shutdown_default_executor())
        asyncio.set_event_loop(None)
