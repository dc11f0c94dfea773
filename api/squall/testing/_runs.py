"""Topologies in real time: in this process, and in one that the test kills."""

from __future__ import annotations

import asyncio
import contextlib
import os
import selectors
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Coroutine, Mapping
from pathlib import Path
from typing import Any, TypeVar

from squall.local import LocalCluster
from squall_common.config.load import default_conf, normalize_topology_conf
from squall_common.errors import SquallError
from squall_common.topology.model import Component, ComponentKind, Topology, WorkerSlot
from squall_common.topology.prepared import prepare
from squall_common.topology.thrift import from_thrift, to_thrift
from squall_thrift import codec, storm

_T = TypeVar("_T")


def wait_until(
    what: str, condition: Callable[[], Any], timeout_secs: float = 60.0, poll_secs: float = 0.01
) -> None:
    """Wait for a condition, which `what` names.

        acked = ["1", "2"]
        wait_until("two acks", lambda: len(acked) == 2)

    Raises AssertionError after `timeout_secs`.
    """
    deadline = time.monotonic() + timeout_secs
    while not condition():
        if time.monotonic() >= deadline:
            raise AssertionError(f"waited {timeout_secs:.0f} s for {what}")
        time.sleep(poll_secs)


class LoopThread:
    """An event loop of its own, on a thread of its own.

    loop = LoopThread("server")
    port = loop.call(start())
    loop.end()
    """

    def __init__(self, name: str) -> None:
        self._selector = selectors.DefaultSelector()
        self._loop = asyncio.SelectorEventLoop(self._selector)
        self._thread = threading.Thread(target=self._loop.run_forever, name=name, daemon=True)
        self._thread.start()

    def call(self, coroutine: Coroutine[Any, Any, _T], timeout_secs: float = 90.0) -> _T:
        """Run a coroutine on the loop, from another thread, and wait for its result."""
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(timeout_secs)

    def end(self) -> None:
        """Stop the loop when the connections that were closed are gone."""
        self.call(self._loop.shutdown_default_executor())
        self.call(self._connections_gone())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()

    async def _connections_gone(self) -> None:
        """Wait at most two seconds. Closing takes a few rounds of the loop, and with TLS the answer
        of the peer; a connection that nothing closes stays, and Python warns of it."""
        deadline = time.monotonic() + 2.0
        # One is the loop's own.
        while len(self._selector.get_map()) > 1 and time.monotonic() < deadline:  # noqa: ASYNC110
            await asyncio.sleep(0.005)
        for _ in range(2):  # the last calls of `connection_lost`
            await asyncio.sleep(0)


class TopologyRun:
    """A topology of given objects, on a thread of its own and in real time."""

    def __init__(
        self,
        components: Mapping[str, Component],
        objects: Mapping[str, Any],
        conf: Mapping[str, Any] | None = None,
        *,
        name: str = "contract",
    ) -> None:
        self._name = name
        self._components = dict(components)
        self._objects = dict(objects)
        self._conf = dict(conf or {})
        self._loop: LoopThread | None = None
        self._engine: Any = None
        self.errors: list[BaseException] = []
        self.died: BaseException | None = None
        self.emitted: list[list[Any]] = []
        """What bolts have emitted, in order."""

    def __enter__(self) -> TopologyRun:
        self._loop = LoopThread("topology")
        try:
            self._wait(self._start())
        except BaseException:
            self._loop.end()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    async def _start(self) -> None:
        from squall_engine.embed import (
            EmbeddedEngine,
            EngineCallbacks,
            EngineSettings,
            Observer,
        )

        run = self

        class Emits(Observer):
            def emitted(self, source: Any, values: Any) -> None:
                if run._components[source.component].kind is ComponentKind.BOLT:
                    run.emitted.append(list(values))

        base = {**default_conf(), "topology.testing.always.try.serialize": True}
        topology = Topology(self._components)
        stored = normalize_topology_conf(
            {**self._conf, "topology.workers": 1},
            base,
            name=self._name,
            components=topology.component_confs,
        )
        prepared = prepare(topology, stored)
        settings = EngineSettings(
            prepared=prepared,
            topology_id=f"{self._name}-1-0",
            slot=WorkerSlot("contract", 1),
            executors=prepared.executors,
            daemon_conf=base,
        )
        callbacks = EngineCallbacks(
            on_reported=lambda component, task, error: self.errors.append(error),
            on_fatal=self._died,
            make_object=lambda component, task: self._objects[component.id],
        )
        self._engine = EmbeddedEngine(settings, callbacks, observer=Emits())
        await self._engine.start()
        self._engine.set_active(True)

    def _died(self, error: BaseException) -> None:
        self.died = error

    def set_active(self, active: bool) -> None:
        """Activate or deactivate the topology."""

        async def switch() -> None:
            self._engine.set_active(active)

        self._wait(switch())

    def gauge(self, component: str, name: str) -> float | None:
        """What a metric of a component shows now, an `AssignableMetric` or a gauge; its tasks'
        together. None: nothing yet."""

        shown: float | None = self.call(lambda: self._engine.gauge_value(component, name))
        return shown

    def call(self, function: Callable[[], _T]) -> _T:
        """Call a function on the topology's loop."""

        async def calling() -> _T:
            return function()

        return self._wait(calling())

    def stop(self, drain_secs: float = 0.0) -> None:
        """Stop the spouts, wait for what is in flight at most `drain_secs`, and close all."""
        if self._engine is not None:
            engine, self._engine = self._engine, None
            self._wait(engine.stop(drain_secs))
            assert self._loop is not None
            self._loop.end()

    def _wait(self, coroutine: Coroutine[Any, Any, _T]) -> _T:
        assert self._loop is not None, "it runs within its block"
        return self._loop.call(coroutine)


class KillableTopology:
    """A topology in a process of its own, to be killed and started again. Its classes must be
    importable there, by their names, from this process's path."""

    def __init__(self, topology: Topology, folder: Path, conf: Mapping[str, Any]) -> None:
        import json

        self._folder = folder
        (folder / "topology").write_bytes(codec.to_bytes(to_thrift(topology)))
        (folder / "conf.json").write_text(json.dumps(dict(conf)))
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> KillableTopology:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def start(self) -> None:
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        with (self._folder / "topology.log").open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "squall.testing._runs", str(self._folder)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=environment,
            )

    def check(self) -> None:
        """Raise SquallError, with the end of its output, if the process has ended by itself."""
        if self._process is not None and self._process.poll() is not None:
            output = (self._folder / "topology.log").read_text(errors="replace")
            raise SquallError(f"the topology's process ended:\n{output[-3000:]}")

    def wait_for_end(self, timeout_secs: float) -> None:
        """Wait until the process ends by itself. Raises subprocess.TimeoutExpired."""
        assert self._process is not None
        self._process.wait(timeout_secs)

    def kill(self) -> None:
        """SIGKILL."""
        process, self._process = self._process, None
        if process is not None:
            with contextlib.suppress(ProcessLookupError):
                process.send_signal(signal.SIGKILL)
            process.wait()


def _main(folder: Path) -> None:
    import json

    topology = from_thrift(
        codec.from_bytes(storm.StormTopology, (folder / "topology").read_bytes())
    )
    with LocalCluster() as cluster:
        cluster.submit_topology(
            "contract", json.loads((folder / "conf.json").read_text()), topology
        )
        cluster.wait()


if __name__ == "__main__":
    _main(Path(sys.argv[1]))
