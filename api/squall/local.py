"""Local mode: topologies in this process, with no ZooKeeper and no other process.

    with LocalCluster() as cluster:
        cluster.submit_topology("wordcount", conf, builder.build())
        cluster.wait_drained("wordcount")
        print(cluster.stats("wordcount"))

The same engine as in a worker runs every task of a topology on one event loop, in a thread of its
own. `topology.testing.always.try.serialize` is on unless the conf says otherwise: what would only
break between two workers is found here.

`LocalTopologies` is the same for programs that have a loop of their own.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from squall_common.config.load import default_conf, normalize_topology_conf
from squall_common.daemon.clock import SystemClock
from squall_common.daemon.logs import get_logger
from squall_common.errors import SquallError
from squall_common.names import make_topology_id, topology_name_error
from squall_common.topology.model import Executor, Topology, WorkerSlot
from squall_common.topology.prepared import prepare
from squall_common.topology.system import validate_topology

if TYPE_CHECKING:
    from squall_common.cluster.values import ExecutorStats
    from squall_engine.embed import EmbeddedEngine, Metrics

log = get_logger(__name__)

_T = TypeVar("_T")
_SLOT = WorkerSlot("local", 1)
_POLL_SECS = 0.01


@dataclass(frozen=True, slots=True)
class LocalError:
    """An error that a component reported."""

    component: str
    task: int
    error: BaseException


@dataclass(slots=True)
class _Running:
    """A topology that runs here."""

    id: str
    conf: Mapping[str, Any]
    task_to_component: Mapping[int, str]
    engine: EmbeddedEngine
    active: bool
    errors: list[LocalError] = field(default_factory=list)
    died: BaseException | None = None
    metrics: Metrics | None = None


class LocalTopologies:
    """Topologies on the running event loop."""

    _ERRORS_KEPT = 1_000  # a topology

    def __init__(
        self, conf: Mapping[str, Any] | None = None, *, code_dir: Path | None = None
    ) -> None:
        """`conf` lies under every topology's own, and over the defaults. `code_dir` is the unpacked
        package, in whose `resources/` shell components run."""
        self._code_dir = code_dir
        self._conf = {**default_conf(), **(conf or {})}
        # Not from `conf`: a merged configuration holds the default of a cluster. A topology's own
        # conf may turn it off.
        self._conf["topology.testing.always.try.serialize"] = True
        self._running: dict[str, _Running] = {}
        self._submitted = 0

    async def submit_topology(
        self,
        name: str,
        conf: Mapping[str, Any],
        topology: Topology,
        *,
        initial_status: str = "ACTIVE",
    ) -> str:
        """Check, compile and start a topology. Returns its id. Raises SquallError (a name in use,
        a topology or conf that is wrong, a component that does not start)."""
        from squall_engine.embed import EmbeddedEngine, EngineCallbacks, EngineSettings

        if error := topology_name_error(name):
            raise SquallError(error)
        if name in self._running:
            raise SquallError(f"topology {name!r} runs already", hint="kill it first")
        if initial_status not in ("ACTIVE", "INACTIVE"):
            raise SquallError(f"initial status {initial_status!r}; expected ACTIVE or INACTIVE")
        stored = normalize_topology_conf(
            {**conf, "topology.workers": 1},
            self._conf,
            name=name,
            components=topology.component_confs,
        )
        validate_topology(topology, stored)
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
        )
        callbacks = EngineCallbacks(
            on_reported=report, on_fatal=lambda error: self._died(name, error)
        )
        engine = EmbeddedEngine(settings, callbacks)
        running = _Running(topology_id, stored, prepared.task_to_component, engine, False, errors)
        self._running[name] = running
        try:
            await engine.start()
        except BaseException:
            del self._running[name]
            raise
        running.metrics = engine.start_metrics(host="local", clock=SystemClock(), report=report)
        self._set_active(running, initial_status == "ACTIVE")
        log.info("topology_started", topology_id=topology_id, tasks=len(prepared.task_to_component))
        return topology_id

    async def kill_topology(self, name: str, wait_secs: float | None = None) -> None:
        """Stop the spouts, let tuples in flight finish for at most `wait_secs` (None: the message
        time-out), then close everything."""
        running = self._find(name)
        if wait_secs is None:
            wait_secs = float(running.conf.get("topology.message.timeout.secs") or 30)
        drained = await running.engine.stop(wait_secs)
        if running.metrics is not None:
            await running.metrics.close()
        self._running.pop(name, None)
        log.info("topology_killed", topology_id=running.id, drained=drained)

    def activate(self, name: str) -> None:
        """Let the spouts emit."""
        self._set_active(self._find(name), True)

    def deactivate(self, name: str) -> None:
        """Stop the spouts; what is in flight goes on."""
        self._set_active(self._find(name), False)

    def names(self) -> list[str]:
        """The topologies that run."""
        return sorted(self._running)

    def stats(self, name: str) -> dict[Executor, ExecutorStats]:
        """Statistics by executor, as a worker's heartbeat carries them."""
        return self._find(name).engine.stats()

    def totals(self, name: str) -> dict[str, dict[str, int]]:
        """All-time counts by component: emitted, transferred, acked, failed, and executed of
        bolts. System components are left out."""
        running = self._find(name)
        totals: dict[str, dict[str, int]] = {}
        for executor, stats in running.engine.stats().items():
            component = running.task_to_component[executor.task_start]
            if component.startswith("__"):
                continue
            mine = totals.setdefault(component, {})
            counts: dict[str, Any] = {
                "emitted": stats.emitted,
                "transferred": stats.transferred,
                "acked": stats.specific.acked,
                "failed": stats.specific.failed,
            }
            if hasattr(stats.specific, "executed"):
                counts["executed"] = stats.specific.executed
            for what, windows in counts.items():
                mine[what] = mine.get(what, 0) + sum(windows.get(":all-time", {}).values())
        return totals

    def errors(self, name: str) -> list[LocalError]:
        """What its components reported, oldest first (the last 1,000)."""
        return list(self._find(name).errors)

    def is_drained(self, name: str) -> bool:
        """Whether nothing is in flight: inboxes empty, every message acked or failed."""
        return self._find(name).engine.is_drained()

    async def wait_drained(self, name: str, timeout_secs: float = 30.0) -> None:
        """Wait until nothing has been in flight and no spout has emitted for a few turns. Raises
        TimeoutError."""

        def at_rest() -> tuple[bool, int]:
            totals = self.totals(name)
            return self.is_drained(name), sum(t["emitted"] for t in totals.values())

        deadline = time.monotonic() + timeout_secs
        before: tuple[bool, int] = (False, -1)
        calm = 0
        while calm < 5:
            if time.monotonic() >= deadline:
                raise TimeoutError(f"topology {name!r} has not drained in {timeout_secs} s")
            await asyncio.sleep(_POLL_SECS)
            now = at_rest()
            calm = calm + 1 if now == before and now[0] else 0
            before = now

    async def wait(self, secs: float | None = None) -> None:
        """Wait until every topology was killed, at most `secs` (None: for ever). Raises
        SquallError when one of them died."""
        deadline = None if secs is None else time.monotonic() + secs
        while self._running and (deadline is None or time.monotonic() < deadline):
            self._raise_if_died()
            await asyncio.sleep(_POLL_SECS)
        self._raise_if_died()

    async def shutdown(self) -> None:
        """Stop every topology, without waiting for what is in flight."""
        for name, running in list(self._running.items()):
            await running.engine.stop(0)
            if running.metrics is not None:
                await running.metrics.close()
            self._running.pop(name, None)

    def _set_active(self, running: _Running, active: bool) -> None:
        running.active = active
        running.engine.set_active(active)

    def _find(self, name: str) -> _Running:
        running = self._running.get(name)
        if running is None:
            raise SquallError(f"topology {name!r} does not run here")
        return running

    def _died(self, name: str, error: BaseException) -> None:
        running = self._running.get(name)
        if running is not None:
            running.died = error

    def _raise_if_died(self) -> None:
        for name, running in self._running.items():
            if running.died is not None:
                raise SquallError(
                    f"topology {name!r} died: {type(running.died).__name__}: {running.died}"
                ) from running.died


