"""The bytes in ZooKeeper: literal ones, both ways, and damaged ones."""

from __future__ import annotations

import gzip
import struct
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from squall_common.cluster import codec, convert
from squall_common.cluster.codec import UNZIPPED_BYTES_MAX, CorruptStateError
from squall_common.cluster.values import (
    Assignment,
    BoltStats,
    CheckpointReport,
    Credentials,
    DebugOptions,
    ErrorInfo,
    ExecutorStats,
    KillOptions,
    LocalAssignment,
    LogConfig,
    LogLevel,
    LogLevelAction,
    NimbusInfo,
    ProfileAction,
    ProfileRequest,
    RebalanceOptions,
    SpoutStats,
    StormBase,
    SupervisorInfo,
    TopologyHistory,
    TopologyStatus,
    WorkerDrained,
    WorkerEnd,
    WorkerHeartbeat,
)
from squall_common.topology.model import Executor, WorkerSlot
from squall_thrift import storm
from squall_thrift.codec import to_bytes

CHECKPOINTS = CheckpointReport(
    epoch=57, interval_ms=1000, completed=50, given_up=2, waiting_ms=300, duration_ms=120,
    size_bytes=2**40, longest_task="count (2)", longest_ms=80, waited_for="count (0)", rollbacks=3,
    rollback_reason="a worker was started again", rollback_time_ms=2**41,
    bound_components=("count",), failure="cannot write: No space left on device",
)  # fmt: skip

SPOUT = ExecutorStats(
    specific=SpoutStats(
        acked={":all-time": {"default": 9}},
        failed={"600": {"default": 1}},
        complete_ms_avg={"600": {"default": 2.5}},
        complete_histograms={"600": {"default": b"\x01\x07\x00\x02"}},
    ),
    emitted={":all-time": {"default": 12, "errors": 1}},
    transferred={":all-time": {"default": 12}},
    rate=0.05,
    queue_tuples=7,
    queue_bytes=0,
    blocked_secs={"600": {"count": 1.5}},
    credit_bytes={"count": 16384},
    sent_bytes={"count": 2**40},
    state_keys=2**33,
    state_bytes=0,
    exhausted_tasks=3,
)
BOLT = ExecutorStats(
    specific=BoltStats(
        acked={":all-time": {("spout", "default"): 2**40}},
        failed={":all-time": {}},
        executed={":all-time": {("spout", "default"): 8, ("__system", "__tick"): 3}},
        process_ms_avg={"600": {("spout", "default"): 0.25}},
        execute_ms_avg={"600": {("spout", "default"): 0.125}},
        process_histograms={"600": {("spout", "default"): b"\x01\x07\x00\x02"}},
        execute_histograms={"600": {("spout", "default"): b"\x02\x07\x00\x02\x01"}},
    ),
    calls_max=2**33,
    on_threads=True,
)
REBALANCE = RebalanceOptions(
    wait_secs=5,
    num_workers=2,
    num_executors={"count": 3},
    topology_conf_overrides='{"topology.debug": true}',
    topology_resources_overrides={"count": {"cpu.pcore.percent": 10.0}},
    principal="ann",
)

Decode = Callable[[str, bytes], Any]
Encode = Callable[[Any], bytes]

