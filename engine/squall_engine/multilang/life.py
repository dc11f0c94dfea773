"""When to ask a child whether it lives, when to kill it and when to start the next. Pure.

A child is *silent* from the last byte that we had of it, for as long as it owes us something: its
pid; the answer to a heartbeat (bolts get one a second, and any message answers it); the end of a
command (spouts). A silence as long as the time-out ends the child.

    state      what happened        next state    what to do
    STARTING   its pid came         RUNNING       Ready
    STARTING   silent too long      DYING         Kill
    RUNNING    a second has passed  RUNNING       Beat (bolts)
    RUNNING    silent too long      DYING         Kill
    any living exited               WAITING       (told by the caller)
    WAITING    the pause is over    STARTING      Start
    any        stop                 STOPPED
"""

from __future__ import annotations

import enum

BEAT_SECS = 1.0
# A child that lived for so long and then died is replaced at once.
_SETTLED_SECS = 10.0
_PAUSE_SECS_MIN = 0.1
_PAUSE_SECS_MAX = 30.0


class State(enum.Enum):
    """What is true of the child."""

    STARTING = "runs, and has not told its pid"
    RUNNING = "runs"
    DYING = "was killed, and its end was not seen yet"
    WAITING = "there is none; the next is started after a pause"
    STOPPED = "there is none, and there will be none"


class Do(enum.Enum):
    """What the caller is to do."""

    NOTHING = "nothing"
    BEAT = "send a heartbeat"
    KILL = "kill the child: it was silent for too long"
    START = "start a child"


class ChildLife:
    """The life of one task's children. Times are in seconds, of one monotonic clock."""

    def __init__(self, *, timeout_secs: float, beats: bool) -> None:
        """`beats`: it gets heartbeats (a bolt); else it owes an answer from `asked` to
        `answered` (a spout)."""
        self.timeout_secs = timeout_secs
        self.beats = beats
        self.state = State.WAITING
        self._resume_at = 0.0
        self._started_at = 0.0
        self._owes_since: float | None = None  # None: it owes nothing
        self._beat_at = 0.0
        self._ticked_at: float | None = None
        self._pause_secs = 0.0
        self._warned = False

    def started(self, now: float) -> None:
        """A child was started."""
        self.state = State.STARTING
        self._started_at = self._owes_since = self._ticked_at = now
        self._warned = False

    def told_pid(self, now: float) -> bool:
        """Its pid came. False when it had come before."""
        self.heard(now)
        if self.state is not State.STARTING:
            return False
        self.state = State.RUNNING
        self._beat_at = now + BEAT_SECS
        self._owes_since = None
        return True

    def heard(self, now: float) -> None:
        """It wrote something. Need not be told while it owes nothing."""
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
        """It has answered the command."""
        self._owes_since = None
        self._warned = False

    def killed(self) -> None:
        """It was sent SIGKILL."""
        self.state = State.DYING

    def exited(self, now: float) -> float:
        """It is gone, or could not be started. Returns the seconds until the next is due."""
        if self.state is not State.STOPPED:
            self.state = State.WAITING
            if now - self._started_at >= _SETTLED_SECS:
                self._pause_secs = 0.0
            pause = self._pause_secs
            self._pause_secs = min(max(2 * pause, _PAUSE_SECS_MIN), _PAUSE_SECS_MAX)
            self._resume_at = now + pause
        self._owes_since = None
        return max(0.0, self._resume_at - now)

    def stop(self) -> None:
        """No child is wanted any more."""
        self.state = State.STOPPED

    def silent_secs(self, now: float) -> float:
        """How long it has owed us something."""
        return 0.0 if self._owes_since is None else now - self._owes_since

    def warns(self, now: float) -> bool:
        """Whether to say now that it is silent: once a silence, at half of the time-out."""
        if self._warned or self.silent_secs(now) < self.timeout_secs / 2:
            return False
        self._warned = True
        return True

    def tick(self, now: float) -> Do:
        """To be called at least once a second."""
        before = self._ticked_at
        self._ticked_at = now
        if self.state is State.WAITING:
            return Do.START if now >= self._resume_at else Do.NOTHING
        if self.state not in (State.STARTING, State.RUNNING):
            return Do.NOTHING
        if before is not None and self._owes_since is not None and now - before > 3 * BEAT_SECS:
            # We were away (stopped, or held by a component) and have not read what it wrote.
            self._owes_since = min(now, self._owes_since + now - before - BEAT_SECS)
        if self.silent_secs(now) >= self.timeout_secs:
            return Do.KILL
        if self.beats and self.state is State.RUNNING and now >= self._beat_at:
            self._beat_at = now + BEAT_SECS
            if self._owes_since is None:
                self._owes_since = now
                return Do.BEAT
        return Do.NOTHING
