"""The last steps of a state machine, for an error that says what led to it.

A machine whose table has no row for an event, or whose `validate()` finds a contradiction, is
wrong because of something that happened earlier. Its `Story` remembers that: every change of
state, and in tests what each `validate()` saw.

    story = Story()
    following = TABLE.get((self.state, type(event)))
    self.state = story.step(self.state, event, following, now)
    with story.checking(self):
        assert self.taken <= self.received, "more taken than received"
"""

from __future__ import annotations

import contextlib
import enum
from collections import deque
from collections.abc import Iterator
from typing import TypeVar

_STEPS = 24

_State = TypeVar("_State", bound=enum.Enum)


class IllegalEventError(Exception):
    """An event that cannot happen in the machine's state: a bug of ours. Nothing has changed."""


class ContradictionError(AssertionError):
    """An invariant that `validate()` of a state machine found broken."""


class Story:
    """The last steps of one machine, as text: an event may hold megabytes."""

    def __init__(self) -> None:
        self._steps: deque[str] = deque(maxlen=_STEPS)

    def step(self, state: _State, event: object, following: _State | None, at: float) -> _State:
        """Remember a change of state; returns `following`, the next state. `at` is in seconds, on
        the machine's clock. Raises IllegalEventError when there is none: the table has no row."""
        if following is None:
            raise IllegalEventError(f"{event} cannot happen in {state.name}; what led here:{self}")
        if following is not state:
            self._steps.append(f"{at:.3f} {state.name} --{event}--> {following.name}")
        return following

    def saw(self, what: str) -> None:
        """Remember what a machine looked like, once if it has not changed."""
        if not self._steps or self._steps[-1] != what:
            self._steps.append(what)

    @contextlib.contextmanager
    def checking(self, machine: object) -> Iterator[None]:
        """Around the assertions of `validate()`: one that fails tells the story."""
        try:
            yield
        except AssertionError as error:
            raise ContradictionError(f"{machine}: {error}; what led here:{self}") from error
        self.saw(str(machine))

    def __str__(self) -> str:
        return "".join(f"\n  {step}" for step in self._steps) or " nothing yet"
