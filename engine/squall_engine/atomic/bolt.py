"""The calls of one bolt, made atomic in the mode in which the engine makes them."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from squall_common.component.stateful import StatefulBolt
from squall_common.state.key_checks import KeyChecks
from squall_common.state.task_state import RowCodec
from squall_engine.atomic.batches import AtomicColumns, around_batch
from squall_engine.atomic.concurrent import ConcurrentCalls
from squall_engine.atomic.keys import InputKeys
from squall_engine.atomic.letters import BoltLetters
from squall_engine.atomic.tries import Arity, HoldingCollector, HoldingColumnCollector, Tries
from squall_engine.atomic.windows import WindowCalls, WindowCollector
from squall_engine.core import Tuple
from squall_engine.core.invocation import InvocationMode


@dataclass(frozen=True, slots=True)
class AtomicCalls:
    """A bolt's calls as the engine makes them."""

    execute: Callable[[Any], Any]
    collector: Callable[[Any], Any]
    """Makes the collector that belongs to `execute` from the task's, which sends at once."""
    tries: Tries | ConcurrentCalls
    """Runs the calls; it is given the state that they change, when that is open."""
    on_changed_row: Callable[[Tuple, Exception], bool] | None = None
    """Of a bolt that is fed with columns: see `ColumnCalls`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AtomicBolt:
    """A bolt whose calls are made atomic. Used once."""

    component: str
    user: Any
    mode: InvocationMode
    keys: InputKeys
    groups: int | None  # key groups of its input
    key_checks: KeyChecks  # of its windows
    codec: RowCodec
    arity: Arity
    letters: BoltLetters
    tries_max: int
    report: Callable[[BaseException], None]
    fault: Callable[[BaseException], None]
    """Ends the engine."""

    def around(self, execute: Callable[[Any], Any]) -> AtomicCalls:
        """`execute` of the bolt, in its mode, made atomic."""
        if self.mode in (InvocationMode.ASYNC, InvocationMode.ASYNC_BATCH):
            return self._around_async(execute, is_batch=self.mode is InvocationMode.ASYNC_BATCH)
        tries = self._tries()
        if getattr(self.user, "_squall_windowed", False):
            return self._around_windows(execute, tries)
        if self.mode is InvocationMode.COLUMNS:
            return self._around_columns(execute, tries)
        if self.mode in (InvocationMode.BATCH, InvocationMode.THREAD_BATCH):
            keys_of = self.keys.finder.of_all if self._has_state else None
            collector = self._collector(tries, names_anchors=self.user.auto_anchor)
            return AtomicCalls(around_batch(tries, execute, keys_of), collector, tries)
        return AtomicCalls(tries.around(execute), self._collector(tries), tries)

    @property
    def _has_state(self) -> bool:
        return isinstance(self.user, StatefulBolt)

    def _tries(self) -> Tries:
        has_keys = self._has_state and self.keys.of_values is not None
        return Tries(
            self.tries_max,
            key_of=self.keys.finder if has_keys else None,
            report=self.report,
            give_up=self.letters.give_up,
            fault=self.fault,
            sleep=time.sleep,
            explain=getattr(self.user, "_squall_explain", None),
        )

    def _collector(
        self, tries: Tries | ConcurrentCalls, *, names_anchors: bool = False
    ) -> Callable[[Any], Any]:
        def collector(inner: Any) -> HoldingCollector:
            self.letters.calls = inner
            return HoldingCollector(inner, tries, self.arity, names_anchors=names_anchors)

        return collector

    def _around_columns(self, execute: Callable[[Any], Any], tries: Tries) -> AtomicCalls:
        keys_of = self.keys.of_columns() if self._has_state else None
        columns = AtomicColumns(tries, execute, keys_of, self.letters.give_up_row)

        def collector(inner: Any) -> HoldingColumnCollector:
            self.letters.calls = inner
            columns.collector = HoldingColumnCollector(inner, tries, self.arity)
            return columns.collector

        def refuse(tup: Tuple, error: Exception) -> bool:
            self.report(error)
            self.letters.refuse(tup, error)
            return True

        return AtomicCalls(columns.run, collector, tries, refuse)

    def _around_async(self, execute: Callable[[Any], Any], *, is_batch: bool) -> AtomicCalls:
        calls = ConcurrentCalls(
            self.tries_max,
            keys_of=None if self.keys.of_values is None else self.keys.of_tuples,
            report=self.report,
            give_up=self.letters.give_up,
            fault=self.fault,
        )
        around = calls.around_batch if is_batch else calls.around
        names_anchors = is_batch and self.user.auto_anchor
        collector = self._collector(calls, names_anchors=names_anchors)
        return AtomicCalls(around(execute), collector, calls)

    def _around_windows(self, execute: Callable[[Any], Any], tries: Tries) -> AtomicCalls:
        grouping = self.keys.window_grouping(self.groups)
        windows = WindowCalls(
            self.component,
            tries,
            self.letters,
            self.fault,
            self.key_checks,
            self.codec,
            grouping,
        )
        # Before the bolt is bound, which makes its shell.
        object.__setattr__(self.user, "_squall_calls", windows)

        def collector(inner: Any) -> WindowCollector:
            self.letters.calls = inner
            return WindowCollector(inner, tries, self.arity, windows)

        return AtomicCalls(windows.around(execute), collector, tries)
