"""What can go wrong with stored state."""

from __future__ import annotations

from squall_common.errors import SquallError, describe

AFTER_A_LOSS = (
    "restore it from a copy, or start from a savepoint (storm jar --from-savepoint); with another "
    "topology.state.url the topology begins anew"
)


class StateError(SquallError):
    """State cannot be used; the message says which and why."""


class StateDamagedError(StateError):
    """A stored file is missing or damaged; the message names it."""


class StateVersionError(StateDamagedError):
    """A stored file has a format that is newer than this version of Squall; the message names
    it."""

    def __init__(self, name: str, version: int, known: int) -> None:
        """`known`: the newest version of its format that can be read."""
        super().__init__(
            f"{name} was written by a newer version of Squall: its format has version {version}, "
            f"and this one reads up to {known}",
            hint="run the version that has written it, or start from a savepoint of this one "
            "(storm jar --from-savepoint)",
        )


class StateValueError(StateError, ValueError):
    """A value or a key of a type that cannot be stored."""


class SnapshotError(StateError):
    """A task has something that no checkpoint can have; `component` and `task` say which."""

    def __init__(self, component: str, task: int, epoch: int, error: Exception) -> None:
        """`error`: what cannot be stored, and why."""
        kind, hint = getattr(error, "kind", None), getattr(error, "hint", None)
        what = error.message if isinstance(error, SquallError) else describe(error)
        if kind is not None:  # of a `ValueNotEncodableError`
            what, hint = f"a value of type {kind} has no encoding", getattr(error, "reason", None)
        super().__init__(
            f"checkpoint {epoch} cannot be taken, because of {component!r} (task {task}): {what}",
            hint=f"{hint or 'mend the component'}. It was changed in place after its call, or in a "
            "total, where no tuple can fail for it: the topology ends, goes on from the last "
            "checkpoint, and ends again at this value until the component is mended",
        )
        self.component = component
        self.task = task


class StateStoreError(StateError):
    """The store cannot be reached, or refuses; the message says what was tried."""


class StateTableLostError(StateStoreError):
    """The table of state on disk takes no more writes, whatever is done about its disk: only a new
    worker, which restores what is stored, has one that does."""


class StateFencedError(StateError):
    """Another task has taken over: this one must not write, ack or emit any more."""
