"""The interface of the batches that `execute_columns` gets. The class that implements it is in the
engine."""

from collections.abc import Iterator, Sequence
from typing import Any, Protocol


class Columns(Protocol):
    """A batch of tuples from one source, as one list for each field.

    `columns["word"]` and `columns[0]` are lists of `rows` values. Iterating gives one list for each
    field, so `words, counts = columns` unpacks a batch. The bolt may keep and change the lists, but
    not the values in them, which are shared like those of any tuple.

        class Add(Bolt):
            outputs = ["sum"]

            def execute_columns(self, columns):
                left, right = columns
                self.emit_columns([[a + b for a, b in zip(left, right)]])
    """

    @property
    def rows(self) -> int:
        """The number of tuples, at least one."""
        ...

    @property
    def fields(self) -> Sequence[str]:
        """The names of the columns, as the source declared them for the stream."""
        ...

    @property
    def source_component(self) -> str:
        """The id of the component that emitted them ("__system" for ticks)."""
        ...

    @property
    def source_task(self) -> int:
        """The task that emitted them (-1 for ticks)."""
        ...

    @property
    def source_stream(self) -> str:
        """The stream they were emitted on."""
        ...

    @property
    def is_tick(self) -> bool:
        """Whether it is a tick (`topology.tick.tuple.freq.secs`): one row."""
        ...

    def __getitem__(self, key: str | int) -> list[Any]:
        """The list of values of a field, or at an index. Raises KeyError or IndexError."""
        ...

    def __iter__(self) -> Iterator[list[Any]]: ...

    def ack(self, row: int | None = None) -> None:
        """State that a row was processed (None: every row that is not yet acked or failed). Raises
        RuntimeError if the row is already acked or failed."""
        ...

    def fail(self, row: int | None = None) -> None:
        """State that a row could not be processed (None: every row that is not yet acked or
        failed): its message fails at the spout. Raises RuntimeError if the row is already acked or
        failed."""
        ...
