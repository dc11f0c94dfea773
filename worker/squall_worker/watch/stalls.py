"""Decides about calls that do not return: which to log, to report, or to end the worker for.

Plain code. From time to time it is given the calls that are under way, and how much time has passed
in which the process ran; it returns what to do. A call is identified by its key, so one that has
returned is forgotten, and another of the same task starts from zero.

    1 s                                    named in the log, at most one call per task and minute
    10 s, or half of what follows          its messages are looked up, while they are in flight: at
                                           most one call a component and minute
    topology.message.timeout.secs          an error, once, at most one per component and minute
    topology.worker.stall.timeout.secs     the worker ends
"""

from __future__ import annotations

import enum
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

NAME_SECS = 1.0
LOOK_UP_SECS = 10.0
AGAIN_SECS = 60.0


class Limits(Protocol):
    """In seconds; None: never."""

    @property
    def error_secs(self) -> float | None: ...

    @property
    def restart_secs(self) -> float | None: ...


class Call(Protocol):
    """The fields that the decision needs (see `squall_engine.observe.under_way`)."""

    @property
    def key(self) -> tuple[object, ...]: ...

    @property
    def component(self) -> str: ...

    @property
    def task(self) -> int: ...

    @property
    def limits(self) -> Limits: ...


C = TypeVar("C", bound=Call)


class Step(enum.Enum):
    """A stage that a call has reached."""

    NAMED = "Say in the log that it is under way."
    LOOKED_UP = "Find out which messages it was given: an error will name them."
    OVERDUE = "Report it as an error of its component."
    STALLED = "Report it and end the worker."


@dataclass(frozen=True, slots=True)
class Notice(Generic[C]):
    step: Step
    call: C
    secs: float  # how long it has been seen under way


@dataclass(slots=True)
class _Known(Generic[C]):
    call: C  # kept, so that its key stays its own
    since: float
    looked_up: bool = False
    overdue: bool = False


class StallWatch(Generic[C]):
    """The calls that are under way, and what was reported about them."""

    def __init__(self) -> None:
        self._now = 0.0  # time that counts
        self._known: dict[tuple[object, ...], _Known[C]] = {}
        self._named: dict[object, float] = {}  # task -> when one of its calls was named
        self._looked_up: dict[object, float] = {}  # component -> when messages of one were
        self._reported: dict[object, float] = {}  # component -> when one was reported

    def observe(self, calls: Iterable[C], elapsed_secs: float) -> list[Notice[C]]:
        """Take the calls that are under way, and the time since the last look."""
        self._now += elapsed_secs
        known = {}
        for call in calls:
            key = call.key
            seen = self._known.get(key) or _Known(call, self._now)
            seen.call = call
            known[key] = seen
        self._known = known
        return [notice for seen in known.values() for notice in self._judge(seen)]

    def _judge(self, seen: _Known[C]) -> Iterable[Notice[C]]:
        call = seen.call
        secs = self._now - seen.since
        if secs >= NAME_SECS and self._is_time(self._named, (call.component, call.task)):
            yield Notice(Step.NAMED, call, secs)
        restart, error = call.limits.restart_secs, call.limits.error_secs
        first = min((limit for limit in (restart, error) if limit is not None), default=None)
        if first is not None and not seen.looked_up and secs >= min(LOOK_UP_SECS, first / 2):
            seen.looked_up = self._is_time(self._looked_up, call.component)
            if seen.looked_up:
                yield Notice(Step.LOOKED_UP, call, secs)
        if restart is not None and secs >= restart:
            yield Notice(Step.STALLED, call, secs)
        elif error is not None and secs >= error and not seen.overdue:
            # (A hundred coroutines may wait for one server.)
            seen.overdue = self._is_time(self._reported, call.component)
            if seen.overdue:
                yield Notice(Step.OVERDUE, call, secs)

    def _is_time(self, said: dict[object, float], what: object) -> bool:
        """Whether it is time to report it again; it then counts as reported."""
        before = said.get(what)
        if before is not None and self._now - before < AGAIN_SECS:
            return False
        said[what] = self._now
        return True


def counted_secs(elapsed_secs: float, asked_secs: float) -> float:
    """How much of the time between two looks counts, if the second was to come after `asked_secs`:
    while the process was stopped, or had no processor, no call could return."""
    return min(elapsed_secs, 1.5 * asked_secs)
