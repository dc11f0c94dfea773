"""`python -m squall_worker.local LAUNCH_FILE CONTROL_FD`: a worker of `storm local --workers`.

It is the worker of a cluster, with the cluster state in its own memory: assignment and status come
from the file that a supervisor, too, puts beside a launch file. The program that started it
(`squall._workers`) is at the other end of the socket CONTROL_FD. It reads a line of JSON for each
error of a component, one when the tasks run, and one in answer to each line that it sends. Once the
socket is closed, the worker stops, even if a component never returns. It writes its log to stderr.
"""

from __future__ import annotations

import asyncio
import contextlib
import faulthandler
import json
import logging
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from squall_common.cluster.state import ClusterState
from squall_common.cluster.stores.memory import MemoryEnsemble, MemoryStore
from squall_common.cluster.values import ErrorInfo
from squall_common.config.options.typed import WorkerOptions
from squall_common.daemon.logs import set_up_logging
from squall_common.worker_files.last_known import LastKnown
from squall_common.worker_files.launch_spec import LaunchSpec
from squall_worker.cluster.first_reading import FirstReading
from squall_worker.cluster.view import ClusterView
from squall_worker.process import Worker
from squall_worker.watch.watchdog import Errors

if TYPE_CHECKING:
    from squall_engine.embed import EmbeddedEngine

# After the time for a graceful stop: a call of a component does not return.
_FORCED_SECS = 1.0


class LocalWorker(Worker):
    """`control` is the socket to the program that started it."""

    def __init__(self, spec: LaunchSpec, state: ClusterState, control: socket.socket) -> None:
        super().__init__(spec, state=state, send=_send_nowhere, ask=_ask_nobody)
        self._control = control
        self._writes = threading.Lock()

    async def run(self) -> int:
        threading.Thread(target=self._obey, name="control", daemon=True).start()
        return await super().run()

    async def _start(self) -> tuple[EmbeddedEngine, ClusterView, FirstReading]:
        started = await super()._start()
        started[0].track_failed_messages()
        self._tell({"running": True})
        return started

    async def _send_error(self, component: str, info: ErrorInfo) -> None:
        self._tell({"component": component, "error": info.error, "count": info.count})

    def _report_heartbeat(self) -> float | None:
        """There is no supervisor that takes it, and no Nimbus."""
        return None

    def _on_signal(self, number: int) -> None:
        if number != signal.SIGINT:  # Ctrl-C reaches all processes; the first one decides
            super()._on_signal(number)

    def _obey(self) -> None:
        """Answer each line, the number of a question, and stop at the end; on a thread, since the
        loop may be held."""
        with contextlib.suppress(OSError), self._control.makefile("rb") as lines:
            for line in lines:
                self._loop.call_soon_threadsafe(self._report_counts, int(line))
        with contextlib.suppress(RuntimeError):  # the loop has ended
            self._loop.call_soon_threadsafe(self._on_signal, signal.SIGTERM)
        time.sleep(self.settings.stop_secs + _FORCED_SECS)
        os._exit(1)

    def _report_counts(self, question: int) -> None:
        engine = self._engine
        running = engine is not None and self._report is not None
        self._tell(
            {
                "question": question,
                "totals": engine.totals() if engine is not None and running else {},
                "failed": engine.failed_messages() if engine is not None and running else 0,
                **(self._rest(engine) if engine is not None and running else {}),
            }
        )

    def _rest(self, engine: EmbeddedEngine) -> dict[str, Any]:
        """Whether its sources have ended (None: a spout does not say), and what it has done so far
        if nothing is in flight."""
        ended, work = engine.sources_ended(), None
        if ended and self._transport is not None and self._transport.is_idle:
            work = engine.work_when_drained(at_end=True)
        return {"ended": ended, "work": work}

    def _tell(self, message: Mapping[str, Any]) -> None:
        with self._writes, contextlib.suppress(OSError):  # it has gone: `_obey` notices
            self._control.sendall(json.dumps(message).encode() + b"\n")


def _send_nowhere(errors: Errors, secs: float) -> None:
    """The error of a stuck call is in the log, which people read here."""


def _ask_nobody(roots: Collection[int], secs: float) -> Mapping[int, str]:
    """The messages of other workers' spouts are not known here."""
    return {}


async def state_of(spec: LaunchSpec) -> ClusterState:
    """A cluster state in memory, with what `spec.last_known_file` says. Not started. Raises OSError
    or ValueError if there is no such file."""
    known = LastKnown.parse(spec.last_known_file.read_bytes())
    if known.base is None:
        raise ValueError(f"{spec.last_known_file} does not say the topology's status")
    ensemble = MemoryEnsemble()
    state = ClusterState(MemoryStore(ensemble))
    await state.start()
    await state.create_topology(spec.topology_id, known.base)
    await state.put_assignment(spec.topology_id, known.assignment)
    await state.close()
    return ClusterState(MemoryStore(ensemble))


def main(argv: list[str]) -> int:
    if len(argv) != 2:
        print(__doc__, file=sys.stderr)
        return 2
    import uvloop

    spec = LaunchSpec.read(Path(argv[0]))
    options = WorkerOptions.read(spec.daemon_conf)
    level = logging.getLevelNamesMapping()[options.storm_log_level]
    set_up_logging(level=level, prefix=f"[{spec.worker_id}] ")
    faulthandler.enable()

    async def run() -> int:
        with socket.socket(fileno=int(argv[1])) as control:
            return await LocalWorker(spec, await state_of(spec), control).run()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        status = runner.run(run())
    logging.shutdown()
    os._exit(status)  # a user's thread that never ends must not keep the process alive


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
