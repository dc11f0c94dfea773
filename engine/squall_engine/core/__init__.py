"""The hottest code of a worker: tuples, batches, emitting, groupings, acking, ids on the wire.

There are two of it, with one interface (`compiled.pyi`), the same algorithms and the same random
draws: `compiled`, in Cython, and `pure`, its reference in plain Python, which takes several times
the CPU. The tests of the engine run with both. The compiled one is used where it was built
(`pip install .` builds it where it finds a C compiler); SQUALL_CORE=pure or compiled chooses.
Everything that is not hot is written once and uses either.

    Source             the properties that the tuples of one task on one stream have in common
    Tuple, Batch       a tuple as a bolt gets it; tuples of one stream on the way to one task
    Inbox              what waits for a bolt's task
    TimedRuns          what a task has executed, and how long it took
    Edge, Output       where tuples wait for the end of the turn; one stream of a task
    Outbox             the edges of a task, or of tasks that share theirs, that have something
    RoundRobin ...     groupers, which pick edges
    Emitter            all the outputs of a task
    SpoutCalls, BoltCalls, CarefulCalls, ColumnCalls        the calls that components make
    Ledger, Trees, PendingRoots                   acking
    encode_batches, decode_batches                tuples on the wire
"""

from __future__ import annotations

import hashlib
import importlib
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from squall_common.daemon.logs import get_logger
from squall_common.errors import SquallError
from squall_engine.core.codec import ValueCodec
from squall_engine.core.values import (
    ACKER_INDEX_BITS,
    ACKER_INDEX_MASK,
    BUCKETS,
    MANY,
    UNANCHORED,
    AckerCounts,
    EmitError,
    Grouper,
    Inspector,
    Outcome,
    Settled,
    SettledTupleError,
    Taken,
    draw_steps,
)

log = get_logger(__name__)

CHOICE = os.environ.get("SQUALL_CORE", "")

if CHOICE not in ("", "pure", "compiled"):
    raise SquallError(f"SQUALL_CORE={CHOICE}", hint="unset it, or set it to pure or compiled")


def _is_compiled() -> bool:
    if CHOICE == "pure":
        return False
    try:
        module = importlib.import_module("squall_engine.core.compiled")
    except ImportError as error:
        if CHOICE == "compiled":
            raise SquallError(
                f"SQUALL_CORE=compiled, but there is no compiled core: {error}",
                hint="install squall where there is a C compiler",
            ) from error
        return False
    if is_stale(module):
        hint = "compile it again: pip install -e ."
        if CHOICE == "compiled":
            raise SquallError(f"{module.__file__} is older than its source", hint=hint)
        log.warning("compiled_core_is_stale", file=module.__file__, runs="pure", hint=hint)
        return False
    return True


def is_stale(module: Any) -> bool:
    """Whether a compiled core was made of another source than the one that lies beside it. (An
    installation has none there.)"""
    source = Path(module.__file__).with_name("compiled.pyx")
    parts = sorted(source.parent.glob("cython/*.pxi"))
    try:
        files = (source, *parts, source.with_name("wire_format.py"))
        data = b"".join(file.read_bytes() for file in files)
    except OSError:
        return False
    # As hatch_build.source_hash.
    made_of: str = getattr(module, "SOURCE_HASH", "")
    return hashlib.blake2b(data, digest_size=16).hexdigest() != made_of


COMPILED = _is_compiled()

# For the type checker the two are one: `compiled.pyi` is the interface of both.
if TYPE_CHECKING or COMPILED:
    from squall_engine.core.compiled import (
        Batch,
        BoltCalls,
        ByFields,
        CarefulCalls,
        ChangeLog,
        ColumnCalls,
        Columns,
        Counter,
        Edge,
        Emitter,
        Fixed,
        GroupPacker,
        HotState,
        Inbox,
        KeyFinder,
        Ledger,
        Outbox,
        Output,
        PendingRoots,
        PositionedEmit,
        RoundRobin,
        Source,
        SpoutCalls,
        TableBatch,
        TableRows,
        TimedRuns,
        Trees,
        Trial,
        Tuple,
        TurnState,
        decode_batches,
        encode_batches,
        held_origins,
        merge_blocks,
        surely_encodes,
        tick_source,
    )
else:
    from squall_engine.core.pure import (
        Batch,
        BoltCalls,
        ByFields,
        CarefulCalls,
        ChangeLog,
        ColumnCalls,
        Columns,
        Counter,
        Edge,
        Emitter,
        Fixed,
        GroupPacker,
        HotState,
        Inbox,
        KeyFinder,
        Ledger,
        Outbox,
        Output,
        PendingRoots,
        PositionedEmit,
        RoundRobin,
        Source,
        SpoutCalls,
        TableBatch,
        TableRows,
        TimedRuns,
        Trees,
        Trial,
        Tuple,
        TurnState,
        decode_batches,
        encode_batches,
        held_origins,
        merge_blocks,
        surely_encodes,
        tick_source,
    )

NAME = "compiled" if COMPILED else "pure"
ValueCodec.packer = GroupPacker
ValueCodec.of_table = TableRows
ValueCodec.merge = staticmethod(merge_blocks)
ValueCodec.is_sure = staticmethod(surely_encodes)

__all__ = [
    "ACKER_INDEX_BITS",
    "ACKER_INDEX_MASK",
    "BUCKETS",
    "COMPILED",
    "MANY",
    "NAME",
    "UNANCHORED",
    "AckerCounts",
    "Batch",
    "BoltCalls",
    "ByFields",
    "CarefulCalls",
    "ChangeLog",
    "ColumnCalls",
    "Columns",
    "Counter",
    "Edge",
    "EmitError",
    "Emitter",
    "Fixed",
    "GroupPacker",
    "Grouper",
    "HotState",
    "Inbox",
    "Inspector",
    "KeyFinder",
    "Ledger",
    "Outbox",
    "Outcome",
    "Output",
    "PendingRoots",
    "PositionedEmit",
    "RoundRobin",
    "Settled",
    "SettledTupleError",
    "Source",
    "SpoutCalls",
    "TableBatch",
    "TableRows",
    "Taken",
    "TimedRuns",
    "Trees",
    "Trial",
    "Tuple",
    "TurnState",
    "decode_batches",
    "draw_steps",
    "encode_batches",
    "held_origins",
    "merge_blocks",
    "surely_encodes",
    "tick_source",
]
