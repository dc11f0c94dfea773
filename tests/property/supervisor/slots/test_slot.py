"""The slot against everything that can happen to it, in any order.

The rules play the shell faithfully: it answers each command once, or late, or with a failure, and
processes die whenever they like. Whatever the order: no event is illegal, the invariants hold,
there is never more than one process, and a slot that is left alone gets what is wanted of it.
"""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from tests.support.effort import examples

from squall_common.topology.model import Executor
from squall_supervisor.records.assignments import PortAssignment
from squall_supervisor.settings import SlotSettings
from squall_supervisor.slots.slot import Slot
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

WORK = [
    PortAssignment("a-1-1", (Executor(1, 1),), 1),
    PortAssignment("a-1-1", (Executor(1, 1), Executor(2, 2)), 2),
    PortAssignment("b-2-2", (Executor(1, 1),), 3),
]
SETTINGS = SlotSettings(
    worker_start_timeout_secs=20, worker_shutdown_secs=3, worker_min_uptime_secs=10,
    backoff_max_secs=60,
)  # fmt: skip


class SlotMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.now = 1000.0
        self.slot = Slot(6700, SETTINGS)
        self.localizing = False
        self.launch: PortAssignment | None = None
        self.process: str | None = None
        self.process_work: PortAssignment | None = None
        self.asked_to_end = self.killed = False
        self.workers = 0
        self.launch_times: list[float] = []

    def carry_out(self, commands: list[Command]) -> None:
        for command in commands:
            match command:
                case LocalizeBlobs() | UpdateBlobs():
                    assert not self.localizing
                    assert self.process is None
                    self.localizing = True
                case ReleaseBlobs():
                    self.localizing = False
                case LaunchWorker(assignment):
                    assert self.process is None
                    assert self.launch is None
                    assert self.slot.wanted is not None
                    assert assignment.same_work(self.slot.wanted)
                    self.launch = assignment
                    self.launch_times.append(self.now)
                case TerminateWorker(worker_id):
                    assert worker_id == self.process
                    self.asked_to_end = True
                case KillWorker(worker_id):
                    assert worker_id == self.process
                    self.killed = True

    def feed(self, event: Event) -> None:
        self.carry_out(self.slot.handle(event, self.now))

    @initialize(adopted=st.sampled_from([None, *WORK]))
    def start(self, adopted: PortAssignment | None) -> None:
        if adopted is not None:
            self.process, self.process_work = "adopted", adopted
            self.feed(WorkerAdopted("adopted", 5.0, adopted))

    @rule(wanted=st.sampled_from([None, *WORK]))
    def want(self, wanted: PortAssignment | None) -> None:
        self.carry_out(self.slot.want(wanted, self.now))

    @rule(secs=st.sampled_from([0.0, 0.2, 1.0, 4.0, 30.0, 200.0]))
    def time_passes(self, secs: float) -> None:
        self.now += secs
        self.carry_out(self.slot.advance(self.now))

    @precondition(lambda self: self.localizing)
    @rule(whole=st.booleans())
    def answer_localize(self, whole: bool) -> None:
        self.localizing = False
        self.feed(BlobsLocalized() if whole else BlobsFailed("no leader"))

    @precondition(lambda self: self.launch is not None)
    @rule(outcome=st.sampled_from(["launched", "launched", "failed", "blobs missing"]))
    def answer_launch(self, outcome: str) -> None:
        launch, self.launch = self.launch, None
        if outcome == "launched":
            self.workers += 1
            self.process, self.process_work = f"w{self.workers}", launch
            self.asked_to_end = self.killed = False
            self.feed(WorkerLaunched(self.process, 5.0))
        elif outcome == "failed":
            self.feed(LaunchFailed("no memory"))
        else:
            self.feed(BlobsMissing())

    @precondition(lambda self: self.process is not None)
    @rule(tasks_run=st.booleans(), age=st.sampled_from([0.0, 0.5, 40.0]))
    def beat(self, tasks_run: bool, age: float) -> None:
        self.carry_out(self.slot.heartbeat(self.now - age, tasks_run, self.now))

    @precondition(lambda self: self.process is not None)
    @rule()
    def exit(self) -> None:
        worker_id, self.process = self.process, None
        assert worker_id is not None
        self.asked_to_end = self.killed = False
        self.feed(WorkerExited(worker_id, 1))

    @precondition(lambda self: self.slot.state is not State.EMPTY)
    @rule()
    def blobs_change(self) -> None:
        self.feed(BlobsChanged())

    @precondition(
        lambda self: (
            self.slot.state in (State.WAITING_FOR_WORKER_START, State.RUNNING)
            and self.process is not None
        )
    )
    @rule()
    def memory_is_exceeded(self) -> None:
        self.feed(MemoryExceeded(2**30))
        assert self.slot.state is State.KILL_AND_RELAUNCH
        assert self.asked_to_end

    @precondition(lambda self: self.process is not None)
    @rule()
    def memory_is_far_exceeded(self) -> None:
        self.feed(MemoryFarExceeded(2**31))
        assert self.killed

    @precondition(lambda self: self.slot.state is State.RUNNING)
    @rule()
    def restart_is_requested(self) -> None:
        self.feed(RestartRequested())

    @rule()
    def supervisor_was_stopped(self) -> None:
        self.slot.forgive(self.now + 3)

    @invariant()
    def invariants_hold(self) -> None:
        self.slot.validate()
        assert self.slot.worker_id == self.process
        assert self.slot.launching == (self.launch is not None)
        ending = {State.KILL, State.KILL_AND_RELAUNCH, State.KILL_BLOB_UPDATE}
        if self.slot.state in ending and self.process is not None:
            assert self.asked_to_end or self.killed
        elif self.process is not None:
            assert not self.killed
            assert self.slot.wanted is not None
            assert self.process_work is not None
            assert self.process_work.same_work(self.slot.wanted)

    @invariant()
    def something_always_comes_next(self) -> None:
        """A slot that is not at rest waits for an answer or for a time; it is never stuck."""
        if self.slot.state is State.EMPTY:
            return
        assert (
            self.localizing
            or self.launch is not None
            or self.process is not None
            or self.slot.deadline() is not None
        )
        if self.process is not None:
            assert self.slot.deadline() is not None

    def teardown(self) -> None:
        """Left alone, with a shell to which nothing bad happens, the slot gets what it wants."""
        for _ in range(12):
            if self.localizing:
                self.answer_localize(True)
            elif self.launch is not None:
                self.answer_launch("launched")
            elif self.killed or self.asked_to_end:
                self.exit()
            elif self.process is not None:
                self.beat(True, 0.0)
            elif (due := self.slot.deadline()) is not None:
                self.now = max(self.now, due)
                self.carry_out(self.slot.advance(self.now))
            self.invariants_hold()
        goal = State.EMPTY if self.slot.wanted is None else State.RUNNING
        assert self.slot.state is goal


SlotMachine.TestCase.settings = settings(
    max_examples=examples(80), stateful_step_count=40, deadline=None
)
TestSlotMachine = SlotMachine.TestCase
