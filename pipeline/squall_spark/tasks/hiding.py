"""Collectors whose `emit` leaves out the sinks: a task gets the same ids as on a cluster.

A data set that `storm spark run` writes is an additional consumer of the stream, which the topology
does not have on a cluster.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ParamSpec, TypeVar, cast

from squall import Tuple
from squall_common.component.collector import (
    BoltCollector,
    ColumnCollector,
    DelegatingBoltCollector,
    DelegatingCollector,
    DelegatingColumnCollector,
    DelegatingSpoutCollector,
    SpoutCollector,
)

_P = ParamSpec("_P")
_R = TypeVar("_R")


def hiding(collector: SpoutCollector | BoltCollector[Tuple], hidden: frozenset[int]) -> Hiding:
    """A collector like this one that leaves these tasks out of its results."""
    if isinstance(collector, ColumnCollector):
        return HidingColumnCollector(collector, hidden)
    if isinstance(collector, BoltCollector):
        return HidingBoltCollector(collector, hidden)
    return HidingSpoutCollector(collector, hidden)


class Hiding(DelegatingCollector):
    """A collector whose `emit` and `emit_direct` leave out some ids of the result."""

    _hidden: frozenset[int]

    def _around(self, name: str, call: Callable[_P, _R]) -> Callable[_P, _R]:
        if name not in ("emit", "emit_direct"):
            return call
        emit = cast("Callable[_P, Sequence[int]]", call)
        return cast("Callable[_P, _R]", _without(emit, self._hidden))


class HidingSpoutCollector(Hiding, DelegatingSpoutCollector):
    def __init__(self, inner: SpoutCollector, hidden: frozenset[int]) -> None:
        self._hidden = hidden
        super().__init__(inner)


class HidingBoltCollector(Hiding, DelegatingBoltCollector[Tuple]):
    def __init__(self, inner: BoltCollector[Tuple], hidden: frozenset[int]) -> None:
        self._hidden = hidden
        super().__init__(inner)


class HidingColumnCollector(Hiding, DelegatingColumnCollector[Tuple]):
    def __init__(self, inner: ColumnCollector[Tuple], hidden: frozenset[int]) -> None:
        self._hidden = hidden
        super().__init__(inner)


def _without(
    emit: Callable[_P, Sequence[int]], hidden: frozenset[int]
) -> Callable[_P, Sequence[int]]:
    known: dict[Sequence[int], tuple[int, ...]] = {}

    def emit_hiding(*args: _P.args, **kwargs: _P.kwargs) -> Sequence[int]:
        ids = emit(*args, **kwargs)
        try:
            return known[ids]
        except KeyError:
            shown = known[ids] = tuple(task for task in ids if task not in hidden)
            return shown

    return emit_hiding
