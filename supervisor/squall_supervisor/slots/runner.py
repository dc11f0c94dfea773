"""Carries out the commands of one slot, and feeds back to it what happened.

Everything here runs on the event loop; blocking work (fsync, reading /proc, unpacking) runs in
threads. Each slot has one timer, set to its next deadline: heartbeat files are read then, not all
the time, so that a hung worker is noticed exactly when its time is over, and an idle supervisor
stays idle. Only a worker that is starting is looked at more often.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from squall_common.cluster.worker_exits import WorkerExit
from squall_common.daemon.logs import get_logger
from squall_common.errors import describe
from squall_common.worker_files.heartbeat_file import Beat, Phase, read_heartbeat
from squall_common.worker_files.launch_spec import Incarnation
from squall_supervisor.blobs.localizer import LocalTopology
from squall_supervisor.blobs.source import LocalizeError
from squall_supervisor.confine.limits import NO_LIMITS, WorkerLimits, explain_kill
from squall_supervisor.launch.node import Node
from squall_supervisor.launch.start import LaunchError, LaunchRequest, start
from squall_supervisor.launch.worker_process import WorkerProcess
from squall_supervisor.records.assignments import PortAssignment
from squall_supervisor.records.worker_dir import remove_worker_dir
from squall_supervisor.records.worker_record import WorkerRecord
from squall_supervisor.slots.describe import history_event, is_trouble
from squall_supervisor.slots.disk_room import DiskRoom
from squall_supervisor.slots.slot import Slot, Step
from squall_supervisor.slots.table import (
    BlobsChanged,
    BlobsFailed,
    BlobsLocalized,
    BlobsMissing,
    Command,
    Event,
    KillWorker,
    LaunchFailed,
    LaunchWorker,
    LocalizeBlobs,
    MemoryExceeded,
    MemoryFarExceeded,
    ReleaseBlobs,
    RestartRequested,
    State,
    TerminateWorker,
    UpdateBlobs,
    WorkerAdopted,
    WorkerExited,
    WorkerLaunched,
)
from squall_supervisor.slots.worker_end import (
    Cause,
    CrashRecord,
    cause_of,
    describe_end,
    describe_overdue,
    headline,
    is_overdue,
    last_lines,
    reason_of,
    size_of,
)

log = get_logger(__name__)

# How often the heartbeat of a starting worker is looked at.
_START_LOOK_SECS = 0.2
# A worker that dies this often in a row may have spoiled files.
_LOOK_AT_RELAUNCH = 3
# A timer that fires this late means that this process or its machine was stopped.
_STALL_SECS = 1.5
# After such a stop a worker has this long to send a heartbeat.
_STALL_GRACE_SECS = 5.0


@dataclass(frozen=True, slots=True)
class _End:
    """How a worker ended."""

    topology_id: str
    cause: Cause
    status: int | None
    lived_secs: float | None  # None: another supervisor launched it
    lines: list[str]  # the last of its stderr
    overdue: bool = False  # it was asked to end, and killed because it took too long


class SlotRunner:
    """The shell of one slot. `changed` is called when its state or its worker changed;
    `wait_released(topology_id)` returns once no worker of this node runs that topology."""

    def __init__(
        self,
        port: int,
        node: Node,
        disk_room: DiskRoom,
        *,
        changed: Callable[[], None],
        wait_released: Callable[[str], Awaitable[None]],
    ) -> None:
        self.slot = Slot(port, node.settings.slot)
        self.process: WorkerProcess | None = None
        self.incarnation: Incarnation | None = None  # of the present worker
        self.limits: WorkerLimits = NO_LIMITS  # of the present worker
        self._node = node
        self._disk_room = disk_room
        self._changed = changed
        self._wait_released = wait_released
        self._localizing: asyncio.Task[Any] | None = None
        self._launching: asyncio.Task[Any] | None = None
        self._cleaning: set[asyncio.Task[Any]] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._closed = False
        self._topology_id: str | None = None  # that the slot's events are about
        self._looked = False  # whether the files were checked since the worker lived for a while
        self._logged = 0
        self._kills_reported: dict[str, int] = {}  # by worker id
        self._crash_record: CrashRecord | None = None  # for the next worker
        self._stderr_begin = 0  # of the present worker: what those before it have written

    @property
    def port(self) -> int:
        return self.slot.port

    # What the node calls.

    def want(self, wanted: PortAssignment | None) -> None:
        """Set what the port is to run."""
        self._carry_out(self.slot.want(wanted, self._now()))

    def adopt(self, record: WorkerRecord, process: WorkerProcess) -> None:
        """Take over a worker that outlived the previous supervisor."""
        self.process, self.incarnation, self.limits = process, record.incarnation, record.limits
        self._topology_id = record.assignment.topology_id
        process.watch(self._on_exit)
        event = WorkerAdopted(record.worker_id, record.timeout_secs, record.assignment)
        self._feed(event)
        log.info(
            "worker_adopted",
            topology_id=record.assignment.topology_id,
            port=self.port,
            worker_id=record.worker_id,
            pid=process.pid,
            incarnation=record.incarnation,
        )
        self._look()

    def blobs_changed(self) -> None:
        """Nimbus has another version of this slot's topology."""
        self._feed(BlobsChanged())

    def restart(self) -> bool:
        """End the worker as a stop does and start it again; returns False if no worker runs its
        tasks."""
        if self.slot.state is not State.RUNNING:
            return False
        self._feed(RestartRequested())
        return True

    def memory_exceeded(self, used_bytes: int, *, far: bool) -> bool:
        """The worker uses too much memory: end it and start it again; returns False if it is
        already ending and still has time to."""
        if far and self.slot.worker_id is not None:
            self._feed(MemoryFarExceeded(used_bytes))
            return True
        if self.slot.state not in (State.WAITING_FOR_WORKER_START, State.RUNNING):
            return False
        self._feed(MemoryExceeded(used_bytes))
        return True

    def forgive(self) -> None:
        """This process was stopped for a while: do not count heartbeats as late yet."""
        self.slot.forgive(self._now() + self._grace_secs())
        self._set_timer()

    async def close(self) -> None:
        """Release the worker, which runs on. A launch that is under way is finished first, so that
        the next supervisor finds its record, and so is what follows an exit: only this supervisor
        can collect its child."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
        if self._launching is not None:
            await asyncio.gather(self._launching, return_exceptions=True)
        while self._cleaning:  # its next worker may end meanwhile
            await asyncio.gather(*self._cleaning, return_exceptions=True)
        if self.process is not None:
            self.process.close()
            self.process = None

    # Events and commands.

    def _now(self) -> float:
        return self._node.clock.monotonic()

    def _feed(self, event: Event) -> None:
        if not self._closed:
            self._carry_out(self.slot.handle(event, self._now()))

    def _carry_out(self, commands: list[Command]) -> None:
        for command in commands:
            match command:
                case LocalizeBlobs(assignment):
                    self._localize(self._node.localizer.localize(assignment.topology_id))
                case UpdateBlobs(assignment):
                    self._localize(self._update(assignment.topology_id))
                case ReleaseBlobs():
                    if self._localizing is not None:
                        self._localizing.cancel()
                        self._localizing = None
                case LaunchWorker(assignment):
                    self._launching = self._node.tasks.start(
                        f"launch on port {self.port}", self._launch(assignment)
                    )
                case TerminateWorker():
                    if self.process is not None:
                        self.process.terminate()
                case KillWorker():
                    if self.process is not None:
                        self.process.kill()
        if self._log_steps():
            self._changed()
        self._set_timer()

    def _log_steps(self) -> bool:
        """Log the new steps of the slot's history; returns whether there are any."""
        steps = self.slot.steps - self._logged
        self._logged = self.slot.steps
        for step in list(self.slot.history)[-steps:] if steps else ():
            write = log.warning if is_trouble(step) else log.info
            write(
                "slot_step",
                port=self.port,
                state=step.state.name,
                what_happened=step.event,
                next=step.next.name,
            )
            self._record_step(step)
        return steps > 0

    def _record_step(self, step: Step) -> None:
        """Record a step of the slot in its topology's history."""
        what = history_event(step)
        if what is not None and self._topology_id is not None:
            self._node.record_event(self._topology_id, *what, self._place)
        if self.slot.assignment is not None:
            self._topology_id = self.slot.assignment.topology_id

    @property
    def _place(self) -> str:
        return f"{self._node.settings.hostname}:{self.port}"

    # Blobs.

    async def _update(self, topology_id: str) -> None:
        await self._wait_released(topology_id)
        await self._node.localizer.update(topology_id)

    def _localize(self, fetch: Awaitable[None]) -> None:
        async def run() -> None:
            try:
                await fetch
            except LocalizeError as error:
                self._disk_room.failed(self.port, error)
                self._localizing = None
                self._feed(BlobsFailed(str(error)))
            except Exception as error:  # a bug of ours; the other slots go on
                self._log_unexpected("topology_not_localized", error)
                self._localizing = None
                self._feed(BlobsFailed(describe(error)))
            else:
                self._localizing = None
                self._feed(BlobsLocalized())

        self._localizing = self._node.tasks.start(f"blobs for port {self.port}", run())

    # Launch and exit.

    async def _launch(self, assignment: PortAssignment) -> None:
        node = self._node
        began = self._now()
        try:
            topology = await asyncio.to_thread(self._read_topology, assignment.topology_id)
            if topology is None:
                self._feed(BlobsMissing())
                return
            before = (
                None
                if self._crash_record is None
                else self._crash_record.of(assignment.topology_id)
            )
            number = node.launch_numbers.next()
            request = LaunchRequest(node, self.port, assignment, topology, number, before)
            self._stderr_begin = size_of(self._stderr(assignment.topology_id))
            process = await asyncio.to_thread(start, request)
        except (LaunchError, OSError) as error:
            self._disk_room.failed(self.port, error)
            why = str(error) if isinstance(error, LaunchError) else describe(error)
            self._launch_failed(assignment, why)
            return
        except Exception as error:  # a problem of this topology; the other slots go on
            self._log_unexpected("worker_not_launched", error)
            self._launch_failed(assignment, describe(error))
            return
        if self._closed:
            process.close()
            return
        self._disk_room.launched(self.port)
        record = process.record
        assert record is not None, "this supervisor launched it"
        self.process, self.incarnation, self.limits = process, record.incarnation, record.limits
        process.watch(self._on_exit)
        log.info(
            "worker_launched",
            topology_id=assignment.topology_id,
            port=self.port,
            worker_id=process.worker_id,
            pid=process.pid,
            incarnation=record.incarnation,
            ms=round((self._now() - began) * 1000),
        )
        self._topology_id = assignment.topology_id
        pid = f"pid {process.pid}"
        node.record_event(assignment.topology_id, "worker launched", pid, self._place)
        self._feed(WorkerLaunched(process.worker_id, record.timeout_secs))

    def _log_unexpected(self, event: str, error: Exception) -> None:
        log.error(event, port=self.port, topology_id=self._topology_id, error=error, exc_info=error)

    def _launch_failed(self, assignment: PortAssignment, why: str) -> None:
        message = f"no worker could be started on {self._place}: {why}"
        self._node.trouble(assignment.topology_id, self.port, message)
        self._feed(LaunchFailed(why))

    def _read_topology(self, topology_id: str) -> LocalTopology | None:
        """The topology to launch; None if it must be fetched (again) because something is missing,
        or spoiled, which is checked when its workers keep dying."""
        localizer = self._node.localizer
        topology = localizer.read(topology_id)
        if topology is None or not localizer.is_as_signed(topology_id):
            return None
        if localizer.cache is not None and not all(map(localizer.cache.current, topology.blobs)):
            return None
        if self.slot.relaunches < _LOOK_AT_RELAUNCH:
            self._looked = False
        elif not self._looked:
            self._looked = True
            return None
        return topology

    def _on_exit(self, status: int | None) -> None:
        process, self.process = self.process, None
        limits, assignment = self.limits, self.slot.assignment
        self.incarnation, self.limits = None, NO_LIMITS
        if process is None:
            return
        log.info(
            "worker_exited",
            port=self.port,
            worker_id=process.worker_id,
            pid=process.pid,
            status=status,
        )
        end = None
        if assignment is not None:
            end = self._end_of(process, assignment.topology_id, status)
            self._note_exit(end)  # before the step below, which publishes it
        cleaning = self._node.tasks.start(
            f"clean-up of {process.worker_id}",
            self._clean_up(process, limits, end),
        )
        self._cleaning.add(cleaning)
        cleaning.add_done_callback(self._cleaning.discard)
        with self._crashing():
            self._feed(WorkerExited(process.worker_id, status))

    def _end_of(self, process: WorkerProcess, topology_id: str, status: int | None) -> _End:
        """Everything known about an exit, before the next worker writes to the same files."""
        slot = self.slot
        exited = Step(self._now(), slot.state, WorkerExited(process.worker_id, status), slot.state)
        steps = [*slot.history, exited]
        cause = cause_of(steps, self._beat_of(process))
        worker_dir = self._node.settings.workers_dir / process.worker_id
        left = CrashRecord.take(worker_dir, topology_id, cause, status, self._place)
        if left is not None:  # else it died too early: keep the one before
            self._crash_record = left
        return _End(
            topology_id,
            cause,
            status,
            None if status is None else self._now() - slot.launched_at,
            last_lines(self._stderr(topology_id), self._stderr_begin),
            overdue=cause.asked and is_overdue(steps),
        )

    def _note_exit(self, end: _End, oom_kills: int = 0) -> None:
        """For `storm list`, which shows unexpected exits."""
        if not end.cause.asked:
            noted = WorkerExit(
                int(self._node.clock.time()),
                self._node.settings.hostname,
                self.port,
                reason_of(end.cause, end.status, oom_kills),
                headline(end.lines),
            )
            self._node.exits.note(end.topology_id, noted, amends=oom_kills > 0)

    def _stderr(self, topology_id: str) -> Path:
        folder = self._node.settings.artifacts_dir / topology_id / str(self.port)
        return folder / "worker.log.err"

    async def _clean_up(
        self, process: WorkerProcess, limits: WorkerLimits, end: _End | None
    ) -> None:
        """After a worker's exit; reports an unexpected one, and OOM kills by the kernel."""
        kills = await asyncio.to_thread(self._remove_what_is_left, process)
        if end is not None:
            self.report_oom_kills(process, limits, end.topology_id, kills)
            by_kernel = kills > 0 and end.status in (-signal.SIGKILL, None)
            if by_kernel:
                self._note_exit(end, kills)
                self._changed()
            self._report_end(process, end, kills, reported=by_kernel or end.cause.reported)
        self._kills_reported.pop(process.worker_id, None)

    def _report_end(self, process: WorkerProcess, end: _End, kills: int, *, reported: bool) -> None:
        """`reported`: the topology's errors already have the reason, with advice."""
        if end.overdue:
            grace_secs = self._node.settings.slot.worker_shutdown_secs
            why = describe_overdue(self._place, end.status, grace_secs)
            log.warning("worker_stop_overdue", topology_id=end.topology_id, port=self.port, why=why)
            self._node.trouble(end.topology_id, self.port, why)
        if end.cause.asked:
            return
        text = describe_end(
            self._place,
            end.cause,
            end.status,
            pid=process.pid,
            lived_secs=end.lived_secs,
            peak_bytes=process.peak_bytes,
            oom_kills=kills,
            lines=end.lines,
        )
        log.error(
            "worker_ended_unexpectedly",
            topology_id=end.topology_id,
            port=self.port,
            worker_id=process.worker_id,
            pid=process.pid,
            why=text,
        )
        if reported:
            return
        suffix = self._node.ends.suffix(end.topology_id, self._now())
        if suffix is not None:
            self._node.trouble(end.topology_id, self.port, text + suffix)

    def report_oom_kills(
        self, process: WorkerProcess, limits: WorkerLimits, topology_id: str, kills: int
    ) -> None:
        """The kernel has killed this many processes of a worker for using too much memory."""
        if kills <= self._kills_reported.get(process.worker_id, 0):
            return
        self._kills_reported[process.worker_id] = kills
        why = explain_kill(self._place, limits, self._node.settings.memory_margin_mb)
        log.error(
            "worker_over_memory_limit",
            topology_id=topology_id,
            port=self.port,
            worker_id=process.worker_id,
            pid=process.pid,
            why=why,
        )
        self._node.trouble(topology_id, self.port, why)

    def _remove_what_is_left(self, process: WorkerProcess) -> int:
        """Returns how many of its processes the kernel had killed for using too much memory."""
        kills, cgroups = 0, self._node.cgroups
        process.clean_up()
        if cgroups is not None:
            kills = cgroups.oom_kills(process.worker_id)
            cgroups.remove(process.worker_id)
        remove_worker_dir(self._node.settings.workers_dir / process.worker_id)
        return kills

    # Time.

    def _set_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        due = self.slot.deadline()
        now = self._now()
        if self.slot.state is State.WAITING_FOR_WORKER_START and due is not None:
            due = min(due, now + _START_LOOK_SECS)
        if due is None or self._closed:
            return
        wait = max(0.0, due - now)
        self._timer = asyncio.get_running_loop().call_later(wait, self._on_timer, now + wait)

    def _on_timer(self, due: float) -> None:
        self._timer = None
        if self._now() - due > _STALL_SECS:
            self.slot.forgive(self._now() + self._grace_secs())
        with self._crashing():
            self._look()

    @contextmanager
    def _crashing(self) -> Iterator[None]:
        """For calls by the event loop: an unexpected error must not only end in its log."""
        try:
            yield
        except Exception as error:
            self._node.crashed(f"slot {self.port}", error)

    def _grace_secs(self) -> float:
        return min(_STALL_GRACE_SECS, self.slot.worker_timeout_secs)

    def _look(self) -> None:
        """Read the worker's heartbeat, if there is a worker, and do what is due."""
        if self.process is not None:
            beat = self._beat_of(self.process)
            if beat is not None and beat.pid == self.process.pid:
                at = beat.monotonic_ns / 1e9
                commands = self.slot.heartbeat(at, beat.phase is Phase.RUNNING, self._now())
                self._carry_out(commands)
                return
        self._carry_out(self.slot.advance(self._now()))

    def _beat_of(self, process: WorkerProcess) -> Beat | None:
        path = self._node.settings.workers_dir / process.worker_id / "heartbeat"
        try:
            return read_heartbeat(path)
        except (OSError, ValueError) as error:
            log.warning("heartbeat_unreadable", port=self.port, path=path, error=error)
            return None
