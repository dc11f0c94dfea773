"""One slot: what a port of this node runs, as a state machine.

A slot is asked to run something (or nothing), and drives one worker process towards that. The
states and their names are those of Storm's `Slot.MachineState`; unlike Storm's, a step here never
sleeps, kills or waits: it takes an event and the time, and returns commands for a shell that
carries them out and feeds back what happened.

    EMPTY -> WAITING_FOR_BLOB_LOCALIZATION -> WAITING_FOR_WORKER_START -> RUNNING
      ^                                           ^   |                      |
      |                                           |   v                      v
     KILL <- (another topology or executor set)   KILL_AND_RELAUNCH <- (exit, hang, memory)
                                                  WAITING_FOR_BLOB_UPDATE <- KILL_BLOB_UPDATE

Two kinds of event go through one table: what the shell reports (`WorkerExited`), and what follows
from the slot's own data and the time (`RelaunchDue`, `WorkerGone`), which the slot raises itself in
`advance`. The shell asks `deadline` when to call that next.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Any

from squall_supervisor.records.assignments import PortAssignment
from squall_supervisor.settings import SlotSettings
from squall_supervisor.slots.table import (
    TABLE,
    Assigned,
    BlobsChanged,
    BlobsFailed,
    BlobsLocalized,
    BlobsMissing,
    Command,
    Event,
    GraceOver,
    HeartbeatReceived,
    HeartbeatTimedOut,
    KillWorker,
    LaunchFailed,
    LaunchWorker,
    MemoryExceeded,
    MemoryFarExceeded,
    Reassigned,
    RelaunchDue,
    ReleaseBlobs,
    RestartRequested,
    RetryDue,
    State,
    TasksStarted,
    TerminateWorker,
    Unassigned,
    WorkerAdopted,
    WorkerExited,
    WorkerGone,
    WorkerLaunched,
)

_EMPTY = State.EMPTY
_LOCALIZE = State.WAITING_FOR_BLOB_LOCALIZATION
_START = State.WAITING_FOR_WORKER_START
_RUNNING = State.RUNNING
_KILL = State.KILL
_RELAUNCH = State.KILL_AND_RELAUNCH
_KILL_UPDATE = State.KILL_BLOB_UPDATE
_UPDATE = State.WAITING_FOR_BLOB_UPDATE


class IllegalEventError(Exception):
    """An event that cannot happen in the slot's state: a bug of the shell. Nothing changes."""


@dataclass(frozen=True, slots=True)
class Step:
    """One transition, for logs and for the history in the message of an illegal event."""

    at: float
    state: State
    event: Event
    next: State

    def __str__(self) -> str:
        return f"{self.at:.3f} {self.state.name} --{self.event}--> {self.next.name}"


_FIRST_RETRY_SECS = 0.25
_KILL_AGAIN_SECS_MIN = 1.0  # even without a grace: SIGKILL may take a moment to work
_PROCESS_STATES = frozenset({_START, _RUNNING, _KILL, _RELAUNCH, _KILL_UPDATE})
_HISTORY_STEPS = 24
# Workers that outlive `worker_min_uptime_secs` but still end this often crash in a loop.
_ENDS = 3
_ENDS_WITHIN_SECS = 120.0


