"""Bolts with state by key: `StatefulBolt`.

    class Count(StatefulBolt):
        outputs = ["word", "count"]

        def execute(self, tup):
            count = self.state.get(tup["word"], 0) + 1
            self.state.put(tup["word"], count)
            self.emit([tup["word"], count])

Each task has its own state, so group the input by the fields of the key. On a cluster the state is
in memory and is lost with its worker. On a stream on Spark it is kept across micro-batches and
restarts. Keys and values can have any type that can be emitted. A value that is changed in place
after `get` or `put` is changed in the state, too, on a cluster and on Spark, as long as the change
is made before `execute` returns; `get` it again for each tuple.
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
    """A bolt that keeps its state in `self.state`, which is available from `prepare` on.

        class Count(StatefulBolt):
            outputs = ["word", "count"]

            def execute(self, tup):
                count = self.state.get(tup["word"], 0) + 1
                self.state.put(tup["word"], count)
                self.emit([tup["word"], count])

    Each task has a state of its own, so subscribe by the fields of the key. On a cluster it is in
    memory, and is lost with its worker; on a stream on Spark it is kept.
    """

    #: Forget a key when it was not put for so many seconds of real time; None: never. On a stream
    #: on Spark the time of a put is that of its micro-batch.
    state_ttl_secs: float | None = None

    state: KeyValueState

    def _bind(self, collector: BoltCollector[Tuple], context: TopologyContext) -> None:
        super()._bind(collector, context)
        kept = context.open_state()
        if kept is None:
            kept = MemoryState(self.state_ttl_secs)
        object.__setattr__(self, "state", kept)
