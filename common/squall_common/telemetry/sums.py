"""Sums by component: what workers report several times a second while somebody watches their
topology, and it is large.

A heartbeat has all statistics of each executor, in four windows and with histograms: some 10 KB for
ten executors, too much for thousands of them several times a second. What a page shows as moving
follows from the counters of a component since the worker began, which take some 100 bytes each,
however many executors it has.

The bytes come from a process that runs its users' code. They are bounded, read into types, and
every number has a least and a greatest value.

    MessagePack of WorkerSums, structs as arrays
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

import msgspec

# 1,000 components with five inputs each take half of it. What is larger is not reported.
SUMS_BYTES_MAX = 256 * 1024

_Count = Annotated[int, msgspec.Meta(ge=0, le=2**60)]
_Secs = Annotated[float, msgspec.Meta(ge=0.0, le=1e12)]
_Share = Annotated[float, msgspec.Meta(ge=0.0, le=1e3)]
_Name = Annotated[str, msgspec.Meta(max_length=1_000)]


class ComponentSums(msgspec.Struct, frozen=True, array_like=True):
    """What the executors of a component in one worker have done since it began, added up. Tuples of
    the system's streams are left out, but for the time that ticks took.

    >>> decode_sums(encode_sums(WorkerSums(250, {"split": ComponentSums(executed=7)})))
    ... # doctest: +ELLIPSIS
    WorkerSums(stats_ms=250, components={'split': ComponentSums(executed=7, ...)})
    """

    executed: _Count = 0
    emitted: _Count = 0
    transferred: _Count = 0
    acked: _Count = 0
    failed: _Count = 0
    busy_secs: _Secs = 0.0  # in execute, ticks included
    execute_secs: _Secs = 0.0  # in execute, of tuples
    process_secs: _Secs = 0.0  # from a tuple's arrival to its ack; of a spout, complete latency
    by_source: tuple[tuple[_Name, _Name, _Count], ...] = ()  # component, stream, executed
    blocked_secs: Mapping[_Name, _Secs] = {}  # that tasks waited, by component downstream
    sent_bytes: Mapping[_Name, _Count] = {}  # to other workers, by component downstream
    # The executor that was longest in execute in the last seconds: its first and last task, and its
    # share of the time.
    busiest: tuple[_Count, _Count, _Share] | None = None
    # The tuples a second, in the last seconds, of the executor that had most of them.
    most_a_second: _Secs = 0.0


class WorkerSums(msgspec.Struct, frozen=True, array_like=True):
    """Of a worker's components, those of the system left out."""

    stats_ms: _Count  # when they were read, since the worker began
    components: dict[_Name, ComponentSums] = {}


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(WorkerSums)


def encode_sums(sums: WorkerSums) -> bytes:
    """For `decode_sums`; the caller checks that they have at most SUMS_BYTES_MAX."""
    return _encoder.encode(sums)


def decode_sums(data: bytes) -> WorkerSums:
    """Raises ValueError for what no worker writes."""
    if len(data) > SUMS_BYTES_MAX:
        raise ValueError(f"sums of more than {SUMS_BYTES_MAX} bytes")
    try:
        return _decoder.decode(data)
    except (msgspec.DecodeError, RecursionError) as error:  # a ValidationError is one
        raise ValueError(f"damaged sums: {error}") from error
