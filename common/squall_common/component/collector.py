"""The collectors that the engine binds to components: the calls a component can make."""

from collections.abc import Hashable, Iterable, Sequence
from typing import Any, Protocol

from squall_common.component.tuples import Tuple


class SpoutCollector(Protocol):
    """A spout task's way out."""

    def emit(
        self, values: Sequence[Any], *, message_id: Hashable | None = None, stream: str = "default"
    ) -> Sequence[int]: ...

    def emit_direct(
        self,
        task: int,
        values: Sequence[Any],
        *,
        message_id: Hashable | None = None,
        stream: str = "default",
    ) -> Sequence[int]: ...

    def emit_columns(
        self,
        columns: Sequence[Sequence[Any]],
        *,
        message_ids: Sequence[Hashable] | None = None,
        stream: str = "default",
    ) -> None: ...

    def report_error(self, exc: BaseException) -> None: ...


class BoltCollector(Protocol):
    """A bolt task's way out."""

    def emit(
        self,
        values: Sequence[Any],
        *,
        anchors: Tuple | Iterable[Tuple] | None = None,
        stream: str = "default",
    ) -> Sequence[int]: ...

    def emit_direct(
        self,
        task: int,
        values: Sequence[Any],
        *,
        anchors: Tuple | Iterable[Tuple] | None = None,
        stream: str = "default",
    ) -> Sequence[int]: ...

    def ack(self, tup: Tuple) -> None: ...

    def fail(self, tup: Tuple) -> None: ...

    def reset_timeout(self, tup: Tuple) -> None: ...

    def report_error(self, exc: BaseException) -> None: ...


class ColumnCollector(BoltCollector, Protocol):
    """The way out of a bolt task that is fed with columns."""

    def emit_columns(
        self,
        columns: Sequence[Sequence[Any]],
        *,
        origins: Sequence[int] | None = None,
        stream: str = "default",
    ) -> None: ...
