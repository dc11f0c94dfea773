"""Structs and their bytes."""

import struct
import time
import tracemalloc
from typing import Any

import pytest

from squall_thrift import codec, storm
from squall_thrift.protocol import scan
from squall_thrift.wire import EncodeError, ProtocolError


def text(value: str) -> bytes:
    return struct.pack(">i", len(value)) + value.encode()


def field(wire_type: int, field_id: int, value: bytes) -> bytes:
    return struct.pack(">Bh", wire_type, field_id) + value


def test_struct_in_literal_bytes() -> None:
    """NodeInfo: 1 string node, 2 set<i64> port."""
    data = (
        b"\x0b\x00\x01\x00\x00\x00\x03sup"
        b"\x0e\x00\x02\x0a\x00\x00\x00\x01\x00\x00\x00\x00\x00\x00\x1a\x2c"
        b"\x00"
    )
    value = storm.NodeInfo(node="sup", port={6700})
    assert codec.to_bytes(value) == data
    assert codec.from_bytes(storm.NodeInfo, data) == value


def test_assignment_with_lists_as_keys_in_literal_bytes() -> None:
    data = (
        b"\x0b\x00\x01\x00\x00\x00\x01d"
        b"\x0d\x00\x02\x0b\x0b\x00\x00\x00\x00"
        b"\x0d\x00\x03\x0f\x0c\x00\x00\x00\x01"
        b"\x0a\x00\x00\x00\x02" + struct.pack(">qq", 3, 4) + b"\x0b\x00\x01\x00\x00\x00\x01n"
        b"\x0e\x00\x02\x0a\x00\x00\x00\x01" + struct.pack(">q", 6700) + b"\x00"
        b"\x0d\x00\x04\x0f\x0a\x00\x00\x00\x00"
        b"\x0d\x00\x05\x0c\x0c\x00\x00\x00\x00"
        b"\x0d\x00\x06\x0b\x04\x00\x00\x00\x00"
        b"\x00"
    )
    value = storm.Assignment(
        master_code_dir="d", executor_node_port={(3, 4): storm.NodeInfo("n", {6700})}
    )
    assert codec.to_bytes(value) == data
    read = codec.from_bytes(storm.Assignment, data)
    assert read == value
    assert read.executor_node_port[3, 4].port == {6700}


def test_structs_are_keys_by_value() -> None:
    inputs = {
        storm.GlobalStreamId("words", "default"): storm.Grouping(fields=["word"]),
        storm.GlobalStreamId("words", "errors"): storm.Grouping(all=storm.NullStruct()),
    }
    common = storm.ComponentCommon(inputs=inputs, streams={})
    read = codec.from_bytes(storm.ComponentCommon, codec.to_bytes(common))
    assert read.inputs[storm.GlobalStreamId("words", "default")].fields == ["word"]
    assert read.inputs[storm.GlobalStreamId("words", "errors")].all == storm.NullStruct()
    node = storm.NodeInfo("n", {6700, 6701})
    assert {node: 1}[storm.NodeInfo("n", {6701, 6700})] == 1
    assert storm.NodeInfo("n", {1}) != storm.LSSupervisorId("n")


def test_defaults_are_not_shared() -> None:
    one, other = storm.Assignment("a"), storm.Assignment("b")
    one.node_host["n"] = "host"
    assert other.node_host == {}
    data = field(11, 1, text("a")) + b"\0"
    read, again = (codec.from_bytes(storm.Assignment, data) for _ in range(2))
    read.node_host["n"] = "host"
    assert again.node_host == {}


@pytest.mark.parametrize(
    ("wire_type", "packed"), [(8, struct.pack(">i", 1700)), (10, struct.pack(">q", 1700))]
)
def test_time_secs_is_read_by_the_type_on_the_wire(wire_type: int, packed: bytes) -> None:
    """Storm 2 sends an i32, Storm 3 an i64."""
    data = (
        field(11, 1, text("wc-1-2"))
        + field(13, 2, b"\x0c\x0c\x00\x00\x00\x00")
        + field(wire_type, 3, packed)
        + field(8, 4, struct.pack(">i", 9))
        + b"\0"
    )
    beat = codec.from_bytes(storm.ClusterWorkerHeartbeat, data)
    assert (beat.time_secs, beat.uptime_secs) == (1700, 9)


def test_list_of_i32_is_read_where_i64_is_declared() -> None:
    data = (
        field(11, 1, text("n")) + field(14, 2, b"\x08" + struct.pack(">iii", 2, 6700, 6701)) + b"\0"
    )
    assert codec.from_bytes(storm.NodeInfo, data).port == {6700, 6701}


