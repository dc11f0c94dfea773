"""Which component a line of the log comes from, found when the line is written: what calls the
logger is below the component's method on the stack. So lines cost more, and tuples nothing."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from squall_engine.tasks.built import Built

_FRAMES_MAX = 100


class LogPlace:
    """For `logs.set_place`: the component and task whose code is running on the calling thread."""

    def __init__(self, built: Sequence[Built]) -> None:
        """`built` may still grow: components log while they open, too."""
        self._built = built
        self._places: dict[int, tuple[str, int]] = {}
        self._known = 0

    def _learn(self) -> None:
        for one in self._built[self._known :]:
            self._places[id(one.task.user)] = (one.task.component, one.task.task)
        self._known = len(self._built)

    def __call__(self) -> tuple[str, int] | None:
        if self._known != len(self._built):
            self._learn()
        frame = sys._getframe(1)
        for _ in range(_FRAMES_MAX):
            code = frame.f_code
            if code.co_argcount:
                place = self._places.get(id(frame.f_locals.get(code.co_varnames[0])))
                if place is not None:
                    return place
            if frame.f_back is None:
                return None
            frame = frame.f_back
        return None
