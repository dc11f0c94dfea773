"""Whether to wait a moment for a child's next word instead of going back to the event loop. Pure.

A child that asks for task ids, and a spout, work in turns with the worker: one of the two always
sleeps. Waking a sleeper on another, idle core costs more than the work itself; so after an answer
the worker may stay awake and look for the child's next message for as long as that usually takes.
But where others want the cores, what is spent on waiting is taken from the child (the figures are
in the decision on multilang). Nothing tells the two cases apart but trying: a short while each way,
then a longer one the way that made more answers a second.
"""

from __future__ import annotations

_TRIAL_SECS = 0.04
_CHOSEN_SECS = 1.0
# Staying awake costs CPU: it must be worth that much. And fewer answers in a trial say nothing.
_GAIN_MIN = 1.15
_ANSWERS_MIN = 100


class Linger:
    """Decides; the caller reads and measures. Times are in seconds of one monotonic clock."""

    # In one go, whatever comes: the loop has other work.
    TOTAL_SECS = 0.001

    def __init__(self, secs: float) -> None:
        """`secs` to wait for one message; 0: never."""
        self.secs = secs
        self._stays = False
        self._trial: int | None = 0  # 0: asleep, 1: awake, None: neither, the choice is made
        self._since = 0.0
        self._until = 0.0
        self._answers = 0
        self._rate_asleep = 0.0

    def begins(self, now: float) -> bool:
        """An answer was given at `now`: whether to wait for what comes next."""
        if self.secs <= 0:
            return False
        self._answers += 1
        if now >= self._until:
            self._next(now)
        return self._stays

    def goes_on(self, answers: int) -> None:
        """So many answers more were given in one go."""
        self._answers += answers

    def _next(self, now: float) -> None:
        rate = self._answers / max(now - self._since, 1e-9)
        enough = self._answers >= _ANSWERS_MIN
        if self._trial is None or self._since == 0.0:
            self._trial, self._stays = 0, False
        elif self._trial == 0:
            # A child that has little to say is not worth a trial.
            self._rate_asleep = rate
            self._trial, self._stays = (1, True) if enough else (None, False)
        else:
            self._trial = None
            self._stays = enough and rate >= _GAIN_MIN * self._rate_asleep
        self._since = now
        self._until = now + (_CHOSEN_SECS if self._trial is None else _TRIAL_SECS)
        self._answers = 0
