"""Bolts with state by key: `StatefulBolt`.

    class Count(StatefulBolt):
        outputs = ["word", "count"]

        def execute(self, tup):
            count = self.state.get(tup["word"], 0) + 1
            self.state.put(tup["word"], count)
            self.emit([tup["word"], count])

Each task has its own state, so group the input by the fields of the key. On a cluster the state is
in memory and is lost with its worker. On a stream on Spark it is kept across micro-batches and
restarts. Keys and values can have any type that can be emitted. Do not change a value after `put`;
`put` a new one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from squall_common.component.component import Bolt
from squall_common.component.state import KeyValueState, MemoryState

if TYPE_CHECKING:
    from squall_common.component.collector import BoltCollector
    from squall_common.component.context import TopologyContext
    from squall_common.component.tuples import Tuple


class StatefulBolt(Bolt):
    """A bolt that keeps its state in `self.state`, which is available from `prepare` on."""

    state: KeyValueState

    def _bind(self, collector: BoltCollector[Tuple], context: TopologyContext) -> None:
        super()._bind(collector, context)
        kept = context.open_state()
        object.__setattr__(self, "state", MemoryState() if kept is None else kept)
