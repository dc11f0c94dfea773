"""The core in Python: what runs where nothing was compiled."""

from squall_engine.core.pure.acking import Ledger, PendingRoots, Taken
from squall_engine.core.pure.bolts import BoltCalls, CarefulCalls, bind_sync_bolt
from squall_engine.core.pure.columns import ColumnCalls, Columns
from squall_engine.core.pure.emitting import Emitter
from squall_engine.core.pure.outputs import (
    SHARES_EDGES,
    ByFields,
    Edge,
    Fixed,
    Grouper,
    Outbox,
    Output,
    RoundRobin,
)
from squall_engine.core.pure.spouts import SpoutCalls, TurnState, bind_spout
from squall_engine.core.pure.trees import Trees
from squall_engine.core.pure.tuples import Batch, Tuple
from squall_engine.core.pure.wire import decode_batches, encode_batches
from squall_engine.core.values import Source, tick_source

__all__ = [
    "SHARES_EDGES",
    "Batch",
    "BoltCalls",
    "ByFields",
    "CarefulCalls",
    "ColumnCalls",
    "Columns",
    "Edge",
    "Emitter",
    "Fixed",
    "Grouper",
    "Ledger",
    "Outbox",
    "Output",
    "PendingRoots",
    "RoundRobin",
    "Source",
    "SpoutCalls",
    "Taken",
    "Trees",
    "Tuple",
    "TurnState",
    "bind_spout",
    "bind_sync_bolt",
    "decode_batches",
    "encode_batches",
    "tick_source",
]
