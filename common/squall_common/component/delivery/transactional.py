"""`TransactionalSink`: a bolt that writes the rows of an epoch in one transaction, once.

    class Orders(TransactionalSink):
        def prepare(self, conf, context):
            self.database = connect(conf["orders.url"])

        def commit(self, batches):
            with self.database.transaction() as transaction:
                for batch in batches:
                    if transaction.last_applied(batch.writer) < batch.epoch:
                        transaction.insert("orders", batch.rows)
                        transaction.set_last_applied(batch.writer, batch.epoch)

Until an epoch is complete its rows are part of the snapshots. Then `commit` gets them, again and
again until it returns; so what it writes has to say, in the same transaction, up to which epoch the
rows of a writer are there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from squall_common.component.component import Bolt
from squall_common.component.tuples import Tuple

if TYPE_CHECKING:
    from squall_common.component.collector import BoltCollector
    from squall_common.component.context import TopologyContext


@dataclass(frozen=True, slots=True)
class RowBatch:
    """The rows that one task has got in one epoch. `writer` names the task and the history of
    checkpoints that epochs are counted in: it is the same after a restart, and another with a new
    folder of checkpoints. Batches of one writer always come to the same task, in order.

        batch = RowBatch("words@5be0117d9f31/store/0", 17, [["cow", 1], ["moon", 2]])
    """

    writer: str  # topology@history/component/index
    epoch: int
    rows: Sequence[Any]


class TransactionalSink(Bolt):
    """A sink whose rows are written exactly once. Derive from it and define `commit`; `row` says
    what is kept of a tuple, by default the list of its values.

        class Store(TransactionalSink):
            def commit(self, batches):
                for batch in batches:
                    path = f"/data/{batch.writer.replace('/', '-')}-{batch.epoch}.json"
                    if not os.path.exists(path):  # it was written before the process ended
                        write_atomically(path, json.dumps(batch.rows))

    It runs in topologies with checkpoints (`topology.checkpoint.interval.secs`); others refuse it.
    Rows are of types that can be emitted.
    """

    _squall_bounded_by = "topology.checkpoint.interval.secs"
    _rows: list[Any]

    def row(self, tup: Tuple) -> Any:
        """The row to write for a tuple."""
        return list(tup.values)

    def commit(self, batches: Sequence[RowBatch]) -> None:
        """Write the batches that are not written yet, oldest first, in one transaction that also
        notes the epoch of each writer. Called on a thread, one call at a time, and again with the
        same batches if it raises or the process ends."""
        raise NotImplementedError(f"{type(self).__name__} does not define commit()")

    def execute(self, tup: Tuple) -> None:
        self._rows.append(self.row(tup))

    def _bind(self, collector: BoltCollector[Tuple], context: TopologyContext) -> None:
        super()._bind(collector, context)
        object.__setattr__(self, "_rows", [])
