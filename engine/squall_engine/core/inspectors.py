"""Looking at every tuple: `topology.debug` writes it to the log, and
`topology.testing.always.try.serialize` sends it through the codec, so that a test in one process
finds what would only break between two."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any

from squall_common.daemon.logs import get_logger
from squall_common.names import MARK_STREAM
from squall_engine.core import Tuple
from squall_engine.core.codec import (
    CodecError,
    UndeliverableError,
    ValueCodec,
    ValueNotEncodableError,
)
from squall_engine.core.values import Inspector, Source

log = get_logger("squall_worker.debug")


class MutatedTupleError(ValueError):
    """Values were changed after they had been emitted. Their receivers hold the same objects."""


class DebugInspector(Inspector):
    """Logs every tuple that some components emit."""

    def __init__(self, components: Collection[str]) -> None:
        self._components = components

    def inspect(self, source: Source, values: Sequence[Any]) -> Sequence[Any]:
        if source.component not in self._components:
            return values
        log.info(
            "tuple_emitted",
            component=source.component,
            task=source.task,
            stream=source.stream,
            values=list(values),
        )
        return values


class Observer:
    """Is notified of everything that happens (the test kit keeps a trace of it)."""

    def emitted(self, source: Source, values: Sequence[Any]) -> None:
        """A component emitted a tuple."""

    def settled(self, component: str, task: int, tup: Tuple, failed: bool) -> None:
        """A bolt acked or failed a tuple."""

    def completed(self, component: str, task: int, message_id: Any, failed: bool) -> None:
        """A spout is notified of the outcome of a message."""


class ObservingInspector(Inspector):
    """Notifies an observer of every emit, but not of marks of event time."""

    def __init__(self, observer: Observer, inner: Inspector | None = None) -> None:
        self._observer = observer
        self._inner = inner

    def inspect(self, source: Source, values: Sequence[Any]) -> Sequence[Any]:
        if source.stream != MARK_STREAM:
            self._observer.emitted(source, values)
        return values if self._inner is None else self._inner.inspect(source, values)


class SerializingInspector(Inspector):
    """Delivers what the codec makes of the values, and at the end of the turn (`check`) looks
    whether somebody changed them."""

    def __init__(
        self,
        codec: ValueCodec,
        on_mutated: Callable[[Source, MutatedTupleError], None],
        inner: Inspector | None = None,
    ) -> None:
        self._codec = codec
        self._on_mutated = on_mutated
        self._inner = inner
        self._emitted: list[tuple[Source, Sequence[Any], list[Any], bytes]] = []

    def inspect(self, source: Source, values: Sequence[Any]) -> Sequence[Any]:
        if self._inner is not None:
            self._inner.inspect(source, values)
        try:
            data = self._codec.encode_row(values)
        except ValueNotEncodableError as error:
            raise not_encodable(source, values, error) from error
        copy = self._codec.decode_row(data)
        self._emitted.append((source, values, copy, data))
        return copy

    def check(self) -> None:
        """Report what was changed since it was emitted."""
        emitted, self._emitted = self._emitted, []
        for source, values, copy, data in emitted:
            for who, now in ((f"{source.component!r}", values), ("a consumer", copy)):
                try:
                    same = self._codec.encode_row(now) == data
                except CodecError:
                    same = False
                if not same:
                    self._on_mutated(
                        source,
                        MutatedTupleError(
                            f"{who} changed the values of a tuple on stream {source.stream!r} of "
                            f"{source.component!r} after it was emitted; emit a copy"
                        ),
                    )


def not_encodable(
    source: Source, values: Sequence[Any], error: ValueNotEncodableError
) -> UndeliverableError:
    """The error for a tuple that cannot be sent: component, stream, field and type."""
    field = source.fields[error.index] if error.index < len(source.fields) else error.index
    return UndeliverableError(
        f"component {source.component!r}, stream {source.stream!r}, field {field!r}: {error}",
        source.stream,
        values,
    )
