"""The core in Python: a plain reference of the compiled one, which runs where nothing was compiled.

It has the compiled core's interface (`compiled.pyi`), its algorithms and its random draws, so that
one seed gives one trace with either, and none of its fast paths. The names that start with an
underscore are shared within this package alone.
"""

from squall_common.component.metrics.instruments import Counter
from squall_engine.core.pure.acking import Ledger, PendingRoots
from squall_engine.core.pure.bolts import BoltCalls, CarefulCalls
from squall_engine.core.pure.change_log import ChangeLog
from squall_engine.core.pure.columns import ColumnCalls, Columns, held_origins
from squall_engine.core.pure.emitting import Emitter
from squall_engine.core.pure.encodable import surely_encodes
from squall_engine.core.pure.grouped import GroupPacker
from squall_engine.core.pure.inbox import Inbox
from squall_engine.core.pure.merging import merge_blocks
from squall_engine.core.pure.outputs import ByFields, Edge, Fixed, Outbox, Output, RoundRobin
from squall_engine.core.pure.runs import TimedRuns
from squall_engine.core.pure.spouts import SpoutCalls, TurnState
from squall_engine.core.pure.table_rows import TableBatch, TableRows
from squall_engine.core.pure.trees import Trees
from squall_engine.core.pure.tried import HotState, KeyFinder, PositionedEmit, Trial
from squall_engine.core.pure.tuples import Batch, Source, Tuple, tick_source
from squall_engine.core.pure.wire import decode_batches, encode_batches

__all__ = [
    "Batch",
    "BoltCalls",
    "ByFields",
    "CarefulCalls",
    "ChangeLog",
    "ColumnCalls",
    "Columns",
    "Counter",
    "Edge",
    "Emitter",
    "Fixed",
    "GroupPacker",
    "HotState",
    "Inbox",
    "KeyFinder",
    "Ledger",
    "Outbox",
    "Output",
    "PendingRoots",
    "PositionedEmit",
    "RoundRobin",
    "Source",
    "SpoutCalls",
    "TableBatch",
    "TableRows",
    "TimedRuns",
    "Trees",
    "Trial",
    "Tuple",
    "TurnState",
    "decode_batches",
    "encode_batches",
    "held_origins",
    "merge_blocks",
    "surely_encodes",
    "tick_source",
]
