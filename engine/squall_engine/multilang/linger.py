"""Whether to wait a moment for a child's next word instead of going back to the event loop. Pure.

A child that asks for task ids, and a spout, work in turns with the worker: one of the two always
waits. After an answer the worker may stay and look for the child's next message: that spares the
loop's way around and, with an idle core, what it costs to wake a sleeper on another core. But where
the loop has other work (a second child that asks) this takes from it, and where others want the
cores it may take from the child (the figures are in the decision on multilang). Nothing tells the
cases apart but trying: a short while each way, then a longer one the way that made more answers a
second.
"""

from __future__ import annotations

# A trial lasts until it says something: on a busy machine that takes longer.
_TRIAL_SECS = 0.04
_TRIAL_ANSWERS = 200
_TRIAL_SECS_MAX = 0.2
_CHOSEN_SECS = 2.0
# A child that makes fewer answers a second has little to say: the loop's other work goes first.
_RATE_MIN = 2_000.0
# Staying takes less CPU an answer: the loop must be so many times better to be preferred.
_LOOP_GAIN_MIN = 1.15


class Linger:
    """Decides; the caller reads and measures. Times are in seconds of one monotonic clock."""

    # In one go, whatever comes: the loop has other work.
    TOTAL_SECS = 0.002

    def __init__(self, secs: float) -> None:
        """`secs` to wait for one message; 0: never."""
        self.secs = secs
        self._stays = False
        self._trial: bool | None = None  # whether it stays in it; None: the choice is made
        self._since = 0.0
        self._until = 0.0
        self._answers = 0
        # Answers a second by whether it stays, each trial half of the new value: neighbours come
        # and go.
        self._rates: dict[bool, float] = {}

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
        if self._trial is None:
            self._trial = False
        else:
            secs = now - self._since
            if self._answers < _TRIAL_ANSWERS and secs < _TRIAL_SECS_MAX:
                self._until = now + _TRIAL_SECS / 4
                return
            rate = self._answers / max(secs, 1e-9)
            self._rates[self._trial] = (self._rates.get(self._trial, rate) + rate) / 2
            self._trial = None if self._trial or rate < _RATE_MIN else True
        self._stays = self._chosen() if self._trial is None else self._trial
        self._since = now
        self._until = now + (_CHOSEN_SECS if self._trial is None else _TRIAL_SECS)
        self._answers = 0

    def _chosen(self) -> bool:
        stays = self._rates.get(True, 0.0)
        return stays >= _RATE_MIN and self._rates[False] < _LOOP_GAIN_MIN * stays