def test_i64_beyond_i32_is_refused_where_i32_is_declared() -> None:
    data = field(10, 1, struct.pack(">q", 2**31)) + b"\0"
    with pytest.raises(ProtocolError, match="2147483648 does not fit into the i32"):
        codec.from_bytes(storm.KillOptions, data)
    data = field(10, 1, struct.pack(">q", 30)) + b"\0"
    assert codec.from_bytes(storm.KillOptions, data).wait_secs == 30


def test_unknown_fields_are_skipped() -> None:
    unknown = b"".join(
        [
            field(2, 900, b"\x01"),
            field(12, 901, field(11, 1, text("x")) + b"\0"),
            field(
                13, 902, b"\x0b\x0f\x00\x00\x00\x01" + text("k") + b"\x02\x00\x00\x00\x02\x00\x01"
            ),
            field(4, -3, struct.pack(">d", 1.5)),
        ]
    )
    known = field(11, 1, text("c")) + field(11, 2, text("s"))
    read = codec.from_bytes(storm.GlobalStreamId, unknown + known + unknown + b"\0")
    assert read == storm.GlobalStreamId("c", "s")


def test_field_of_another_type_is_skipped_as_unknown() -> None:
    data = field(11, 1, text("30")) + b"\0"
    assert codec.from_bytes(storm.KillOptions, data) == storm.KillOptions()


def test_empty_container_may_leave_its_types_out() -> None:
    data = (field(13, 1, b"\0\0" + bytes(4)) + field(13, 2, b"\0\0" + bytes(4))) + field(
        13, 3, b"\0\0" + bytes(4)
    )
    topology = codec.from_bytes(storm.StormTopology, data + b"\0")
    assert topology == storm.StormTopology(spouts={}, bolts={}, state_spouts={})


def test_container_of_other_elements_is_refused() -> None:
    data = field(15, 1, b"\x0b\x00\x00\x00\x01" + text("x")) + b"\0"
    with pytest.raises(ProtocolError, match="holds string where struct is declared"):
        codec.from_bytes(storm.WorkerMetricList, data)


def test_unknown_enum_value_counts_as_absent() -> None:
    """As in Storm, whose Java reads it as null."""
    known = field(8, 2, struct.pack(">i", 2))
    unknown = field(8, 2, struct.pack(">i", 77))
    base = field(11, 1, text("wc")) + field(8, 3, struct.pack(">i", 1))
    assert codec.from_bytes(storm.StormBase, base + known + b"\0").status is (
        storm.TopologyStatus.INACTIVE
    )
    with pytest.raises(ProtocolError, match="StormBase lacks its required field 'status'"):
        codec.from_bytes(storm.StormBase, base + unknown + b"\0")
    previous = field(8, 8, struct.pack(">i", 77))
    assert codec.from_bytes(storm.StormBase, base + known + previous + b"\0").prev_status is None


def test_missing_required_field_is_refused_on_decode() -> None:
    with pytest.raises(ProtocolError, match="lacks its required field 'streamId'") as info:
        codec.from_bytes(storm.GlobalStreamId, field(11, 1, text("c")) + b"\0")
    assert info.value.offset == 0


@pytest.mark.parametrize("data", [b"\0", field(11, 1, text("p")) + field(2, 3, b"\1") + b"\0"])
def test_union_has_exactly_one_field(data: bytes) -> None:
    with pytest.raises(ProtocolError, match="union HBMessageData does not have exactly one field"):
        codec.from_bytes(storm.HBMessageData, data)


def test_text_that_is_not_utf8_is_refused() -> None:
    data = field(11, 1, b"\x00\x00\x00\x02\xc3\x28") + b"\0"
    with pytest.raises(ProtocolError, match="not UTF-8") as info:
        codec.from_bytes(storm.LSSupervisorId, data)
    assert info.value.offset == 7


def test_binary_is_any_bytes() -> None:
    value = storm.ThriftSerializedObject(name="n", bits=bytes(range(256)))
    assert codec.from_bytes(storm.ThriftSerializedObject, codec.to_bytes(value)) == value


def test_bytes_after_the_struct_are_refused() -> None:
    with pytest.raises(ProtocolError, match="2 bytes follow the struct") as info:
        codec.from_bytes(storm.KillOptions, b"\0\0\0")
    assert info.value.offset == 1


