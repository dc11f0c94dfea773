"""What can go wrong with stored state."""

from __future__ import annotations

from squall_common.errors import SquallError


class StateError(SquallError):
    """State cannot be used; the message says which and why."""


class StateDamagedError(StateError):
    """A stored file is missing or damaged; the message names it."""


class StateValueError(StateError, ValueError):
    """A value or a key of a type that cannot be stored."""


class StateStoreError(StateError):
    """The store cannot be reached, or refuses; the message says what was tried."""


class StateTableLostError(StateStoreError):
    """The table of state on disk takes no more writes, whatever is done about its disk: only a new
    worker, which restores what is stored, has one that does."""


class StateFencedError(StateError):
    """Another task has taken over: this one must not write, ack or emit any more."""
