"""The bytes of what lies in the cluster state: Storm's Thrift structs, in the binary protocol,
gzipped.

That is what Storm's daemons and tools write and read (GzipThriftSerializationDelegate, the default
of storm.meta.serialization.delegate). Plain structs, as earlier versions of ours wrote them, are
read as well. What gzip unfolds to is capped. The files of a daemon (local state) are plain.

A `decode_*` function takes the path for its error: CorruptStateError says which node is damaged and
how. An `encode_*` function raises ValueError for what a struct cannot hold (a number out of range).
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping
from typing import TypeVar

from squall_common.cluster import convert, values
from squall_common.errors import SquallError
from squall_thrift import storm
from squall_thrift.codec import from_bytes, map_keys, struct_field, to_bytes

_V = TypeVar("_V")
_S = TypeVar("_S")

_EXECUTOR_STATS = 2  # the fields of ClusterWorkerHeartbeat
_DRAINED = 10001

_GZIP_MAGIC = b"\x1f\x8b"

# A node holds at most 1 MB; Thrift compresses well, but not without end.
UNZIPPED_BYTES_MAX = 32_000_000


class CorruptStateError(SquallError):
    """A value that cannot be read. That is not a reason to delete or replace anything."""

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(
            f"the value at {path} cannot be read: {reason}",
            hint="Nothing was changed. Look at it, and write it again or delete it by hand.",
        )
        self.path = path
        self.reason = reason


def _encoder(to_thrift: Callable[[_V], object]) -> Callable[[_V], bytes]:
    def encode(value: _V) -> bytes:
        return zip_bytes(to_bytes(to_thrift(value)))

    return encode


def _plain_encoder(to_thrift: Callable[[_V], object]) -> Callable[[_V], bytes]:
    def encode(value: _V) -> bytes:
        return to_bytes(to_thrift(value))

    return encode


def zip_bytes(data: bytes) -> bytes:
    """Gzip as Java writes it: without a time, so that the same value has the same bytes."""
    compress = zlib.compressobj(wbits=16 + zlib.MAX_WBITS)
    return compress.compress(data) + compress.flush()


def _decoder(struct: type[_S], from_thrift: Callable[[_S], _V]) -> Callable[[str, bytes], _V]:
    def decode(path: str, data: bytes) -> _V:
        try:
            return from_thrift(from_bytes(struct, _plain(data)))
        except ValueError as error:  # ProtocolError among them
            raise CorruptStateError(path, f"{struct.__name__}: {error}") from error

    return decode


def plain_size(data: bytes) -> int:
    """The size that a value says it unfolds to: what its decoding costs. (Gzip ends with it.)"""
    if not data.startswith(_GZIP_MAGIC):
        return len(data)
    return max(len(data), int.from_bytes(data[-4:], "little"))


def _plain(data: bytes) -> bytes:
    """`data`, unzipped when it is gzip. Raises ValueError."""
    if not data.startswith(_GZIP_MAGIC):
        return data
    unzip = zlib.decompressobj(wbits=16 + zlib.MAX_WBITS)
    # It costs what it says that it costs, or nothing.
    bytes_max = min(plain_size(data), UNZIPPED_BYTES_MAX)
    try:
        plain = unzip.decompress(data, bytes_max + 1)
    except zlib.error as error:
        raise ValueError(f"damaged gzip data: {error}") from error
    if unzip.unconsumed_tail or len(plain) > bytes_max:
        raise ValueError(f"gzip data of more than {bytes_max} bytes")
    if not unzip.eof:
        raise ValueError("gzip data that ends too early")
    return plain


encode_storm_base = _encoder(convert.to_storm_base)
decode_storm_base = _decoder(storm.StormBase, convert.from_storm_base)

encode_assignment = _encoder(convert.to_assignment)
decode_assignment = _decoder(storm.Assignment, convert.from_assignment)

encode_supervisor = _encoder(convert.to_supervisor)
decode_supervisor = _decoder(storm.SupervisorInfo, convert.from_supervisor)

encode_nimbus = _encoder(convert.to_nimbus)
decode_nimbus = _decoder(storm.NimbusSummary, convert.from_nimbus)

encode_heartbeat = _encoder(convert.to_heartbeat)
decode_heartbeat = _decoder(storm.ClusterWorkerHeartbeat, convert.from_heartbeat)
decode_heartbeat_struct = _decoder(storm.ClusterWorkerHeartbeat, lambda beat: beat)

# Only what a worker's heartbeat says about the end of its sources: the rest is skipped.
decode_worker_end = _decoder(storm.WorkerEnd, convert.from_worker_end)


def decode_signs(path: str, data: bytes) -> values.WorkerHeartbeat:
    """Only the executors that are alive, from a worker's heartbeat; most of it is statistics."""
    try:
        alive = map_keys(_plain(data), _EXECUTOR_STATS, storm.ExecutorInfo)
    except ValueError as error:
        raise CorruptStateError(path, f"ClusterWorkerHeartbeat: {error}") from error
    return values.WorkerHeartbeat("", dict.fromkeys(map(convert.from_executor, alive)), 0, 0)


