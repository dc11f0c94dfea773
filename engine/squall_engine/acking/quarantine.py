"""The messages that are suspected of having killed a worker, and which is tried next. Pure.

A message that was in hand when a worker exited unexpectedly is a *suspect*. When its spout emits it
again it is held back, and the suspects of a worker's spouts are *tried*: one is emitted, and the
next only after the tree of the first is finished. All other messages go on as usual. So a suspect
is never in hand while another one kills the worker. A suspect that is acked is cleared; one that
was in hand at as many exits as its limit is condemned.

After a loss, no trial begins before it is known what was in hand then. Otherwise the next trial
could run into the same exit, and a message could be tried once more than its limit.

While nothing has happened the quarantine is *inactive*, and costs nothing.
"""

from __future__ import annotations

import enum
from collections import deque
from dataclasses import dataclass
from typing import Any

# Suspicion ends when nothing was in hand at any exit for this long.
ACTIVE_SECS = 900.0
# The same after a loss about which nothing was reported (its node is gone as well).
LOSS_ACTIVE_SECS = 30.0
# How long to wait for the report of what a lost worker had in hand.
REPORT_SECS = 10.0
SUSPECTS_MAX = 1000
# A trial waits, so that other messages finish before it. It waits longer the more often the message
# was in hand, because one that cannot be condemned must not stop the topology.
TRIAL_WAIT_SECS = 0.5
TRIAL_WAIT_SECS_MAX = 60.0
HELD_MAX = 10_000


class Verdict(enum.Enum):
    FREE = "not a suspect: emit it"
    HELD = "a suspect: it waits for its trial"
    CONDEMNED = "in hand at too many unexpected worker exits"


@dataclass(slots=True, eq=False)
class HeldMessage:
    """A message that was emitted and waits for its trial."""

    spout: Any
    key: int
    limit: int
    what: tuple[Any, ...]  # as it was emitted
    since: float


class Quarantine:
    """The suspects of one worker. After `trial_secs`, a trial no longer delays the next one."""

    def __init__(self, trial_secs: float) -> None:
        self.kills: dict[int, int] = {}  # by the message's key
        self.unknown = False  # any message of a spout here may have been in hand once more
        self.held: deque[HeldMessage] = deque()
        self.trial: int | None = None  # the key of the message on trial
        self._trial_secs = trial_secs
        self._trial_ends = 0.0
        self._report_due: float | None = None  # not None while a loss is not explained
        self._active_until: float | None = None

    @property
    def is_active(self) -> bool:
        return self._active_until is not None

    # -- what happened --

    def lost(self, now: float) -> None:
        """A worker was lost; the messages that it had in hand are not known yet."""
        self._report_due = now + REPORT_SECS
        self._extend(now, LOSS_ACTIVE_SECS)

    def report_arrived(self, now: float) -> None:
        """The messages that a lost worker had in hand are known now."""
        self._report_due = None
        self._extend(now)

    def killed(self, key: int, now: float) -> int:
        """The message was in hand at an unexpected exit. Returns at how many so far."""
        kills = self.kills.pop(key, 0) + 1
        if len(self.kills) >= SUSPECTS_MAX:
            del self.kills[next(iter(self.kills))]
        self.kills[key] = kills
        self._extend(now)
        return self.count(key)

    def _extend(self, now: float, secs: float = ACTIVE_SECS) -> None:
        self._active_until = max(self._active_until or 0.0, now + secs)

    def end_when_due(self, now: float) -> bool:
        """True when suspicion has just ended."""
        if self._active_until is None or now < self._active_until or self.held:
            return False
        self._active_until = self._report_due = self.trial = None
        self.kills.clear()
        self.unknown = False
        return True

    # -- what is to become of a message --

    def count(self, key: int) -> int:
        """At how many exits a suspect was in hand. An exit about which nothing is known counts for
        every suspect, but does not make a message one."""
        kills = self.kills.get(key, 0)
        return kills + self.unknown if kills else 0

    def judge(self, key: int, limit: int) -> Verdict:
        if key not in self.kills:
            return Verdict.FREE
        if self._report_due is None and self.count(key) >= limit:
            return Verdict.CONDEMNED
        return Verdict.HELD if len(self.held) < HELD_MAX else Verdict.FREE

    def hold(self, held: HeldMessage) -> None:
        self.held.append(held)

    def next(self, now: float) -> tuple[HeldMessage, Verdict] | None:
        """A message that waits no longer: it is on trial now, condemned, or not a suspect any
        more."""
        if self._report_due is not None:
            if now < self._report_due:
                return None
            self._report_due = None
        for _ in range(len(self.held)):
            held = self.held.popleft()
            verdict = self.judge(held.key, held.limit)
            if verdict is not Verdict.HELD:
                return held, verdict
            begins = held.since + wait_secs(self.count(held.key))
            if now >= begins and (self.trial is None or now >= self._trial_ends):
                self.trial, self._trial_ends = held.key, now + self._trial_secs
                return held, Verdict.HELD
            self.held.append(held)
        return None

    def acked(self, key: int) -> bool:
        """A message was acked. True when it was a suspect."""
        if self.trial == key:
            self.trial = None
        return self.kills.pop(key, None) is not None

    def failed(self, key: int) -> None:
        """A message has failed, which does not show whether it kills."""
        if self.trial == key:
            self.trial = None


def wait_secs(count: int) -> float:
    """How long a message that was in hand at `count` exits waits for its trial."""
    return float(min(TRIAL_WAIT_SECS_MAX, TRIAL_WAIT_SECS * 2 ** min(max(count - 1, 0), 10)))