class LocalCluster:
    """`LocalTopologies` on a thread of its own, for programs without a loop. Its methods are the
    same, and wait; they may be called from any one thread."""

    def __init__(
        self, conf: Mapping[str, Any] | None = None, *, code_dir: Path | None = None
    ) -> None:
        """As `LocalTopologies`."""
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
    ) -> str:
        """Check, compile and start a topology. Returns its id. Raises SquallError."""
        return self._run(
            self._topologies.submit_topology(name, conf, topology, initial_status=initial_status)
        )

    def kill_topology(self, name: str, wait_secs: float | None = None) -> None:
        """Stop the spouts, let tuples in flight finish for at most `wait_secs` (None: the message
        time-out), then close everything."""
        self._run(self._topologies.kill_topology(name, wait_secs))

    def activate(self, name: str) -> None:
        """Let the spouts emit."""
        self._call(lambda: self._topologies.activate(name))

    def deactivate(self, name: str) -> None:
        """Stop the spouts; what is in flight goes on."""
        self._call(lambda: self._topologies.deactivate(name))

    def names(self) -> list[str]:
        """The topologies that run."""
        return self._call(self._topologies.names)

    def stats(self, name: str) -> dict[Executor, ExecutorStats]:
        """Statistics by executor, as a worker's heartbeat carries them."""
        return self._call(lambda: self._topologies.stats(name))

    def totals(self, name: str) -> dict[str, dict[str, int]]:
        """All-time counts by component; see `LocalTopologies.totals`."""
        return self._call(lambda: self._topologies.totals(name))

    def errors(self, name: str) -> list[LocalError]:
        """What its components reported, oldest first (the last 1,000)."""
        return self._call(lambda: self._topologies.errors(name))

    def wait_drained(self, name: str, timeout_secs: float = 30.0) -> None:
        """Wait until nothing has been in flight and no spout has emitted for a few turns. Raises
        TimeoutError."""
        self._run(self._topologies.wait_drained(name, timeout_secs))

    def wait_until(self, condition: Callable[[], bool], timeout_secs: float = 30.0) -> None:
        """Poll `condition` (in this thread) until it holds. Raises TimeoutError."""
        deadline = time.monotonic() + timeout_secs
        while not condition():
            if time.monotonic() >= deadline:
                raise TimeoutError(f"the condition has not come true in {timeout_secs} s")
            time.sleep(_POLL_SECS)

    def wait(self, secs: float | None = None) -> None:
        """Wait until every topology was killed, at most `secs` (None: until interrupted). Raises
        SquallError when one of them died."""
        self._run(self._topologies.wait(secs))

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
        future = asyncio.run_coroutine_threadsafe(coroutine, self._started())
        try:
            return future.result()
        except BaseException:
            # Interrupted while waiting (Ctrl-C): the coroutine must not go on alone.
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
                target=_run_loop, args=(loop,), name="local-cluster", daemon=True
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
