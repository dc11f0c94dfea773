"""Whether to wait a moment for a child's next word instead of going back to the event loop, and
how. Pure.

A child that asks for task ids, and a spout, work in turns with the worker: one of the two always
waits. After an answer the worker may stay for the child's next message, for as long as that usually
takes, and there are two ways to wait for it:

    ASLEEP   in the kernel, as a plain driver of pipes does: best when both share a core, by the
             kernel's choice or because others keep the cores busy
    AWAKE    looking again and again: best with an idle core, since waking a sleeper on another
             core costs more than the work itself; where others want the cores, what is spent on
             waiting is taken from the child

Nothing tells the cases apart but trying (the figures are in the decision on multilang): a short
while each way, then a longer one the way that made most answers a second; asleep when that makes
no difference, for it takes the least CPU.
"""

from __future__ import annotations

import enum

# A trial lasts until it says something: on a busy machine that takes longer.
_TRIAL_SECS = 0.04
_TRIAL_ANSWERS = 200
_TRIAL_SECS_MAX = 0.2
_CHOSEN_SECS = 2.0
_LOSSES_MAX = 3
# A child that makes fewer answers a second has little to say: the loop's other work goes first.
_RATE_MIN = 2_000.0


class Stay(enum.Enum):
    """How to wait for a child's next message."""

    NOT = "in the event loop, beside everything else"
    ASLEEP = "in the kernel, for that message alone"
    AWAKE = "looking for it"


_TRIALS = (Stay.NOT, Stay.ASLEEP, Stay.AWAKE)
# So many times the answers of ASLEEP make another way worth its CPU: that of looking, and of the
# loop's way around (where two children of one worker have much to say, the loop doubles it).
_GAIN_MIN = {Stay.AWAKE: 1.15, Stay.NOT: 1.5}


class Linger:
    """Decides; the caller reads and measures. Times are in seconds of one monotonic clock."""

    # In one go, whatever comes: the loop has other work.
    TOTAL_SECS = 0.002

    def __init__(self, secs: float) -> None:
        """`secs` to wait for one message; 0: never."""
        self.secs = secs
        self._how = Stay.NOT
        self._trial: int | None = None  # of _TRIALS; None: none, the choice is made
        self._since = 0.0
        self._until = 0.0
        self._answers = 0
        self._losses = 0
        # Answers a second, each trial half of the new value: neighbours come and go.
        self._rates: dict[Stay, float] = {}

    def begins(self, now: float) -> Stay:
        """An answer was given at `now`: how to wait for what comes next."""
        if self.secs <= 0:
            return Stay.NOT
        self._answers += 1
        if now >= self._until:
            self._next(now)
        return self._how

    def goes_on(self, answers: int) -> None:
        """So many answers more were given in one go."""
        self._answers += answers

    def lost_core(self, now: float) -> None:
        """While it looked, awake, others had the core for long. Once too often: it sleeps until
        the next trial."""
        self._losses += 1
        if self._how is Stay.AWAKE and self._losses >= _LOSSES_MAX:
            self._how = Stay.ASLEEP
            self._rates[Stay.AWAKE] = self._rates.get(Stay.AWAKE, 0.0) / 2
            self._losses = 0
            self._trial = None
            self._since, self._until, self._answers = now, now + _CHOSEN_SECS, 0

    def _next(self, now: float) -> None:
        if self._trial is None:
            self._trial = 0
        else:
            secs = now - self._since
            few = self._answers < _TRIAL_ANSWERS and secs < _TRIAL_SECS_MAX
            if few and self._how is not Stay.AWAKE:  # which is fast, or not to be prolonged
                self._until = now + _TRIAL_SECS / 4
                return
            rate = self._answers / max(secs, 1e-9)
            self._rates[self._how] = (self._rates.get(self._how, rate) + rate) / 2
            self._trial += 1
            if self._trial == len(_TRIALS) or rate < _RATE_MIN:
                self._trial = None
        self._how = self._best() if self._trial is None else _TRIALS[self._trial]
        self._since = now
        self._until = now + (_CHOSEN_SECS if self._trial is None else _TRIAL_SECS)
        self._answers = self._losses = 0

    def _best(self) -> Stay:
        rates = self._rates
        if len(rates) < len(_TRIALS) or max(rates.values()) < _RATE_MIN:
            return Stay.NOT
        worth = [how for how, gain in _GAIN_MIN.items() if rates[how] >= gain * rates[Stay.ASLEEP]]
        return max(worth, key=rates.__getitem__, default=Stay.ASLEEP)
