"""One run: a seed, ten virtual minutes, and what came of it."""

from __future__ import annotations

import gc
import logging
import os
import random
import shutil
import sys
import tempfile
import time
import traceback
import uuid
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tests.simulation.faults import Story
from tests.simulation.invariants import Watcher
from tests.simulation.ledger import LEDGERS
from tests.simulation.loop import current_process
from tests.simulation.machine import EPOCH_SECS
from tests.simulation.world import World
from tests.support.validated import validated_transports

import squall_engine.embed
import squall_worker.report.statistics


@dataclass(slots=True)
class Outcome:
    """What a seed gave."""

    seed: int
    trace: str
    violations: list[str]
    sometimes: dict[str, int]
    steps: int
    secs: float  # of CPU time
    lines: list[str] = field(default_factory=list)


def simulate(
    seed: int,
    *,
    trace: Callable[[str], None] | None = None,
    virtual_secs: float = 600.0,
    sabotage: Callable[[World], None] = lambda world: None,
    script: Callable[[World], object] | None = None,
    watch: bool = True,
    **shape: object,
) -> Outcome:
    """Run a seed. `sabotage` may break the world beforehand; `script(world)` (a coroutine function)
    replaces the story that the seed tells; `shape` is World's."""
    base = "/dev/shm" if os.path.isdir("/dev/shm") else None
    folder = Path(tempfile.mkdtemp(prefix="squall-sim-", dir=base))
    began = time.process_time()
    gc.disable()
    try:
        outcome = _run(seed, folder, trace, virtual_secs, sabotage, script, watch, shape)
    finally:
        LEDGERS.clear()
        shutil.rmtree(folder, ignore_errors=True)
        _forget()
    outcome.secs = time.process_time() - began
    return outcome


def _run(
    seed: int,
    folder: Path,
    trace: Callable[[str], None] | None,
    virtual_secs: float,
    sabotage: Callable[[World], None],
    script: Callable[[World], object] | None,
    watch: bool,
    shape: dict[str, object],
) -> Outcome:
    with _repeatable(seed) as clockwork, validated_transports() as contradictions:
        world = World(seed, folder, **shape)  # type: ignore[arg-type]
        clockwork.append(world)
        if trace is not None:
            world.write_line = trace
            _trace_logs(world, trace)
        with world.disk.noting():
            with world.loop.time_stands():
                sabotage(world)
                watcher = Watcher(world) if watch else None
                main = script(world) if script is not None else Story(world, virtual_secs).run()
                done = world.loop.world.start(main)  # type: ignore[arg-type]
                if watcher is not None:
                    world.loop.world.tasks.add(world.loop.world.start(watcher.run()))
            try:
                world.loop.run_until(done)
            except Exception as error:
                world.violated(f"the run ended: {type(error).__name__}: {error}")
                if trace is not None:
                    trace(traceback.format_exc())
        for contradiction in contradictions:
            world.violated(contradiction)
        for error_text in world.loop.errors:
            world.violated(f"an error that nobody handled: {error_text}")
        return Outcome(
            seed,
            world.loop.trace,
            world.violations,
            {**world.sometimes, **world.network.counts, **world.disk.counts},
            world.loop.steps,
            0.0,
        )


def _forget() -> None:
    """Free what is left of the run: coroutines that never ended complain, and nobody listens."""
    hook, sys.unraisablehook = sys.unraisablehook, lambda _: None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            gc.collect()
    finally:
        sys.unraisablehook = hook
        gc.enable()


@contextmanager
def _repeatable(seed: int) -> Iterator[list[World]]:
    """Everything that is drawn or timed outside of the seams comes from the seed, too."""
    rng = random.Random(f"bytes {seed}")
    worlds: list[World] = []

    def now() -> float:
        return EPOCH_SECS + (worlds[0].loop.time() if worlds else 0.0)

    def no_tuning() -> None:
        """The garbage collector is this process's."""

    def leave(status: int) -> None:
        current_process().end(status)

    saved = (
        os._exit,
        os.urandom,
        uuid.uuid4,
        time.time,
        time.time_ns,
        time.monotonic,
        squall_engine.embed.tune_garbage_collector,
        squall_worker.report.statistics._SNAPSHOT_SECS,
        tempfile._name_sequence,  # type: ignore[attr-defined]
        gc.enable,
        list(sys.path),
        logging.root.manager.disable,
    )
    names = tempfile._RandomNameSequence()  # type: ignore[attr-defined]
    names._rng, names._rng_pid = random.Random(seed), os.getpid()
    os._exit = leave  # type: ignore[assignment]
    os.urandom = rng.randbytes  # type: ignore[assignment]
    uuid.uuid4 = lambda: uuid.UUID(int=rng.getrandbits(128), version=4)
    time.time = now
    time.time_ns = lambda: int(now() * 1e9)
    time.monotonic = lambda: worlds[0].loop.time() if worlds else 0.0
    squall_engine.embed.tune_garbage_collector = no_tuning
    squall_worker.report.statistics._SNAPSHOT_SECS = 0.0
    tempfile._name_sequence = names  # type: ignore[attr-defined]
    gc.enable = lambda: None
    logging.disable(logging.CRITICAL)
    try:
        yield worlds
    finally:
        (
            os._exit,
            os.urandom,
            uuid.uuid4,
            time.time,
            time.time_ns,
            time.monotonic,
            squall_engine.embed.tune_garbage_collector,
            squall_worker.report.statistics._SNAPSHOT_SECS,
            tempfile._name_sequence,  # type: ignore[attr-defined]
            gc.enable,
            sys.path[:],
            disabled,
        ) = saved
        logging.disable(disabled)


class _Lines(logging.Handler):
    def __init__(self, world: World, write_line: Callable[[str], None]) -> None:
        super().__init__()
        self._world = world
        self._write_line = write_line

    def emit(self, record: logging.LogRecord) -> None:
        try:
            who = current_process().name
        except LookupError:
            who = "-"
        name = record.name.removeprefix("squall_")
        text = self.format(record)
        self._write_line(f"{self._world.loop.time():10.3f} {who} {record.levelname} {name} {text}")


def _trace_logs(world: World, write_line: Callable[[str], None]) -> None:
    logging.disable(logging.NOTSET)
    for handler in list(logging.root.handlers):
        if isinstance(handler, _Lines):
            logging.root.removeHandler(handler)
    logging.root.addHandler(_Lines(world, write_line))
    logging.root.setLevel(logging.INFO)
    logging.getLogger("asyncio").setLevel(logging.CRITICAL)
