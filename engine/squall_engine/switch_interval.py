"""The interpreter's switch interval, which a process has once, for all who ask for a shorter one.

A thread that waits for the interpreter asks the one that runs to hand it over only after a whole
switch interval (5 ms by default) in which it was not released. Who needs it sooner wishes for a
shorter interval, and ends the wish:

    wish = SWITCH_INTERVAL.shorten(0.0005)
    ...
    wish.end()

The interval is the shortest of the wishes, and of what the program itself has set. So the program
has its own again when the last wish has ended.
"""

from __future__ import annotations

import sys
import threading


class Wish:
    """For an interval of at most `secs`, until `end`."""

    def __init__(self, interval: SwitchInterval, secs: float) -> None:
        self._interval = interval
        self.secs = secs

    def end(self) -> None:
        """The process needs it no more. From any thread; again it does nothing."""
        self._interval.end(self)


class SwitchInterval:
    """The wishes of a process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._wishes: set[Wish] = set()
        self._programs = 0.0  # what the program has set; meaningless without wishes
        self._ours: float | None = None  # what was set for the wishes; None without any

    def shorten(self, secs: float) -> Wish:
        """Let threads ask for the interpreter after `secs`, if not sooner, until the wish ends.
        From any thread."""
        wish = Wish(self, secs)
        with self._lock:
            self._see_program()
            self._wishes.add(wish)
            self._set()
        return wish

    def end(self, wish: Wish) -> None:
        """See `Wish.end`."""
        with self._lock:
            if wish in self._wishes:
                self._see_program()
                self._wishes.remove(wish)
                self._set()

    def _see_program(self) -> None:
        """What is not ours was set by the program, perhaps since the last wish."""
        present = sys.getswitchinterval()
        if present != self._ours:
            self._programs = present

    def _set(self) -> None:
        wanted = min([self._programs, *(wish.secs for wish in self._wishes)])
        # Python cuts off fractions of a microsecond, also of what it has given: 0.0002 would become
        # 0.000199.
        sys.setswitchinterval(wanted + 0.5e-6)
        self._ours = sys.getswitchinterval() if self._wishes else None


SWITCH_INTERVAL = SwitchInterval()
