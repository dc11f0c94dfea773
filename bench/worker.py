"""One worker of a benchmark, in a process of its own: the engine as a real worker has it, with the
ZeroMQ transport when there are several.

    python -m bench.worker JSON

Speaks in lines of JSON on stdin and stdout: says its port, hears those of all; says that it is
ready, hears "go"; says that its spouts are through, hears "stop"; says what it measured.
"""

from __future__ import annotations

import asyncio
import importlib
import json
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import uvloop
import zmq
from zmq.utils import z85

from bench import stubs, variants
from squall_common.config.load import default_conf, normalize_topology_conf
from squall_common.security.curve import CurveKey
from squall_common.topology.encryption import encrypts
from squall_common.topology.model import Executor, WorkerSlot
from squall_common.topology.prepared import prepare
from squall_common.worker_files.launch_spec import Incarnation

_POLL_SECS = 0.005


def say(message: Any) -> None:
    print(json.dumps(message), flush=True)


def _counted(counter: Any) -> Iterable[tuple[str, int]]:
    """The words that a bolt has counted: in a dict, or in its state."""
    if hasattr(counter, "counts"):
        found: Iterable[tuple[str, int]] = counter.counts.items()
        return found
    return list(counter.state.iterate())


async def hear() -> Any:
    return json.loads(await asyncio.get_running_loop().run_in_executor(None, sys.stdin.readline))


def bench_key(topology_id: str) -> CurveKey:
    """The same in every worker."""
    secret = z85.encode(b"bench".ljust(32, b"."))
    return CurveKey(topology_id, zmq.curve_public(secret), secret)


def place(
    task_to_component: Mapping[int, str],
    executors: list[Executor],
    workers: int,
    first_worker: Mapping[str, int],
) -> list[list[Executor]]:
    """Each component's tasks by turns over the workers, from its first one (0) on."""
    placed: list[list[Executor]] = [[] for _ in range(workers)]
    seen: dict[str, int] = {}
    for executor in sorted(executors):
        component = task_to_component[executor.task_start]
        seen[component] = seen.get(component, first_worker.get(component, 0) - 1) + 1
        placed[seen[component] % workers].append(executor)
    return placed


def has_figures(user: Any) -> bool:
    return hasattr(user, "figures")


def history_of(topology_id: str, conf: Mapping[str, Any]) -> Any:
    """The worker's history, with `topology.history.enable`, in a folder that nothing reads."""
    from squall_common.daemon.clock import SystemClock
    from squall_common.worker_files.launch_spec import LaunchSpec
    from squall_worker.report.history import WorkerHistory

    folder = Path(tempfile.gettempdir(), "squall-bench-history")
    spec = LaunchSpec(
        topology_id=topology_id, supervisor_id="bench", hostname="bench", port=1,
        worker_id="bench", incarnation=Incarnation(1, 1), stormdist=folder, worker_dir=folder,
        artifacts_dir=folder, daemon_conf={**default_conf(), "storm.history.dir": str(folder)},
    )  # fmt: skip
    return WorkerHistory.of(spec, conf, clock=SystemClock(), on_trouble=print)


def epochs_of(prepared: Any, options: Any) -> Any:
    """The checkpoints of the topology, as local mode takes them; None if it takes none."""
    from squall_common.names import is_system_id
    from squall_engine.epochs.in_process import InProcessEpochs

    if options.topology_checkpoint_interval_secs is None:
        return None
    tasks = Counter(prepared.task_to_component.values())
    shape = {component: count for component, count in tasks.items() if not is_system_id(component)}
    return InProcessEpochs(prepared.topology, options, shape, name="bench")


class Durations:
    """Of the checkpoints that are complete: look often."""

    def __init__(self, epochs: Any) -> None:
        self.secs: list[float] = []
        self._epochs = epochs
        self._completed = 0

    def look(self) -> None:
        if self._epochs is not None:
            counts = self._epochs.counts
            if counts.completed > self._completed:
                self._completed = counts.completed
                self.secs.append(counts.duration_secs)


