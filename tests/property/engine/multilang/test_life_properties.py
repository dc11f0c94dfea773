"""A child's life against everything that can happen to it, in any order.

The rules play the shell faithfully. Whatever the order: no event is illegal, the invariants hold,
there is never a second child, and one that is silent for too long is killed.
"""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from squall_engine.multilang.life import ChildLife
from squall_engine.multilang.life_table import Do, State

TIMEOUT_SECS = 5.0


class Shell(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.now = 100.0
        self.process = False
        self.pid_received = self.killed = self.stopped = False
        self.silent_ticks = 0  # in a row, while it owed something and no time was missed

    @initialize(beats=st.booleans())
    def begin(self, beats: bool) -> None:
        self.life = ChildLife(timeout_secs=TIMEOUT_SECS, beats=beats)
        self._start()

    def _start(self) -> None:
        assert not self.process
        self.life.started(self.now)
        self.process, self.pid_received, self.killed = True, False, False
        self.silent_ticks = 0

    @rule(secs=st.sampled_from([0.1, 1.0, 1.0, 1.0, 2.0]), works=st.booleans())
    def tick(self, secs: float, works: bool) -> None:
        if self.stopped:
            return
        self.now += secs
        do = self.life.tick(self.now)
        if do is Do.START:
            if works:
                self._start()
            else:
                self.life.start_failed(self.now)
        elif do is Do.KILL:
            assert self.process
            assert not self.killed
            self.killed = True
            self.life.killed(self.now)
        elif do is Do.BEAT:
            assert self.pid_received
            assert self.life.owes
        if self.process and not self.killed and self.life.owes:
            self.silent_ticks += secs >= 1.0
            assert self.silent_ticks <= TIMEOUT_SECS + 1, "it was to be killed"

    @precondition(lambda self: self.process)
    @rule()
    def says_something(self) -> None:
        self.life.heard(self.now)
        self.silent_ticks = 0

    @precondition(lambda self: self.process)
    @rule()
    def tells_pid(self) -> None:
        first = self.life.pid_received(self.now)
        assert first == (not self.pid_received and not self.killed and not self.stopped)
        self.pid_received |= first
        self.silent_ticks = 0

    @precondition(lambda self: self.process and not self.life.beats)
    @rule()
    def answers_what_it_was_perhaps_never_asked(self) -> None:
        self.life.answered()
        self.silent_ticks = 0

    @precondition(lambda self: self.life.state is State.RUNNING and not self.life.beats)
    @rule()
    def is_asked(self) -> None:
        self.life.asked(self.now)
        self.silent_ticks = 0

    @precondition(lambda self: self.process and not self.killed)
    @rule()
    def writes_garbage(self) -> None:
        self.killed = True
        self.life.killed(self.now)

    @precondition(lambda self: self.process)
    @rule()
    def ends(self) -> None:
        self.process = False
        assert 0.0 <= self.life.exited(self.now) <= 30.0

    @rule()
    def stop(self) -> None:
        self.stopped = True
        self.life.stop(self.now)

    @invariant()
    def holds(self) -> None:
        if hasattr(self, "life"):
            self.life.validate()
            assert self.stopped == (self.life.state is State.STOPPED)
            if not self.stopped:
                assert self.process == (self.life.state is not State.WAITING)


Shell.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
TestShell = Shell.TestCase