VALUES: list[tuple[Encode, Decode, Any]] = [
    (codec.encode_storm_base, codec.decode_storm_base, StormBase("wc", TopologyStatus.ACTIVE, 2)),
    (
        codec.encode_storm_base,
        codec.decode_storm_base,
        StormBase(
            name="wörd",
            status=TopologyStatus.KILLED,
            num_workers=1,
            component_executors={"words": 1, "count": 4},
            launch_time_secs=1_700_000_000,
            owner="ann",
            action_options=KillOptions(wait_secs=30),
            prev_status=TopologyStatus.ACTIVE,
            component_debug={"wc-1-1": DebugOptions(enable=True, sampling_pct=2.0)},
            principal="ann@REALM",
            topology_version="1",
        ),
    ),
    (
        codec.encode_storm_base,
        codec.decode_storm_base,
        StormBase("wc", TopologyStatus.REBALANCING, 1, action_options=REBALANCE),
    ),
    (
        codec.encode_storm_base,
        codec.decode_storm_base,
        StormBase("wc", TopologyStatus.REBALANCING, 1, action_options=RebalanceOptions()),
    ),
    (codec.encode_assignment, codec.decode_assignment, Assignment("/nimbus/wc")),
    (
        codec.encode_assignment,
        codec.decode_assignment,
        Assignment(
            master_code_dir="/nimbus/wc",
            node_host={"sup-1": "a", "sup-2": "b"},
            executor_slot={
                Executor(1, 1): WorkerSlot("sup-1", 6700),
                Executor(2, 4): WorkerSlot("sup-2", 6701),
            },
            executor_start_time_secs={Executor(1, 1): 17, Executor(2, 4): 2**33},
            owner="ann",
        ),
    ),
    (
        codec.encode_supervisor,
        codec.decode_supervisor,
        SupervisorInfo(
            time_secs=17,
            hostname="a",
            assignment_id="sup-1",
            used_ports=(6700,),
            meta=(6700, 6701),
            scheduler_meta={"rack": "r1"},
            uptime_secs=9,
            version="0.1",
            resources={"cpu.pcore.percent": 400.0},
            server_port=6628,
        ),
    ),
    (codec.encode_nimbus, codec.decode_nimbus, NimbusInfo("a", 6627, 3, True, "0.1")),
    (
        codec.encode_heartbeat,
        codec.decode_heartbeat,
        WorkerHeartbeat(
            topology_id="wc-1-17",
            executor_stats={Executor(1, 1): SPOUT, Executor(2, 4): BOLT, Executor(5, 5): None},
            time_secs=2**33,
            uptime_secs=60,
        ),
    ),
    (
        codec.encode_heartbeat,
        codec.decode_heartbeat,
        WorkerHeartbeat(
            "wc-1-17",
            {},
            17,
            60,
            drained=WorkerDrained(2**40, "9-1", 2**33),
            checkpoints=CHECKPOINTS,
            rest_ms=0,
            says_end=True,
        ),
    ),
    (
        codec.encode_heartbeat,
        codec.decode_heartbeat,
        WorkerHeartbeat("wc-1-17", {}, 17, 60, store_failure="No space left on device"),
    ),
    (codec.encode_error, codec.decode_error, ErrorInfo("Traceback ...", 17, "a", 6700)),
    (codec.encode_error, codec.decode_error, ErrorInfo("", 0)),
    (codec.encode_error, codec.decode_error, ErrorInfo("boom", 17, "a", 6700, 12)),
    (codec.encode_credentials, codec.decode_credentials, Credentials({"k": "v"}, "ann")),
    (
        codec.encode_log_config,
        codec.decode_log_config,
        LogConfig(
            {
                "ROOT": LogLevel(LogLevelAction.UPDATE, "DEBUG", 30, 1_700_000_000_000, "INFO"),
                "a.b": LogLevel(LogLevelAction.REMOVE),
            }
        ),
    ),
    (
        codec.encode_profile_request,
        codec.decode_profile_request,
        ProfileRequest(WorkerSlot("sup-1", 6700), ProfileAction.JSTACK_DUMP, 17),
    ),
    (
        codec.encode_supervisor_assignments,
        codec.decode_supervisor_assignments,
        {
            6700: LocalAssignment("wc-1-17", (Executor(1, 1), Executor(2, 3)), "ann"),
            6701: LocalAssignment("x-2-3", ()),
        },
    ),
    (
        codec.encode_local_assignment,
        codec.decode_local_assignment,
        LocalAssignment("wc-1-17", (Executor(1, 1),)),
    ),
    (
        codec.encode_topology_history,
        codec.decode_topology_history,
        [TopologyHistory("wc-1-17", 17, ("ann",), ("dev",)), TopologyHistory("x-2-3", 2**40)],
    ),
]


LOCAL = (
    codec.encode_supervisor_assignments,
    codec.encode_local_assignment,
    codec.encode_topology_history,
)