_TOPOLOGY: dict[str, Any] = {"spouts": {}, "bolts": {}, "state_spouts": {}}


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (storm.GlobalStreamId("c", None), "GlobalStreamId.streamId: a required field is not set"),  # type: ignore[arg-type]
        (
            storm.StormTopology(
                **_TOPOLOGY
                | {"bolts": {"b": storm.Bolt(storm.ComponentObject(serialized_java=b""), None)}}  # type: ignore[arg-type]
            ),
            "StormTopology.bolts['b'].common: a required field is not set",
        ),
        (storm.KillOptions(2**31), "KillOptions.wait_secs: 2147483648 does not fit into an i32"),
        (storm.KillOptions("1"), "KillOptions.wait_secs: '1' (str) should be i32"),  # type: ignore[arg-type]
        (storm.LSSupervisorId(b"x"), "LSSupervisorId.supervisor_id: b'x' (bytes) should be str"),  # type: ignore[arg-type]
        (
            storm.LSSupervisorId("\udc80"),
            "LSSupervisorId.supervisor_id: the text cannot be written as UTF-8: "
            "surrogates not allowed",
        ),
        (storm.HBPulse("i", "x"), "HBPulse.details: 'x' (str) should be bytes"),  # type: ignore[arg-type]
        (storm.StreamInfo(["a"], 1), "StreamInfo.direct: 1 (int) should be bool"),  # type: ignore[arg-type]
        (storm.StreamInfo("ab", True), "StreamInfo.output_fields: 'ab' (str) should be list"),  # type: ignore[arg-type]
        (storm.StreamInfo(["a", 2], True), "StreamInfo.output_fields[]: 2 (int) should be str"),  # type: ignore[list-item]
        (storm.Credentials([]), "Credentials.creds: [] (list) should be dict"),  # type: ignore[arg-type]
        (
            storm.SubmitOptions(7),
            "SubmitOptions.initial_status: 7 (int) should be TopologyInitialStatus",
        ),  # type: ignore[arg-type]
        (storm.DebugOptions(True, "x"), "DebugOptions.samplingpct: 'x' (str) should be double"),  # type: ignore[arg-type]
        (
            storm.ProfileRequest(storm.LSSupervisorId("n"), storm.ProfileAction.JMAP_DUMP),  # type: ignore[arg-type]
            "ProfileRequest.nodeInfo: LSSupervisorId(supervisor_id='n') (LSSupervisorId) "
            "should be NodeInfo",
        ),
        (storm.Grouping(), "Grouping: union Grouping has 0 fields set, not exactly one"),
        (
            storm.Grouping(fields=[], all=storm.NullStruct()),
            "Grouping: union Grouping has 2 fields set, not exactly one",
        ),
    ],
)
def test_an_encode_error_names_the_field(value: object, message: str) -> None:
    with pytest.raises(EncodeError) as info:
        codec.to_bytes(value)
    assert str(info.value) == message


def test_only_structs_have_bytes() -> None:
    with pytest.raises(TypeError, match="is not a struct of the Thrift interface"):
        codec.to_bytes("x")
    with pytest.raises(TypeError, match="is not a struct of the Thrift interface"):
        codec.from_bytes(str, b"\0")


# Hostile input. The structs are read as StormTopology unless said otherwise.

_STRING = b"\x0b\x00\x07"  # StormTopology.storm_version
_LIST = b"\x0f\x00\x05"  # dependency_jars, list<string>
_MAP = b"\x0d\x00\x02"  # bolts
_UNKNOWN = b"\x03\xe7"
_CLAIMS = [b"\x7f\xff\xff\xff", b"\xff\xff\xff\xff", b"\x80\x00\x00\x00", b"\x00\x00\x0f\xa0"]


def nested(wire_type: int, depth: int, inner: bytes) -> bytes:
    """A field of lists, sets, maps or structs within each other."""
    if wire_type == 12:
        return b"\x0c" + _UNKNOWN + b"\x0c\x00\x01" * (depth - 1) + inner
    if wire_type == 13:  # as the key
        return b"\x0d" + _UNKNOWN + b"\x0d\x02\x00\x00\x00\x01" * (depth - 1) + inner
    head = bytes([wire_type])
    return head + _UNKNOWN + (head + b"\x00\x00\x00\x01") * (depth - 1) + inner


