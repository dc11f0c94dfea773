"""Carries out the requests for this node's workers that clients make by Nimbus' setWorkerProfiler.

Nimbus stores each request in ZooKeeper, one znode per (worker, action); the supervisor of the
worker carries it out, leaves the result among the worker's logs, and removes the request. A request
that fails becomes an error of the topology's `__system` component that names the missing file;
either way a client that sees the request gone knows that it is over.

    JPROFILE_START   sample until the request's time stamp -> flamegraph-STAMP.svg
    JPROFILE_STOP    while sampling: end it now. Else, with a time stamp to come: as START, which is
                     how Storm's UI begins a profile
    JPROFILE_DUMP    write the samples so far -> flamegraph-STAMP.svg, and go on
    JSTACK_DUMP      threads, asyncio tasks, executors -> stacks-STAMP.txt
    JMAP_DUMP        objects by type -> heap-STAMP.txt
    SAMPLE_TASKS     until the time stamp, inside the worker: stacks by task -> samples-STAMP.txt
    SAMPLE_NATIVE, SAMPLE_NATIVE_IDLE   the same by py-spy with native frames, of threads that run
                     or of all -> native-STAMP.txt
    JVM_RESTART      drain the worker and start it again

STAMP is the request's timestamp in milliseconds, so that the client knows the name.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from squall_common.cluster.codec import CorruptStateError
from squall_common.cluster.state import ClusterState
from squall_common.cluster.store import StoreError
from squall_common.cluster.values import ProfileAction, ProfileRequest
from squall_common.daemon.clock import Clock
from squall_common.daemon.files import sync_dir
from squall_common.daemon.logs import get_logger
from squall_common.daemon.loop.background import BackgroundTasks
from squall_common.worker_files.dump_request import DumpKind, ask
from squall_common.worker_files.heartbeat_file import read_heartbeat
from squall_supervisor.confine.ownership import owner_of
from squall_supervisor.launch.worker_process import WorkerProcess
from squall_supervisor.node.topology_errors import TopologyErrors
from squall_supervisor.settings import SupervisorSettings
from squall_supervisor.slots.runner import SlotRunner
from squall_supervisor.slots.table import State
from squall_supervisor.watch.pyspy import ProfileError, Sampling, find_py_spy

log = get_logger(__name__)

_POLL_SECS = 0.1
# A dump comes with the worker's next heartbeat; any living worker has sent one by then.
_DUMP_SECS = 10.0
_SIGNAL_SECS = 2.0
_START_SECS = 20.0  # for a worker that is starting
_SAMPLE_SECS_MAX = 3600.0
_FILES_MAX = 50  # of one worker; the oldest go
_KINDS = ("flamegraph-", "stacks-", "heap-", "samples-", "native-")
_RAW_SECS_MAX = 60.0
_RETRY_SECS = 1.0


_Key = tuple[str, int, ProfileAction]  # topology, port


@dataclass(slots=True)
class _Recording:
    """A worker that is being sampled."""

    sampling: Sampling | None = None
    next_name: str | None = None  # of the file for the samples so far
    ends: bool = False  # stopped: nothing follows


class Profiling:
    """Follows the requests for the workers of this node. `running` returns the topologies that have
    a worker here, `runners` the slots."""

    def __init__(
        self,
        cluster: ClusterState,
        runners: Mapping[int, SlotRunner],
        settings: SupervisorSettings,
        errors: TopologyErrors,
        *,
        supervisor_id: str,
        clock: Clock,
        tasks: BackgroundTasks,
    ) -> None:
        self._cluster = cluster
        self._runners = runners
        self._settings = settings
        self._errors = errors
        self._nodes = frozenset({supervisor_id, settings.hostname})
        self._clock = clock
        self._tasks = tasks
        self._wake = asyncio.Event()
        self._taken: dict[_Key, ProfileRequest] = {}  # the last of each kind, done or under way
        self._under_way: set[_Key] = set()
        self._recordings: dict[int, _Recording] = {}

    def request(self) -> None:
        """Look again soon: the running workers have changed, or the connection is back."""
        self._wake.set()

    async def run(self) -> None:
        """Look for requests until cancelled: when a watch fires, and regularly."""
        while True:
            wait_secs = self._settings.sync_secs
            self._wake.clear()
            try:
                await self._look()
            except StoreError as error:
                log.info("profile_requests_not_read", error=error)
                wait_secs = max(wait_secs, _RETRY_SECS)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(wait_secs):
                    await self._wake.wait()

    def _on_change(self, path: str) -> None:
        self._wake.set()

    async def _look(self) -> None:
        here = self._topologies()
        self._taken = {key: one for key, one in self._taken.items() if key[0] in here}
        for topology_id in sorted(here):
            for request in await self._requests(topology_id):
                key = (topology_id, request.slot.port, request.action)
                ours = request.slot.node in self._nodes and request.slot.port in self._runners
                # A finished request may still show up: it was read before it was removed.
                if ours and key not in self._under_way and request != self._taken.get(key):
                    self._taken[key] = request
                    self._under_way.add(key)
                    self._tasks.start(
                        f"{request.action.name} on port {request.slot.port}",
                        self._serve(topology_id, request),
                    )

    async def _requests(self, topology_id: str) -> list[ProfileRequest]:
        try:
            return await self._cluster.profile_requests(topology_id, self._on_change)
        except CorruptStateError as error:
            log.warning("profile_request_unreadable", topology_id=topology_id, error=error)
            return []

    def _topologies(self) -> set[str]:
        assignments = [runner.slot.assignment for runner in self._runners.values()]
        return {one.topology_id for one in assignments if one is not None}

    async def _serve(self, topology_id: str, request: ProfileRequest) -> None:
        """Handle one request from beginning to end."""
        port, action = request.slot.port, request.action
        log.info("profile_request", topology_id=topology_id, port=port, action=action.name)
        try:
            await self._carry_out(topology_id, request)
        except (ProfileError, OSError) as error:
            log.warning(
                "profile_request_failed",
                topology_id=topology_id, port=port, action=action.name, error=error,
            )  # fmt: skip
            await self._report_failure(topology_id, request, error)
        except Exception as error:  # a bug of ours; a profile must not end the supervisor
            log.error(
                "profile_request_crashed",
                topology_id=topology_id, port=port, action=action.name, error=error, exc_info=error,
            )  # fmt: skip
            await self._report_failure(topology_id, request, error)
        await self._remove(topology_id, request)
        self._under_way.discard((topology_id, port, action))
        self._wake.set()  # the request may have been made again meanwhile

    async def _carry_out(self, topology_id: str, request: ProfileRequest) -> None:
        if not (self._settings.profiler_enabled or request.action is ProfileAction.JVM_RESTART):
            raise ProfileError(
                "this supervisor does not profile workers",
                hint="set worker.profiler.enabled: true in its configuration",
            )
        runner = self._runners[request.slot.port]
        # A user who restarts a worker and profiles it finds it starting.
        await self._appears(
            lambda: runner.slot.state is not State.WAITING_FOR_WORKER_START, _START_SECS
        )
        process = self._process(topology_id, runner)
        restarts = request.action is ProfileAction.JVM_RESTART
        if not restarts and await asyncio.to_thread(self._is_strangers, process):
            raise ProfileError(
                "the worker runs as another user (supervisor.run.worker.as.user), and "
                "this supervisor writes nothing in that user's folders",
                hint="that user can run py-spy itself",
            )
        folder = self._settings.artifacts_dir / topology_id / str(runner.port)
        match request.action:
            case ProfileAction.JPROFILE_START:
                await self._record(runner, process, request, folder)
            case ProfileAction.JPROFILE_STOP:
                recording = self._recordings.get(runner.port)
                if recording is None and self._secs_until(request) > 0:
                    await self._record(runner, process, request, folder)
                else:
                    self._interrupt(recording, ends=True)
            case ProfileAction.JPROFILE_DUMP:
                self._interrupt(
                    self._recordings.get(runner.port), name=file_name(request), ends=False
                )
            case ProfileAction.JSTACK_DUMP:
                await self._dump(process, folder, file_name(request), DumpKind.STACKS)
            case ProfileAction.JMAP_DUMP:
                await self._dump(process, folder, file_name(request), DumpKind.HEAP)
            case ProfileAction.SAMPLE_TASKS:
                secs = self._raw_secs(request)
                await self._dump(process, folder, file_name(request), DumpKind.SAMPLES, secs)
            case ProfileAction.SAMPLE_NATIVE | ProfileAction.SAMPLE_NATIVE_IDLE:
                await self._sample_native(process, request, folder)
            case ProfileAction.JVM_RESTART:
                if not runner.restart():
                    raise ProfileError("the worker is already starting or ending")
        if not restarts:  # which leaves no file
            await asyncio.to_thread(prune, folder)

    def _is_strangers(self, process: WorkerProcess) -> bool:
        owner = owner_of(self._settings.workers_dir / process.worker_id)
        return owner is not None and owner != os.geteuid()

    def _process(self, topology_id: str, runner: SlotRunner) -> WorkerProcess:
        assignment = runner.slot.assignment
        process = runner.process
        if assignment is None or assignment.topology_id != topology_id or process is None:
            raise ProfileError("no worker of the topology runs on this port now")
        if runner.slot.state is not State.RUNNING:
            raise ProfileError(
                f"the worker is not running yet, or not any more ({runner.slot.state.name})"
            )
        return process

    # Flame graphs.

    def _secs_until(self, request: ProfileRequest) -> float:
        return (request.time_stamp or 0) / 1000 - self._clock.time()

    def _interrupt(
        self, recording: _Recording | None, *, ends: bool, name: str | None = None
    ) -> None:
        if recording is None or recording.sampling is None:
            raise ProfileError("the worker is not being profiled")
        recording.next_name = name
        recording.ends = recording.ends or ends
        recording.sampling.stop()

    async def _record(
        self, runner: SlotRunner, process: WorkerProcess, request: ProfileRequest, folder: Path
    ) -> None:
        secs = self._secs_until(request)
        if secs <= 0:
            raise ProfileError("the time of the profile has already passed")
        if secs > _SAMPLE_SECS_MAX:
            raise ProfileError(
                f"a profile of {secs:.0f} s is too long; at most {_SAMPLE_SECS_MAX:.0f} s"
            )
        if runner.port in self._recordings:
            raise ProfileError("the worker is already being profiled")
        program = find_py_spy(self._settings.profiler_command)
        recording = self._recordings[runner.port] = _Recording()
        ends_at = self._clock.monotonic() + secs
        try:
            while not recording.ends:
                left = ends_at - self._clock.monotonic()
                if left < _POLL_SECS:
                    break
                part = folder / f".{file_name(request)}.part"
                recording.sampling = Sampling(program, process.pid, part)
                try:
                    await recording.sampling.run(left)
                    if runner.process is not process:
                        log.warning("worker_ended_while_profiled", port=runner.port)
                        recording.ends = True
                    name = recording.next_name or file_name(request)
                    recording.ends = recording.ends or recording.next_name is None
                    recording.next_name = None
                    await asyncio.to_thread(_publish, part, folder / name)
                finally:
                    part.unlink(missing_ok=True)
        finally:
            del self._recordings[runner.port]

    # Raw stacks.

    def _raw_secs(self, request: ProfileRequest) -> float:
        secs = self._secs_until(request)
        if secs > _RAW_SECS_MAX:
            raise ProfileError(f"{secs:.0f} s of samples are too many; at most {_RAW_SECS_MAX:.0f}")
        return max(0.0, secs)

    async def _sample_native(
        self, process: WorkerProcess, request: ProfileRequest, folder: Path
    ) -> None:
        secs = self._raw_secs(request)
        part = folder / f".{file_name(request)}.part"
        options = ["--format", "raw", "--native"]
        if request.action is ProfileAction.SAMPLE_NATIVE_IDLE:
            options.append("--idle")
        program = find_py_spy(self._settings.profiler_command)
        try:
            await Sampling(program, process.pid, part, options).run(secs)
            await asyncio.to_thread(_publish, part, folder / file_name(request))
        finally:
            part.unlink(missing_ok=True)

    # Dumps.

    async def _dump(
        self,
        process: WorkerProcess,
        folder: Path,
        name: str,
        kind: DumpKind,
        more_secs: float = 0.0,
    ) -> None:
        """`more_secs`: how long the worker needs for it, once it has begun."""
        worker_dir = self._settings.workers_dir / process.worker_id
        await asyncio.to_thread(ask, worker_dir, kind, name)
        target = folder / name
        if await self._appears(target.exists, _DUMP_SECS + more_secs):
            return
        (worker_dir / kind.value).unlink(missing_ok=True)
        if kind is not DumpKind.STACKS:
            raise ProfileError("the worker does not answer: something in it holds the interpreter")
        await self._dump_by_signal(process, worker_dir, folder, target)

    async def _dump_by_signal(
        self, process: WorkerProcess, worker_dir: Path, folder: Path, target: Path
    ) -> None:
        """C code in the worker holds the interpreter's lock, so that no Python runs at all: the
        interpreter's own fault handler writes the threads' stacks to the worker's stderr."""
        beat = await asyncio.to_thread(read_heartbeat, worker_dir / "heartbeat")
        printed = folder / "worker.log.err"
        before = printed.stat().st_size if printed.exists() else 0
        if beat is None or not process.dump_stacks():
            raise ProfileError("the worker does not answer")

        def written() -> bool:
            return printed.exists() and printed.stat().st_size > before

        if not await self._appears(written, _SIGNAL_SECS):
            raise ProfileError(
                "the worker does not answer at all: it is stopped, or stuck in the kernel"
            )
        await asyncio.sleep(_POLL_SECS)
        with printed.open("rb") as file:
            file.seek(before)
            stacks = file.read()
        head = b"The worker runs no Python code: something in it holds the interpreter.\n\n"
        await asyncio.to_thread(target.write_bytes, head + stacks)

    async def _appears(self, probe: Callable[[], bool], secs: float) -> bool:
        deadline = self._clock.monotonic() + secs
        while not await asyncio.to_thread(probe):
            if self._clock.monotonic() >= deadline:
                return False
            await asyncio.sleep(_POLL_SECS)
        return True

    # The end of a request.

    async def _report_failure(
        self, topology_id: str, request: ProfileRequest, error: Exception
    ) -> None:
        port = request.slot.port
        worker = f"{self._settings.hostname}:{port}"
        message = f"{file_name(request)} of worker {worker}: {error}"
        await self._errors.report(topology_id, port, message)

    async def _remove(self, topology_id: str, request: ProfileRequest) -> None:
        """Remove the request, unless it was made again meanwhile: then it is handled again."""
        while True:
            try:
                try:
                    ours = request in await self._cluster.profile_requests(topology_id)
                except CorruptStateError:
                    ours = True  # another request cannot be read; we did read this one
                if ours:
                    await self._cluster.remove_profile_request(topology_id, request)
                break
            except StoreError as error:
                log.info("profile_request_not_removed", topology_id=topology_id, error=error)
                await asyncio.sleep(_RETRY_SECS)


def file_name(request: ProfileRequest) -> str:
    """The file that a request produces."""
    stamp = request.time_stamp or 0
    match request.action:
        case ProfileAction.JSTACK_DUMP:
            return f"stacks-{stamp}.txt"
        case ProfileAction.JMAP_DUMP:
            return f"heap-{stamp}.txt"
        case ProfileAction.JVM_RESTART:
            return f"restart-{stamp}"
        case ProfileAction.SAMPLE_TASKS:
            return f"samples-{stamp}.txt"
        case ProfileAction.SAMPLE_NATIVE | ProfileAction.SAMPLE_NATIVE_IDLE:
            return f"native-{stamp}.txt"
        case _:
            return f"flamegraph-{stamp}.svg"


def prune(folder: Path) -> None:
    """Keep only the newest of our files in a worker's folder."""
    ours = [path for path in folder.glob("*-*.*") if path.name.startswith(_KINDS)]
    for path in sorted(ours, key=lambda one: one.lstat().st_mtime)[:-_FILES_MAX]:
        path.unlink(missing_ok=True)


def _publish(part: Path, target: Path) -> None:
    part.chmod(0o600)
    part.replace(target)
    sync_dir(target.parent)