def decode_drained(path: str, data: bytes) -> values.WorkerDrained | None:
    """Only what a worker's heartbeat says about being drained. Raises CorruptStateError."""
    try:
        found = struct_field(_plain(data), _DRAINED, storm.WorkerDrained)
    except ValueError as error:
        raise CorruptStateError(path, f"ClusterWorkerHeartbeat: {error}") from error
    return None if found is None else convert.from_drained(found)


encode_topology_heartbeats = _encoder(convert.to_topology_heartbeats)
decode_topology_heartbeats = _decoder(storm.TopologyHeartbeats, convert.from_topology_heartbeats)

encode_error = _encoder(convert.to_error)
decode_error = _decoder(storm.ErrorInfo, convert.from_error)

encode_credentials = _encoder(convert.to_credentials)
decode_credentials = _decoder(storm.Credentials, convert.from_credentials)

encode_log_config = _encoder(convert.to_log_config)
decode_log_config = _decoder(storm.LogConfig, convert.from_log_config)

encode_profile_request = _encoder(convert.to_profile_request)
decode_profile_request = _decoder(storm.ProfileRequest, convert.from_profile_request)


# Local state: files of a daemon, with paths of the file system in their errors


def _to_local_assignment(assignment: values.LocalAssignment) -> storm.LocalAssignment:
    return storm.LocalAssignment(
        topology_id=assignment.topology_id,
        executors=[convert.to_executor(executor) for executor in assignment.executors],
        owner=assignment.owner,
    )


def _from_local_assignment(assignment: storm.LocalAssignment) -> values.LocalAssignment:
    return values.LocalAssignment(
        assignment.topology_id,
        tuple(convert.from_executor(info) for info in assignment.executors),
        assignment.owner,
    )


def _to_supervisor_assignments(
    assignments: Mapping[int, values.LocalAssignment],
) -> storm.LSSupervisorAssignments:
    by_port = {port: _to_local_assignment(one) for port, one in assignments.items()}
    return storm.LSSupervisorAssignments(assignments=by_port)


def _from_supervisor_assignments(
    assignments: storm.LSSupervisorAssignments,
) -> dict[int, values.LocalAssignment]:
    return {port: _from_local_assignment(one) for port, one in assignments.assignments.items()}


def _to_history(history: list[values.TopologyHistory]) -> storm.LSTopoHistoryList:
    return storm.LSTopoHistoryList(
        topo_history=[
            storm.LSTopoHistory(
                topology_id=one.topology_id,
                time_stamp=one.time_stamp,
                users=list(one.users),
                groups=list(one.groups),
            )
            for one in history
        ]
    )


def _from_history(history: storm.LSTopoHistoryList) -> list[values.TopologyHistory]:
    return [
        values.TopologyHistory(one.topology_id, one.time_stamp, tuple(one.users), tuple(one.groups))
        for one in history.topo_history
    ]


encode_local_assignment = _plain_encoder(_to_local_assignment)
decode_local_assignment = _decoder(storm.LocalAssignment, _from_local_assignment)

# What each port of a supervisor is to run, by port
encode_supervisor_assignments = _plain_encoder(_to_supervisor_assignments)
decode_supervisor_assignments = _decoder(
    storm.LSSupervisorAssignments, _from_supervisor_assignments
)

encode_topology_history = _plain_encoder(_to_history)
decode_topology_history = _decoder(storm.LSTopoHistoryList, _from_history)
