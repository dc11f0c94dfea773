"""The collectors that the engine binds to components: the calls that a component can make.

    SpoutCollector     emit, emit_direct, emit_columns, report_error
    BoltCollector      emit, emit_direct, ack, fail, reset_timeout, report_error
    ColumnCollector    likewise, and emit_columns: for bolts that are fed with columns

The engine's cores have their own collectors, which a component calls directly if nothing stands in
between. A class that does stand in between (a lock, a wake-up, a count) derives from the
`Delegating...` class of the same name and defines only what it does differently:

    class Shouting(DelegatingSpoutCollector):
        def emit(self, values, message_id=None, stream="default"):
            return super().emit([str(v).upper() for v in values], message_id, stream)

A call that a subclass does not define is the inner collector's own bound method, so it adds no
cost; `_around` changes all of these calls in the same way. A new call goes into the interface and
into its delegating class: the tests compare the two, and the cores with them.

Arguments may be passed by position or by name. The engine passes them by position, which is faster.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Any, Generic, ParamSpec, Protocol, TypeVar, runtime_checkable

_P = ParamSpec("_P")
_R = TypeVar("_R")
# The tuples that a collector takes: `squall.Tuple` for components, the core's own in the engine.
_Tup = TypeVar("_Tup")
_TupIn = TypeVar("_TupIn", contravariant=True)


@runtime_checkable
class SpoutCollector(Protocol):
    """The calls that a spout task can make."""

    def emit(
        self, values: Sequence[Any], message_id: Hashable | None = None, stream: str = "default"
    ) -> Sequence[int]: ...

    def emit_direct(
        self,
        task: int,
        values: Sequence[Any],
        message_id: Hashable | None = None,
        stream: str = "default",
    ) -> Sequence[int]: ...

    def emit_columns(
        self,
        columns: Sequence[Sequence[Any]],
        message_ids: Sequence[Hashable] | None = None,
        stream: str = "default",
    ) -> None: ...

    def report_error(self, exc: BaseException, /) -> None: ...


@runtime_checkable
class BoltCollector(Protocol[_TupIn]):
    """The calls that a bolt task can make."""

    def emit(
        self,
        values: Sequence[Any],
        anchors: _TupIn | Iterable[_TupIn] | None = None,
        stream: str = "default",
    ) -> Sequence[int]: ...

    def emit_direct(
        self,
        task: int,
        values: Sequence[Any],
        anchors: _TupIn | Iterable[_TupIn] | None = None,
        stream: str = "default",
    ) -> Sequence[int]: ...

    def ack(self, tup: _TupIn, /) -> None: ...

    def fail(self, tup: _TupIn, /) -> None: ...

    def reset_timeout(self, tup: _TupIn, /) -> None: ...

    def report_error(self, exc: BaseException, /) -> None: ...


@runtime_checkable
class ColumnCollector(BoltCollector[_TupIn], Protocol):
    """The calls that a bolt task that is fed with columns can make."""

    def emit_columns(
        self,
        columns: Sequence[Sequence[Any]],
        origins: Sequence[int] | None = None,
        stream: str = "default",
    ) -> None: ...


def calls_of(interface: type[Any]) -> list[str]:
    """The names of the calls that an interface above has: `calls_of(BoltCollector)`."""
    return [name for name in dir(interface) if not name.startswith("_")]


class DelegatingCollector:
    """Base of the three classes below, which stand between a component and its collector (see the
    module). A subclass must set what its `_around` needs before it calls `super().__init__`."""

    def _around(self, name: str, call: Callable[_P, _R]) -> Callable[_P, _R]:
        """Wrap the inner collector's `call` of this name, which the class does not define. Called
        once for each such call, when the collector is made."""
        return call

    def _pass_on(self, base: type[Any], interface: type[Any], inner: object) -> None:
        """Take from `inner` every call that the class has not overridden since `base`."""
        for name in calls_of(interface):
            if name not in vars(self) and getattr(type(self), name) is getattr(base, name):
                setattr(self, name, self._around(name, getattr(inner, name)))


class DelegatingSpoutCollector(DelegatingCollector):
    """Makes a spout's calls through another collector."""

    def __init__(self, inner: SpoutCollector) -> None:
        self._inner = inner
        self._pass_on(DelegatingSpoutCollector, SpoutCollector, inner)

    def emit(
        self, values: Sequence[Any], message_id: Hashable | None = None, stream: str = "default"
    ) -> Sequence[int]:
        return self._inner.emit(values, message_id, stream)

    def emit_direct(
        self,
        task: int,
        values: Sequence[Any],
        message_id: Hashable | None = None,
        stream: str = "default",
    ) -> Sequence[int]:
        return self._inner.emit_direct(task, values, message_id, stream)

    def emit_columns(
        self,
        columns: Sequence[Sequence[Any]],
        message_ids: Sequence[Hashable] | None = None,
        stream: str = "default",
    ) -> None:
        self._inner.emit_columns(columns, message_ids, stream)

    def report_error(self, exc: BaseException) -> None:
        self._inner.report_error(exc)


class DelegatingBoltCollector(DelegatingCollector, Generic[_Tup]):
    """Makes a bolt's calls through another collector."""

    def __init__(self, inner: BoltCollector[_Tup]) -> None:
        self._inner = inner
        self._pass_on(DelegatingBoltCollector, BoltCollector, inner)

    def emit(
        self,
        values: Sequence[Any],
        anchors: _Tup | Iterable[_Tup] | None = None,
        stream: str = "default",
    ) -> Sequence[int]:
        return self._inner.emit(values, anchors, stream)

    def emit_direct(
        self,
        task: int,
        values: Sequence[Any],
        anchors: _Tup | Iterable[_Tup] | None = None,
        stream: str = "default",
    ) -> Sequence[int]:
        return self._inner.emit_direct(task, values, anchors, stream)

    def ack(self, tup: _Tup) -> None:
        self._inner.ack(tup)

    def fail(self, tup: _Tup) -> None:
        self._inner.fail(tup)

    def reset_timeout(self, tup: _Tup) -> None:
        self._inner.reset_timeout(tup)

    def report_error(self, exc: BaseException) -> None:
        self._inner.report_error(exc)


class DelegatingColumnCollector(DelegatingBoltCollector[_Tup]):
    """Makes the calls of a bolt that is fed with columns through another collector."""

    def __init__(self, inner: ColumnCollector[_Tup]) -> None:
        super().__init__(inner)
        self._columns = inner
        self._pass_on(DelegatingColumnCollector, ColumnCollector, inner)

    def emit_columns(
        self,
        columns: Sequence[Sequence[Any]],
        origins: Sequence[int] | None = None,
        stream: str = "default",
    ) -> None:
        self._columns.emit_columns(columns, origins, stream)