class Slot:
    """The state machine of one port; see the module docstring."""

    def __init__(self, port: int, settings: SlotSettings) -> None:
        self.port = port
        self.settings = settings
        self.state = State.EMPTY
        self.wanted: PortAssignment | None = None  # what the port is to run
        self.assignment: PortAssignment | None = None  # of the state; None only in EMPTY
        self.worker_id: str | None = None  # not None exactly while a process exists
        self.launching = False  # LaunchWorker was commanded and not yet answered
        self.worker_timeout_secs = 0.0  # of the present process
        self.launched_at = 0.0  # of the present process
        self.beat_at: float | None = None  # its last heartbeat
        self.running_since: float | None = None  # not None once its tasks have run
        self.relaunches = 0  # in a row, of short-lived incarnations
        self.relaunch_at: float | None = None  # not None only in KILL_AND_RELAUNCH, process gone
        self.ended: deque[float] = deque(maxlen=_ENDS)  # when workers ended unexpectedly
        self.kill_at: float | None = None  # not None exactly while a process is being ended
        self.localize_failures = 0
        self.retry_at: float | None = None  # not None only between two tries to localize
        self.forgiven_until = 0.0  # heartbeats do not count as late before this
        self.history: deque[Step] = deque(maxlen=_HISTORY_STEPS)
        self.steps = 0  # ever added to the history

    # What the shell calls.

    def want(self, wanted: PortAssignment | None, now: float) -> list[Command]:
        """Set what the port is to run from now on; nothing happens if it is the same work."""
        if wanted is not None and self.wanted is not None and wanted.same_work(self.wanted):
            return []
        if wanted is None and self.wanted is None:
            return []
        event: Event
        if wanted is None:
            event = Unassigned()
        elif self.wanted is None:
            event = Assigned()
        else:
            event = Reassigned()
        self.wanted = wanted
        return self.handle(event, now)

    def handle(self, event: Event, now: float) -> list[Command]:
        """Take one event; returns the commands to carry out, in order.

        Raises IllegalEventError, with nothing changed, if the event cannot happen in this state.
        """
        commands = self._step(event, now)
        commands.extend(self.advance(now))
        return commands

    def advance(self, now: float) -> list[Command]:
        """Raise the events that are due. Calling it too early or twice does nothing."""
        commands: list[Command] = []
        while (event := self._due(now)) is not None:
            commands.extend(self._step(event, now))
        return commands

    def deadline(self) -> float | None:
        """When `advance` next has something to do, if no event comes before."""
        if self.kill_at is not None:
            return self.kill_at
        if self.relaunch_at is not None:
            return self.relaunch_at
        if self.retry_at is not None:
            return self.retry_at
        return self._heartbeat_deadline()

    def heartbeat(self, at: float, tasks_run: bool, now: float) -> list[Command]:
        """Take a heartbeat: when it was written, and whether the worker's tasks run. Reading the
        same one twice does no harm."""
        if self.worker_id is None:
            return []
        commands = self._step(HeartbeatReceived(at), now)
        if tasks_run and self.state is _START:
            commands.extend(self._step(TasksStarted(), now))
        commands.extend(self.advance(now))
        return commands

    def forgive(self, until: float) -> None:
        """Do not count heartbeats as late before `until`: this supervisor itself was stopped for a
        while, and so, perhaps, was the whole machine."""
        self.forgiven_until = max(self.forgiven_until, until)

    def backoff_secs(self, relaunches: int) -> float:
        """The wait before a relaunch, after this many relaunches in a row."""
        if relaunches == 0:
            return 0.0
        # 2**60 s is beyond any maximum: no overflow after years of crashing.
        wait: float = self.settings.backoff_first_secs * 2 ** min(relaunches - 1, 60)
        return min(wait, self.settings.backoff_max_secs)

    def ended_often(self, now: float) -> bool:
        """Whether workers keep ending unexpectedly, even if each one ran for a while."""
        return len(self.ended) == _ENDS and now - self.ended[0] < _ENDS_WITHIN_SECS

    # What it does inside.

    def _heartbeat_deadline(self) -> float | None:
        if self.worker_id is None or self.state not in (_START, _RUNNING):
            return None
        if self.beat_at is None:
            due = self.launched_at + max(
                self.settings.worker_start_timeout_secs, self.worker_timeout_secs
            )
        else:
            # A worker may take long to launch its tasks, but it sends heartbeats meanwhile.
            due = self.beat_at + self.worker_timeout_secs
        return max(due, self.forgiven_until)

    def _due(self, now: float) -> Event | None:
        if self.state is _EMPTY:
            return Assigned() if self.wanted is not None else None
        gone = self.worker_id is None and not self.launching
        if gone and self.state in (_KILL, _KILL_UPDATE):
            return WorkerGone()
        if self.kill_at is not None and now >= self.kill_at:
            return GraceOver()
        if self.relaunch_at is not None and now >= self.relaunch_at:
            return RelaunchDue()
        if self.retry_at is not None and now >= self.retry_at:
            return RetryDue()
        heartbeat = self._heartbeat_deadline()
        if heartbeat is not None and now >= heartbeat:
            return HeartbeatTimedOut()
        return None

    def _step(self, event: Event, now: float) -> list[Command]:
        row = TABLE.get((self.state, type(event)))
        if row is None or not self._expected(event):
            story = "".join(f"\n  {step}" for step in self.history)
            raise IllegalEventError(
                f"port {self.port}: {event} cannot happen in {self.state.name} "
                f"(worker {self.worker_id}, launching {self.launching}); what led here:{story}"
            )
        before = self.state
        self.state, kinds = row
        if self.state is _RELAUNCH is not before and not isinstance(event, RestartRequested):
            self.ended.append(now)
        self._apply(event, now)
        commands = [command for kind in kinds if (command := self._build(kind)) is not None]
        for command in commands:
            self._note(command, now)
        if not (isinstance(event, HeartbeatReceived) and self.state is before):
            self.history.append(Step(now, before, event, self.state))
            self.steps += 1
        return commands

    def _expected(self, event: Event) -> bool:
        """Whether the event fits the slot's data; the table only knows its state."""
        match event:
            case WorkerLaunched() | LaunchFailed() | BlobsMissing():
                return self.launching
            case WorkerExited(worker_id=worker_id):
                return worker_id == self.worker_id
            case HeartbeatReceived() | TasksStarted() | MemoryExceeded() | MemoryFarExceeded():
                return self.worker_id is not None
            case BlobsLocalized() | BlobsFailed():
                return self.retry_at is None
        return True

    def _apply(self, event: Event, now: float) -> None:
        """Change the data for the event; the state has already been changed."""
        match event:
            case Assigned() | Reassigned() | RelaunchDue() | Unassigned():
                self.relaunch_at = self.retry_at = None
                if self.state is _LOCALIZE:
                    self._begin(self.wanted)
            case BlobsLocalized():
                self.localize_failures = 0
            case BlobsFailed():
                wait = _FIRST_RETRY_SECS * 2 ** min(self.localize_failures, 30)
                self.localize_failures += 1
                self.retry_at = now + min(wait, self.settings.localize_retry_max_secs)
            case RetryDue():
                self.retry_at = None
            case BlobsMissing():
                self.launching = False
            case BlobsChanged():
                self.relaunch_at = None
            case WorkerLaunched(worker_id, timeout_secs):
                self._process_started(worker_id, timeout_secs, now)
            case WorkerAdopted(worker_id, timeout_secs, assignment):
                self.wanted = assignment
                self._begin(assignment)
                self._process_started(worker_id, timeout_secs, now)
            case LaunchFailed():
                self.launching = False
                self._back_off(now)
            case HeartbeatReceived(at):
                if self.beat_at is None or at > self.beat_at:
                    self.beat_at = at
            case TasksStarted():
                self.running_since = now
            case RestartRequested():
                self.relaunches = 0
            case WorkerExited():
                self.worker_id = self.kill_at = None
                self._back_off(now)
                self.running_since = self.beat_at = None
        if self.state is _EMPTY:
            self._begin(None)

    def _begin(self, assignment: PortAssignment | None) -> None:
        self.assignment = assignment
        self.relaunches = self.localize_failures = 0
        self.relaunch_at = self.retry_at = None
        self.ended.clear()

    def _process_started(self, worker_id: str, timeout_secs: float, now: float) -> None:
        self.launching = False
        self.worker_id = worker_id
        self.worker_timeout_secs = timeout_secs
        self.launched_at = now
        self.beat_at = self.running_since = None

    def _back_off(self, now: float) -> None:
        if self.state is not _RELAUNCH:
            return
        lasted = self.running_since is not None and (
            now - self.running_since >= self.settings.worker_min_uptime_secs
        )
        if lasted:
            self.relaunches = 0
        self.relaunch_at = now + self.backoff_secs(self.relaunches)
        self.relaunches += 1

    def _build(self, kind: type[Any]) -> Command | None:
        if kind is TerminateWorker or kind is KillWorker:
            about: tuple[object, ...] = (self.worker_id,)
        elif kind is ReleaseBlobs:
            about = ()
        else:
            about = (self.assignment,)
        if about == (None,):
            return None
        command: Command = kind(*about)
        return command

    def _note(self, command: Command, now: float) -> None:
        """Remember a command, as far as later events depend on it."""
        match command:
            case TerminateWorker():
                self.kill_at = now + self.settings.worker_shutdown_secs
            case KillWorker():
                self.kill_at = now + max(self.settings.worker_shutdown_secs, _KILL_AGAIN_SECS_MIN)
            case LaunchWorker():
                self.launching = True

    def validate(self) -> None:
        """Assert what must be true between two events."""
        state = self.state
        ending = (_KILL, _RELAUNCH, _KILL_UPDATE)
        assert (self.assignment is None) == (state is _EMPTY), state
        if state is _EMPTY:
            assert self.wanted is None
        if state not in (_EMPTY, _KILL):
            assert self.wanted is not None
            assert self.assignment is not None
            assert self.wanted.same_work(self.assignment), state
        assert not (self.launching and self.worker_id is not None)
        if self.launching or self.worker_id is not None:
            assert state in _PROCESS_STATES, state
        if state in (_START, _KILL, _KILL_UPDATE):
            assert self.launching or self.worker_id is not None, state
        if state is _RUNNING:
            assert self.worker_id is not None
            assert self.running_since is not None
            assert self.beat_at is not None
        if state is _RELAUNCH:
            assert not self.launching
            assert (self.relaunch_at is None) == (self.worker_id is not None)
        else:
            assert self.relaunch_at is None
        assert (self.kill_at is not None) == (self.worker_id is not None and state in ending), state
        if self.retry_at is not None:
            assert state in (_LOCALIZE, _UPDATE)
        if self.worker_id is None:
            assert self.running_since is None