@pytest.mark.parametrize(("encode", "decode", "value"), VALUES)
def test_every_value_comes_back_as_it_was(encode: Encode, decode: Decode, value: Any) -> None:
    assert decode("/p", encode(value)) == value


@pytest.mark.parametrize(("encode", "decode", "value"), VALUES)
def test_values_are_read_gzipped_by_others_and_plain(
    encode: Encode, decode: Decode, value: Any
) -> None:
    plain = unzipped(encode(value))
    assert decode("/p", plain) == value
    assert decode("/p", gzip.compress(plain)) == value


def unzipped(data: bytes) -> bytes:
    return gzip.decompress(data) if data.startswith(b"\x1f\x8b") else data


def test_znodes_are_gzipped_thrift_as_storms_tools_read_them_and_local_files_plain() -> None:
    """GzipThriftSerializationDelegate, which unzips whatever it is given."""
    for encode, _, value in VALUES:
        if encode not in LOCAL:
            assert gzip.decompress(encode(value))
        else:
            assert not encode(value).startswith(b"\x1f\x8b")
    assert codec.encode_error(ErrorInfo("boom", 17)) == codec.encode_error(ErrorInfo("boom", 17))


# Bytes by hand, from the Thrift binary protocol: a field is type (1 byte), id (2), value; strings
# are length (4) and text; a struct ends with a zero byte.


def _string(field: int, text: str) -> bytes:
    return b"\x0b" + struct.pack(">hi", field, len(text.encode())) + text.encode()


def _i32(field: int, value: int) -> bytes:
    return b"\x08" + struct.pack(">hi", field, value)


def _i64(field: int, value: int) -> bytes:
    return b"\x0a" + struct.pack(">hq", field, value)


def test_the_bytes_of_an_error() -> None:
    raw = _string(1, "boom") + _i32(2, 17) + _string(3, "a") + _i32(4, 6700) + b"\0"
    value = ErrorInfo("boom", 17, "a", 6700)
    assert gzip.decompress(codec.encode_error(value)) == raw
    assert codec.decode_error("/p", raw) == value


def test_the_bytes_of_a_nimbus() -> None:
    raw = (
        _string(1, "h") + _i32(2, 6627) + _i32(3, 5) + b"\x02\x00\x04\x01" + _string(5, "v") + b"\0"
    )
    assert gzip.decompress(codec.encode_nimbus(NimbusInfo("h", 6627, 5, True, "v"))) == raw


def test_the_bytes_of_an_assignment() -> None:
    """Keys of executor_node_port are lists of i64, its values a struct with a set of i64."""
    node = _string(1, "s") + b"\x0e\x00\x02\x0a" + struct.pack(">iq", 1, 6700) + b"\0"
    ends = b"\x0a" + struct.pack(">iqq", 2, 3, 4)
    raw = (
        _string(1, "d")
        + b"\x0d\x00\x02\x0b\x0b" + struct.pack(">i", 1) + struct.pack(">i", 1) + b"s"
        + struct.pack(">i", 1) + b"h"
        + b"\x0d\x00\x03\x0f\x0c" + struct.pack(">i", 1) + ends + node
        + b"\0"
    )  # fmt: skip
    decoded = codec.decode_assignment("/p", raw)
    assert decoded == Assignment("d", {"s": "h"}, {Executor(3, 4): WorkerSlot("s", 6700)})


def test_the_end_of_its_sources_is_read_without_the_rest_of_a_heartbeat() -> None:
    beat = WorkerHeartbeat("wc-1-17", {Executor(1, 1): SPOUT}, 17, 60, rest_ms=2**40, says_end=True)
    read = codec.decode_worker_end
    assert read("/p", codec.encode_heartbeat(beat)) == WorkerEnd(2**40, says_end=True)
    older = codec.encode_heartbeat(replace(beat, rest_ms=None, says_end=False))
    assert read("/p", older) == WorkerEnd(None, says_end=False)
    with pytest.raises(codec.CorruptStateError):
        read("/p", codec.zip_bytes(b"\x0b\x00"))


