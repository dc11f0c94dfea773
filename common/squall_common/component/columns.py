"""What a bolt with `execute_columns` gets. The engine has the real class; this is the promise it
keeps."""

from collections.abc import Iterator, Sequence
from typing import Any, Protocol


class Columns(Protocol):
    """A batch of tuples of one source, as one list for each field.

    `columns["word"]` and `columns[0]` are lists of `rows` values; iterating gives one list for each
    field, so `words, counts = columns` takes a batch apart. The lists are the bolt's to keep and to
    change; the values in them are shared, as those of any tuple.
    """

    @property
    def rows(self) -> int:
        """How many tuples there are: at least one."""
        ...

    @property
    def fields(self) -> Sequence[str]:
        """The names of the columns, as the source declared them for the stream."""
        ...

    @property
    def source_component(self) -> str:
        """Id of the component that emitted them ("__system" for ticks)."""
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
        """A column. Raises KeyError or IndexError."""
        ...

    def __iter__(self) -> Iterator[list[Any]]: ...

    def ack(self, row: int | None = None) -> None:
        """This row was processed; None: every row that is not settled. Raises when the row is
        settled already."""
        ...

    def fail(self, row: int | None = None) -> None:
        """This row was not processed: its message fails at the spout; None: every row that is not
        settled. Raises when the row is settled already."""
        ...
