"""Windowed bolts with checkpoints. Their shell (`squall.windows.shell`) adds tuples to windows by
itself, and gives what runs the user's code for a window to a `WindowCalls`.

What the windows hold is in the snapshot of their task, so a tuple is acked as soon as it is in
them, and what a window emits is in no tree.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from squall_common.component.collector import BoltCollector
from squall_common.errors import SquallError, describe
from squall_common.names import DEFAULT_STREAM
from squall_common.state.errors import StateStoreError
from squall_common.state.key_checks import KeyChecks
from squall_common.state.key_groups import key_group
from squall_common.state.task_state import RowCodec
from squall_common.topology.serialization import Registry
from squall_engine.atomic.letters import BoltLetters
from squall_engine.atomic.tries import Arity, HoldingCollector, Tries
from squall_engine.atomic.undo import check_storable
from squall_engine.core import Tuple


@dataclass(frozen=True, slots=True)
class WindowGrouping:
    """How the input of windows is grouped: all of it by fields."""

    fields: frozenset[str]  # of all its groupings
    groups: int  # key groups
    find: Callable[[Any, Sequence[Any]], Any]
    """(source, values): the key of a tuple"""
    registry: Registry

    def key_of(self, tup: Tuple) -> Any:
        """The values of the fields by which a tuple's stream is grouped."""
        return self.find(tup.source, tup.values)

    def group_of(self, key: Hashable) -> int:
        """The key group of these values."""
        return key_group(key, self.groups, self.registry)


class WindowCalls:
    """The calls that one task makes for its windows."""

    def __init__(
        self,
        component: str,
        tries: Tries,
        letters: BoltLetters,
        fault: Callable[[Any], None],
        checks: KeyChecks,
        codec: RowCodec,
        grouping: WindowGrouping | None = None,
    ) -> None:
        self.grouping = grouping
        self._checks = checks
        self._codec = codec
        self._component = component
        self._tries = tries
        self._letters = letters
        self._fault = fault

    def around(self, execute: Callable[[list[Tuple]], Any]) -> Callable[[list[Tuple]], None]:
        """The `execute_batch` of the shell. What it raises leaves windows half done, so that it
        ends the engine."""

        def guarded(tuples: list[Tuple]) -> None:
            try:
                execute(tuples)
            except Exception as error:
                if isinstance(error, StateStoreError):
                    self._fault(error)  # a full disk is not the fault of a tuple
                elif not isinstance(error, SquallError):
                    fault = SquallError(f"the windows of {self._component!r}: {describe(error)}")
                    fault.__cause__ = error
                    self._fault(fault)
                raise

        return guarded

    def check_storable(self, what: Any, called: str) -> None:
        """Raises StateValueError for what a snapshot of the windows could not have."""
        if not self._codec.surely_encodes(what):
            check_storable(self._codec, what, called)

    def check_key(self, key: Hashable) -> None:
        """Raises StateValueError for a key of a window that a snapshot could not have."""
        self._checks.check(key, key)

    def call(self, execute: Callable[[], Any]) -> Exception | None:
        """Run the user's code for a window, atomically and as often as a tuple is tried. Returns
        the error of the last try."""

        def run(_: None) -> None:
            execute()

        error = self._tries.attempt(run, None, None)
        if error is not None:
            error = self._tries.again(lambda: self._tries.attempt(run, None, None), error)
        if isinstance(error, StateStoreError):  # likewise one that cannot be read
            self._fault(error)
            raise error
        return error

    def give_up(self, tup: Tuple, error: Exception) -> None:
        """A tuple leaves the windows as a dead letter."""
        self._letters.give_up(tup, error)

    def give_up_window(self, values: Sequence[Any], error: Exception) -> None:
        """The same for the key, total, start and end of a window that holds no tuples."""
        self._letters.give_up_values(values, error)

    def fail(self, tup: Tuple) -> None:
        """The bolt has called `fail` outside of a window."""
        self._letters.give_up(tup, SquallError("the bolt called fail()"))


class WindowCollector(HoldingCollector):
    """The collector of a windowed bolt: nothing that it emits belongs to the tree of a tuple, and
    tuples are acked when they are in the windows."""

    def __init__(
        self, inner: BoltCollector[Tuple], tries: Tries, arity: Arity, calls: WindowCalls
    ) -> None:
        super().__init__(inner, tries, arity)
        self._calls = calls

    def emit(
        self,
        values: Sequence[Any],
        anchors: Tuple | Iterable[Tuple] | None = None,
        stream: str = DEFAULT_STREAM,
    ) -> Sequence[int]:
        return super().emit(values, (), stream)

    def emit_direct(
        self,
        task: int,
        values: Sequence[Any],
        anchors: Tuple | Iterable[Tuple] | None = None,
        stream: str = DEFAULT_STREAM,
    ) -> Sequence[int]:
        return super().emit_direct(task, values, (), stream)

    def ack(self, tup: Tuple) -> None:
        pass

    def reset_timeout(self, tup: Tuple) -> None:
        pass

    def fail(self, tup: Tuple) -> None:
        if self._tries.held is None:
            self._calls.fail(tup)
        else:
            self._tries.fail(tup)