async def run(options: Mapping[str, Any]) -> None:
    workers, index = options["workers"], options["index"]
    # Here, because `main` may have chosen another core and changed classes before.
    from squall_common.config.options.typed import TopologyOptions
    from squall_engine import core
    from squall_engine.embed import (
        EmbeddedEngine,
        EngineCallbacks,
        EngineSettings,
        tune_garbage_collector,
    )
    from squall_worker.heap import tune_heap
    from squall_worker.settings import WorkerSettings
    from squall_worker.transport.zmq import ZmqTransport

    module, _, function = options["topology"].partition(".")
    make = getattr(importlib.import_module(f"bench.{module}"), function)
    topology = make(**options["arguments"])
    conf = {"topology.max.spout.pending": 2_000, "topology.workers": workers, **options["conf"]}
    stored = normalize_topology_conf(conf, default_conf(), name="bench")
    prepared = prepare(topology, stored)
    tasks = prepared.task_to_component
    placed = place(tasks, prepared.executors, workers, options["first_worker"])
    slots = [WorkerSlot(f"bench-{i}", 1) for i in range(workers)]
    of_topology = TopologyOptions.read(stored)
    transport = None
    if workers > 1:
        encrypted = encrypts(stored)
        transport = ZmqTransport(
            options["topology_id"],
            slots[index],
            Incarnation(1, 1),
            backlog_bytes_max=32 * 1024 * 1024,
            key=bench_key(options["topology_id"]) if encrypted else None,
            ring_bytes=WorkerSettings.ring_bytes(of_topology),
            busy_poll_secs=WorkerSettings.busy_poll_secs(of_topology),
        )
        say(transport.bind("127.0.0.1", 0))
        ports = await hear()
        transport.set_peers(
            {
                slot: ("127.0.0.1", port)
                for slot, port in zip(slots, ports, strict=True)
                if slot != slots[index]
            }
        )
    errors: list[str] = []
    history = history_of(options["topology_id"], stored)
    settings = EngineSettings(
        prepared=prepared,
        topology_id=options["topology_id"],
        slot=slots[index],
        executors=placed[index],
        seed=1,
    )
    callbacks = EngineCallbacks(
        on_reported=lambda component, task, error: errors.append(f"{component}: {error}")
    )
    epochs = epochs_of(prepared, of_topology)
    if epochs is not None:
        settings = replace(settings, epochs=await epochs.open())
    engine = EmbeddedEngine(settings, callbacks, transport=transport)
    await engine.start()
    if history is not None:
        history.follow(engine)
    if transport is not None:
        engine.set_routes(
            {t: slots[i] for i, some in enumerate(placed) for e in some for t in e.tasks}
        )
        while len(transport.greeted()) < workers - 1:  # noqa: ASYNC110
            await asyncio.sleep(_POLL_SECS)
        engine.set_ready(True)
    spouts = [user for user in engine.users() if hasattr(user, "is_through")]
    tune_heap()
    tune_garbage_collector()
    start_secs = time.time() - psutil.Process().create_time()
    say("ready")
    await hear()
    cpu, wall = time.process_time(), time.monotonic()
    engine.set_active(True)
    durations = Durations(epochs)
    if epochs is not None:
        epochs.begin(engine)
    while not all(spout.is_through() for spout in spouts):
        await asyncio.sleep(_POLL_SECS)
        durations.look()
    if workers == 1:
        await engine.run_until_drained()
    else:
        say("through")
        await hear()
    cpu, wall = time.process_time() - cpu, time.monotonic() - wall
    durations.look()
    if epochs is not None and not await epochs.finish(30):
        errors.append("no last checkpoint")
    if history is not None:
        history.stopped("")
        await history.close(30)
    counts: dict[str, int] = {}
    for counter in engine.users("count"):
        for word, n in _counted(counter):
            counts[word] = counts.get(word, 0) + n
    executed: dict[str, int] = {}
    failed = 0
    for executor, stats in engine.stats().items():
        component = tasks[executor.task_start]
        failed += sum(stats.specific.failed.get(":all-time", {}).values())
        if hasattr(stats.specific, "executed"):
            n = sum(stats.specific.executed.get(":all-time", {}).values())
            executed[component] = executed.get(component, 0) + n
    figures = [user.figures() for user in engine.users() if has_figures(user)]
    await engine.stop(1)
    if epochs is not None:
        await epochs.close()
    if transport is not None:
        await transport.close(0.5)
    say(
        {
            "core": core.NAME,
            "cpu_secs": cpu,
            "wall_secs": wall,
            "counts": counts,
            "executed": executed,
            "acked": sum(spout.done for spout in spouts),
            "failed": failed,
            "figures": figures,
            "start_secs": start_secs,
            "checkpoint_secs": durations.secs,
            "errors": errors[:5],
        }
    )


def main() -> None:
    options = json.loads(sys.argv[1])
    if options["core_path"] is not None:
        variants.load(Path(options["core_path"]))
    stubs.apply(options["stubs"])
    try:
        uvloop.run(asyncio.wait_for(run(options), options["life_secs"]))
    except TimeoutError:
        # A run that hangs ends itself, and the benchmark with it.
        sys.exit(f"error: the run took more than {options['life_secs']:.0f} s")


if __name__ == "__main__":
    main()
