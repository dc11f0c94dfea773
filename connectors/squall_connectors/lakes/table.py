"""`TableSink`: what sinks of tables have in common.

A batch is one commit. It carries an id, which the table keeps: a batch that is repeated because the
answer to its commit was lost is looked up first, and not appended again.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from typing import Any

from squall import TopologyContext, Tuple
from squall_common.errors import InvalidTopologyError, describe
from squall_connectors.base.sink import ThreadedSink


class TableSink(ThreadedSink):
    """Base of the sinks of tables. A subclass defines `load`, `is_committed` and `append`, whose
    errors are all outages, and `arrow_schema`."""

    def __init__(
        self,
        fields: Sequence[str],
        *,
        batch_records: int = 10_000,
        batch_secs: float = 5.0,
        write_timeout_secs: float = 60.0,
        outage_secs_max: float | None = None,
    ) -> None:
        """`fields` are those of tuples that become columns of the same names. Raises
        InvalidTopologyError unless they are names, each once."""
        super().__init__(
            batch_records=batch_records,
            batch_secs=batch_secs,
            write_timeout_secs=write_timeout_secs,
            outage_secs_max=outage_secs_max,
        )
        if not fields or len(set(fields)) != len(fields):
            raise InvalidTopologyError(
                f"{type(self).__name__}: fields {list(fields)} are empty, or one is there twice"
            )
        self._fields = list(fields)

    def load(self) -> None:
        """Load the newest version of the table."""
        raise NotImplementedError

    def arrow_schema(self) -> Any:
        """The table's pyarrow.Schema."""
        raise NotImplementedError

    def is_committed(self, writer: str, number: int) -> bool:
        """Whether the loaded version has this batch."""
        raise NotImplementedError

    def append(self, data: Any, writer: str, number: int) -> None:
        """Append a pyarrow.Table in one commit with this id."""
        raise NotImplementedError

    async def prepare(self, conf: Mapping[str, Any], context: TopologyContext) -> None:
        # Of this life of the task: the numbers of another one mean other batches.
        self._writer_id = (
            f"{context.topology_id}-{context.this_component_id}-{context.this_task_id}-"
            f"{uuid.uuid4().hex}"
        )
        self._number = 0
        self._last: Sequence[Tuple] = ()
        await super().prepare(conf, context)

    def connect_blocking(self) -> None:
        try:
            self.load()
            schema = self.arrow_schema()
            missing = [name for name in self._fields if name not in schema.names]
            if missing:
                raise ValueError(f"the table has no column {', '.join(missing)}")
            if needed := [
                column.name
                for column in schema
                if not column.nullable and column.name not in self._fields
            ]:
                raise ValueError(
                    f"column {', '.join(needed)} takes no null, and no field is for it"
                )
        except Exception as error:
            raise ConnectionError(f"{self}: {describe(error)}") from error

    def write_blocking(self, tuples: Sequence[Tuple]) -> None:
        import pyarrow

        is_repeated = self._last is tuples
        if not is_repeated:
            self._last = tuples
            self._number += 1
        schema = self.arrow_schema()
        columns = []
        for column in schema:
            if column.name not in self._fields:
                columns.append(pyarrow.nulls(len(tuples), column.type))
                continue
            values = pyarrow.array([tup[column.name] for tup in tuples], type=column.type)
            if not column.nullable and values.null_count:
                raise ValueError(f"column {column.name} takes no None")
            columns.append(values)
        data = pyarrow.table(columns, schema=schema)
        try:
            if is_repeated and self.is_committed(self._writer_id, self._number):
                return
            self.append(data, self._writer_id, self._number)
        except Exception as error:  # whatever the client raises: the records are not at fault
            raise ConnectionError(f"{self}: {describe(error)}") from error
