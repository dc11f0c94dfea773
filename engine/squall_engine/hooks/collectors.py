"""The collectors of a task with hooks: they report what is emitted."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from typing import Any, Protocol

from squall_common.component.collector import (
    BoltCollector,
    ColumnCollector,
    DelegatingBoltCollector,
    DelegatingColumnCollector,
    DelegatingSpoutCollector,
    SpoutCollector,
)
from squall_common.names import DEFAULT_STREAM
from squall_engine.core import Tuple

Anchors = Tuple | Iterable[Tuple] | None


class EmitListener(Protocol):
    """Is notified of emits."""

    def emitted(self, values: Sequence[Any], stream: str, targets: Sequence[int] | None) -> None:
        """A tuple was emitted to these tasks (None: unknown)."""

    def message_began(self, message_id: Hashable) -> None:
        """A spout emitted a message."""


class HookedSpoutCollector(DelegatingSpoutCollector):
    """Reports a spout's emits."""

    def __init__(self, inner: SpoutCollector, listener: EmitListener) -> None:
        self._listener = listener
        super().__init__(inner)

    def emit(
        self,
        values: Sequence[Any],
        message_id: Hashable | None = None,
        stream: str = DEFAULT_STREAM,
    ) -> Sequence[int]:
        targets = self._inner.emit(values, message_id, stream)
        if message_id is not None:
            self._listener.message_began(message_id)
        self._listener.emitted(values, stream, targets)
        return targets

    def emit_direct(
        self,
        task: int,
        values: Sequence[Any],
        message_id: Hashable | None = None,
        stream: str = DEFAULT_STREAM,
    ) -> Sequence[int]:
        targets = self._inner.emit_direct(task, values, message_id, stream)
        if message_id is not None:
            self._listener.message_began(message_id)
        self._listener.emitted(values, stream, targets)
        return targets

    def emit_columns(
        self,
        columns: Sequence[Sequence[Any]],
        message_ids: Sequence[Hashable] | None = None,
        stream: str = DEFAULT_STREAM,
    ) -> None:
        self._inner.emit_columns(columns, message_ids, stream)
        for message_id in () if message_ids is None else message_ids:
            if message_id is not None:  # that row is not a message
                self._listener.message_began(message_id)
        for values in zip(*columns, strict=True):
            self._listener.emitted(values, stream, None)


class HookedBoltCollector(DelegatingBoltCollector[Tuple]):
    """Reports a bolt's emits."""

    def __init__(self, inner: BoltCollector[Tuple], listener: EmitListener) -> None:
        self._listener = listener
        super().__init__(inner)

    def emit(
        self, values: Sequence[Any], anchors: Anchors = None, stream: str = DEFAULT_STREAM
    ) -> Sequence[int]:
        targets = self._inner.emit(values, anchors, stream)
        self._listener.emitted(values, stream, targets)
        return targets

    def emit_direct(
        self,
        task: int,
        values: Sequence[Any],
        anchors: Anchors = None,
        stream: str = DEFAULT_STREAM,
    ) -> Sequence[int]:
        targets = self._inner.emit_direct(task, values, anchors, stream)
        self._listener.emitted(values, stream, targets)
        return targets


class HookedColumnCollector(HookedBoltCollector, DelegatingColumnCollector[Tuple]):
    """Reports the emits of a bolt that is fed with columns."""

    def __init__(self, inner: ColumnCollector[Tuple], listener: EmitListener) -> None:
        self._listener = listener
        DelegatingColumnCollector.__init__(self, inner)

    def emit_columns(
        self,
        columns: Sequence[Sequence[Any]],
        origins: Sequence[int] | None = None,
        stream: str = DEFAULT_STREAM,
    ) -> None:
        self._columns.emit_columns(columns, origins, stream)
        for values in zip(*columns, strict=True):
            self._listener.emitted(values, stream, None)