def test_whether_a_worker_has_drained_is_read_without_its_statistics() -> None:
    drained = WorkerDrained(2**40, "9-1", 12)
    beat = WorkerHeartbeat("wc-1-17", {Executor(1, 1): SPOUT}, 17, 60, drained)
    data = codec.encode_heartbeat(beat)
    assert codec.decode_drained("/p", data) == drained
    busy = codec.encode_heartbeat(replace(beat, drained=None))
    assert codec.decode_drained("/p", busy) is None
    with pytest.raises(codec.CorruptStateError):
        codec.decode_drained("/p", codec.zip_bytes(b"\x0b\x00"))


def test_a_heartbeat_of_storm_2_has_its_time_in_an_i32() -> None:
    stats = b"\x0d\x00\x02\x0c\x0c" + struct.pack(">i", 0)
    raw = _string(1, "wc") + stats + _i32(3, 17) + _i32(4, 5) + b"\0"
    assert codec.decode_heartbeat("/p", raw) == WorkerHeartbeat("wc", {}, 17, 5)


def test_unknown_fields_are_skipped() -> None:
    raw = _string(1, "boom") + _i32(2, 17) + _i64(99, 1) + b"\0"
    assert codec.decode_error("/p", raw) == ErrorInfo("boom", 17)


# What cannot be read


@pytest.mark.parametrize(("encode", "decode", "value"), VALUES)
def test_a_cut_value_names_its_path(encode: Encode, decode: Decode, value: Any) -> None:
    data = encode(value)
    for end in {0, 1, len(data) // 2, len(data) - 1}:
        with pytest.raises(CorruptStateError, match="/storms/wc-1") as caught:
            decode("/storms/wc-1", data[:end])
        assert caught.value.path == "/storms/wc-1"
        assert caught.value.hint is not None


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "StormBase"),
        (b"not thrift at all", "StormBase"),
        (b"\x0b\x00\x01\x7f\xff\xff\xffabc", "StormBase"),
        (b"\x1f\x8bnot gzip", "damaged gzip"),
        # mtime: the bytes name the test, and every process must collect the same ones.
        (gzip.compress(b"x" * 1000, mtime=0)[:20], "ends too early|damaged"),
        (gzip.decompress(codec.encode_error(ErrorInfo("", 0))) + b"more", "StormBase"),
    ],
)
def test_damaged_bytes_raise_and_say_why(data: bytes, why: str) -> None:
    with pytest.raises(CorruptStateError, match=why):
        codec.decode_storm_base("/p", data)


def test_a_gzip_bomb_is_refused() -> None:
    bomb = gzip.compress(bytes(UNZIPPED_BYTES_MAX + 1))
    assert len(bomb) < 100_000
    with pytest.raises(CorruptStateError, match="more than"):
        codec.decode_storm_base("/p", bomb)


@pytest.mark.parametrize("ends", [(1,), (1, 2, 3), (4, 3), (-1, -1)])
def test_an_executor_without_its_two_ends_is_corrupt(ends: tuple[int, ...]) -> None:
    node = storm.NodeInfo(node="s", port={1})
    raw = to_bytes(storm.Assignment(master_code_dir="d", executor_node_port={ends: node}))
    with pytest.raises(CorruptStateError, match="is not an executor"):
        codec.decode_assignment("/p", raw)


def test_a_slot_without_a_port_is_corrupt() -> None:
    node = storm.NodeInfo(node="s", port=set())
    raw = to_bytes(storm.Assignment(master_code_dir="d", executor_node_port={(1, 1): node}))
    with pytest.raises(CorruptStateError, match="has 0 ports"):
        codec.decode_assignment("/p", raw)


def test_a_value_that_does_not_fit_is_refused() -> None:
    with pytest.raises(ValueError, match="time"):
        codec.encode_error(ErrorInfo("boom", 2**31))


# Other things


def test_credentials_are_not_shown() -> None:
    assert "hunter2" not in repr(Credentials({"password": "hunter2"}))


def test_what_nimbus_answers_comes_from_the_same_functions() -> None:
    assert convert.to_executor_stats(SPOUT).specific.spout is not None
    assert convert.from_executor_stats(convert.to_executor_stats(BOLT)) == BOLT
