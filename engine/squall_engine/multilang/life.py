"""Decides when to send a child a heartbeat, when to kill it and when to start the next. Pure.

A child is *silent* from the last byte that we had of it, for as long as it owes us something: its
pid; the answer to a heartbeat (bolts get one a second, and any message answers it); the end of a
command (spouts). A silence as long as the timeout ends the child. What can happen in which state
is in `life_table`.
"""

from __future__ import annotations

from squall_common.daemon.output.story import Story
from squall_engine.multilang.life_table import (
    TABLE,
    BeatDue,
    ChildExited,
    ChildKilled,
    ChildStarted,
    Do,
    Event,
    PauseOver,
    PidReceived,
    SilenceExceeded,
    StartFailed,
    State,
    StopRequested,
)

BEAT_SECS = 1.0
# A child that died after it had run for this long is replaced at once.
_SETTLED_SECS = 10.0
_PAUSE_SECS_MIN = 0.1
_PAUSE_SECS_MAX = 30.0


class ChildLife:
    """The life of one task's children. Times are in seconds, of one monotonic clock."""

    def __init__(self, *, timeout_secs: float, beats: bool) -> None:
        """`beats`: it gets heartbeats (a bolt); else it owes an answer from `asked` to
        `answered` (a spout)."""
        self.timeout_secs = timeout_secs
        self.beats = beats
        self.state = State.WAITING
        self._resume_at = 0.0  # when the next may be started; matters in WAITING
        self._started_at = 0.0
        self._owes_since: float | None = None  # None: it owes nothing
        self._beat_at = 0.0  # when the next heartbeat is due; matters in RUNNING
        self._ticked_at: float | None = None
        self._pause_secs = 0.0
        self._warned = False  # of the present silence
        self._story = Story()

    # -- what the caller reports --

    def started(self, now: float) -> None:
        """A child was started."""
        self._happened(ChildStarted(), now)
        self._started_at = self._owes_since = self._ticked_at = now
        self._warned = False

    def start_failed(self, now: float) -> None:
        """None could be started: another try after a pause."""
        self._happened(StartFailed(), now)
        self._pause(now)

    def pid_received(self, now: float) -> bool:
        """Its pid came. False when it had come before."""
        self.heard(now)
        before = self.state
        self._happened(PidReceived(), now)
        if self.state is before:
            return False
        self._beat_at = now + BEAT_SECS
        self._owes_since = None
        return True

    def heard(self, now: float) -> None:
        """It wrote something. No need to call this while it owes nothing."""
        self._warned = False
        if self._owes_since is not None:
            # A bolt's debt is paid, a spout's is until it has answered.
            self._owes_since = None if self.beats and self.state is State.RUNNING else now

    def asked(self, now: float) -> None:
        """It was sent a command that it must answer."""
        self._owes_since = now

    @property
    def owes(self) -> bool:
        """Whether it owes us something."""
        return self._owes_since is not None

    def answered(self) -> None:
        """It has answered the command. (One that was not asked yet still owes its pid.)"""
        if self.state is not State.STARTING:
            self._owes_since = None
        self._warned = False

    def killed(self, now: float) -> None:
        """It was sent SIGKILL."""
        self._happened(ChildKilled(), now)

    def exited(self, now: float) -> float:
        """It is gone. Returns the seconds until the next is due."""
        self._happened(ChildExited(), now)
        if self.state is State.WAITING:
            self._pause(now)
        self._owes_since = None
        return max(0.0, self._resume_at - now)

    def stop(self, now: float) -> None:
        """No child is wanted any more."""
        self._happened(StopRequested(), now)

    # -- what follows from the time --

    def silent_secs(self, now: float) -> float:
        """How long it has owed us something."""
        return 0.0 if self._owes_since is None else now - self._owes_since

    def warns(self, now: float) -> bool:
        """Whether to say now that it is silent: once a silence, at half of the timeout."""
        if self._warned or self.silent_secs(now) < self.timeout_secs / 2:
            return False
        self._warned = True
        return True

    def tick(self, now: float) -> Do:
        """To be called at least once a second."""
        before, self._ticked_at = self._ticked_at, now
        event = self._due(now, 0.0 if before is None else now - before)
        return Do.NOTHING if event is None else self._happened(event, now)

    # -- inside --

    def _due(self, now: float, passed_secs: float) -> Event | None:
        """The event that the time has brought about; `passed_secs` since this was last asked."""
        if self.state is State.WAITING:
            return PauseOver() if now >= self._resume_at else None
        if self.state not in (State.STARTING, State.RUNNING):
            return None
        if self._owes_since is not None and passed_secs > 3 * BEAT_SECS:
            # We were away (stopped, or held by a component) and have not read what it wrote.
            self._owes_since = min(now, self._owes_since + passed_secs - BEAT_SECS)
        if self.silent_secs(now) >= self.timeout_secs:
            return SilenceExceeded()
        if self.beats and self.state is State.RUNNING and now >= self._beat_at:
            self._beat_at = now + BEAT_SECS
            return BeatDue() if self._owes_since is None else None
        return None

    def _happened(self, event: Event, now: float) -> Do:
        """Take an event by the table. Raises IllegalEventError, with nothing changed, for one that
        cannot happen in this state."""
        row = TABLE.get((self.state, type(event)))
        self.state = self._story.step(self.state, event, row and row[0], now)
        do = row[1] if row else Do.NOTHING
        if do is Do.BEAT:
            self._owes_since = now  # the answer
        return do

    def _pause(self, now: float) -> None:
        if now - self._started_at >= _SETTLED_SECS:
            self._pause_secs = 0.0
        self._resume_at = now + self._pause_secs
        self._pause_secs = min(max(2 * self._pause_secs, _PAUSE_SECS_MIN), _PAUSE_SECS_MAX)

    def __str__(self) -> str:
        since = "nothing" if self._owes_since is None else f"since {self._owes_since:.3f}"
        return (
            f"child {self.state.name} started={self._started_at:.3f} owes {since} "
            f"next={self._resume_at:.3f} pause={self._pause_secs:g}"
        )

    def validate(self) -> None:
        """Assert what must be true between two events; tests call it after each. Raises
        ContradictionError, with what led there."""
        state, since = self.state, self._owes_since
        with self._story.checking(self):
            if state is State.STARTING:
                assert since is not None, "it owes no pid, so its silence would never be noticed"
            if state is State.WAITING:
                assert since is None, "it owes something, but there is no child"
            if since is not None:
                assert since >= self._started_at, "it has owed something longer than it has run"
            assert 0.0 <= self._pause_secs <= _PAUSE_SECS_MAX, "the pause is out of bounds"