BOMBS = {
    **{f"string {c.hex()}": _STRING + c + b"abc" for c in _CLAIMS},
    **{f"unknown string {c.hex()}": b"\x0b" + _UNKNOWN + c + b"abc" for c in _CLAIMS},
    **{f"list of strings {c.hex()}": _LIST + b"\x0b" + c for c in _CLAIMS},
    **{f"map {c.hex()}": _MAP + b"\x0b\x0c" + c + b"\0" for c in _CLAIMS},
    **{
        f"unknown list of type {t} {c.hex()}": b"\x0f" + _UNKNOWN + bytes([t]) + c + bytes(4)
        for c in _CLAIMS
        for t in (2, 3, 4, 6, 8, 10, 11, 12, 13, 14, 15)
    },
    **{
        f"unknown set of type {t}": b"\x0e" + _UNKNOWN + bytes([t]) + b"\x7f\xff\xff\xff" + bytes(9)
        for t in (2, 12)
    },
    **{
        f"unknown map {k} {v}": b"\x0d" + _UNKNOWN + bytes([k, v]) + b"\x7f\xff\xff\xff" + bytes(9)
        for k, v in ((2, 2), (12, 12), (11, 2), (2, 13))
    },
    "list of a type that is none": _LIST + b"\x63\x00\x00\x00\x01\x00",
    "list of stop": _LIST + b"\x00\x7f\xff\xff\xff",
    "list of void": _LIST + b"\x01\x7f\xff\xff\xff",
    "field of a type that is none": b"\x63" + _UNKNOWN + b"\x00",
    "empty": b"",
    "field cut in its head": b"\x0b\x00",
    "string cut in its length": _STRING + b"\x00\x00",
    "list cut in its head": _LIST + b"\x0b\x00",
    "map cut in its head": _MAP + b"\x0b\x0c\x00\x00",
    "i64 cut": b"\x0a" + _UNKNOWN + b"\x00" * 7,
    "no stop": _STRING + b"\x00\x00\x00\x01a",
    **{
        f"nesting of type {t} to {d}": nested(t, d, b"")
        for t in (12, 13, 14, 15)
        for d in (500, 300_000)
    },
    "many empty structs": b"\x0f" + _UNKNOWN + b"\x0c" + struct.pack(">i", 2_000_000)
    + bytes(2_000_001),
    "many empty structs in many lists": b"\x0f" + _UNKNOWN + b"\x0f" + struct.pack(">i", 1000)
    + (b"\x0c" + struct.pack(">i", 1000) + bytes(1000)) * 1000 + b"\0",
    "many empty structs in a map": b"\x0d" + _UNKNOWN + b"\x02\x0c" + struct.pack(">i", 900_000)
    + bytes(1_800_001),
    "many empty structs that are declared": b"\x0f\x00\x04\x0c" + struct.pack(">i", 1_000_000)
    + bytes(1_000_001),
}  # fmt: skip


@pytest.mark.parametrize("name", BOMBS)
def test_a_bomb_is_refused_cheaply(name: str) -> None:
    data = BOMBS[name]
    tracemalloc.start()
    try:
        with pytest.raises(ProtocolError):
            codec.from_bytes(storm.StormTopology, data)
        allocated = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert allocated < 100_000
    started = time.process_time()
    with pytest.raises(ProtocolError):
        codec.from_bytes(storm.StormTopology, data)
    assert time.process_time() - started < 0.2


@pytest.mark.parametrize(
    ("data", "reason", "offset"),
    [
        (_LIST + b"\x0b\x00\x00\x00\x09abcd", "9 elements are claimed where 4 bytes are left", 8),
        (b"\x0f" + _UNKNOWN + b"\x0a\0\0\0\2" + bytes(15), "2 elements are claimed where 15", 8),
        (_MAP + b"\x0b\x0c\xff\xff\xff\xff\0", "-1 elements are claimed where 1 bytes", 9),
        (_STRING + b"\0\0\0\4abc", "a string of 4 bytes is claimed where 3 are left", 3),
        (b"\x0a" + _UNKNOWN + bytes(7), "the data ends within this value: i64", 10),
        (b"\x63" + _UNKNOWN + b"\0", "type 99 does not exist", 3),
    ],
)
def test_a_refusal_says_what_is_wrong_and_where(data: bytes, reason: str, offset: int) -> None:
    with pytest.raises(ProtocolError) as info:
        codec.from_bytes(storm.StormTopology, data)
    assert info.value.reason.startswith(reason)
    assert info.value.offset == offset


def test_honest_struct_of_the_smallest_elements_is_accepted() -> None:
    """The bound on elements refuses no container of strings, however short."""
    many = storm.StormTopology(**_TOPOLOGY, dependency_jars=[""] * 200_000)
    assert codec.from_bytes(storm.StormTopology, codec.to_bytes(many)) == many
    options = {chr(0x4E00 + i): storm.DebugOptions() for i in range(20_000)}
    info = storm.TopologyInfo("i", "n", 1, [], "ACTIVE", {}, component_debug=options)
    assert codec.from_bytes(storm.TopologyInfo, codec.to_bytes(info)) == info


def test_nesting_up_to_the_limit_is_skipped() -> None:
    data = field(12, 900, b"\x0c\x00\x01" * 62 + b"\0" * 63) + b"\0"
    assert codec.from_bytes(storm.KillOptions, data) == storm.KillOptions()
    deeper = field(12, 900, b"\x0c\x00\x01" * 63 + b"\0" * 64) + b"\0"
    with pytest.raises(ProtocolError, match="nest deeper than 64"):
        scan.scan_struct(deeper)
