"""Properties of every struct and of any bytes."""

from typing import Any

import thriftpy2
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.property.thrift.thrift_values import ALL, STRUCTS, any_structs, structs
from tests.support.effort import examples
from thriftpy2.protocol.binary import TBinaryProtocol
from thriftpy2.transport import TMemoryBuffer

from squall_thrift import codec, idl, wire
from squall_thrift.protocol import decode, messages, scan
from squall_thrift.protocol.messages import ApplicationErrorType, MessageType
from squall_thrift.wire import ProtocolError

# Another load of the same file, with thriftpy2's own classes.
OTHER: Any = thriftpy2.load(str(idl.INTERFACE_FILE), module_name="property_peer_thrift")

spec_and_value = st.sampled_from(ALL).flatmap(lambda s: st.tuples(st.just(s), structs(s)))


def outcome(read: Any, *args: Any) -> Any:
    try:
        return read(*args)
    except ProtocolError:
        return ProtocolError


@given(spec_and_value)
@settings(max_examples=examples(100), deadline=None)
def test_a_struct_comes_back_as_it_was(case: tuple[idl.StructSpec, Any]) -> None:
    spec, value = case
    data = codec.to_bytes(value)
    read: Any = codec.from_bytes(spec.cls, data)
    assert read == value
    assert hash(read) == hash(value)
    assert codec.to_bytes(read) == data


@given(spec_and_value, st.binary(max_size=5), st.binary(max_size=5))
@settings(max_examples=examples(80), deadline=None)
def test_both_passes_end_where_the_struct_ends(
    case: tuple[idl.StructSpec, Any], before: bytes, after: bytes
) -> None:
    spec, value = case
    struct = codec.to_bytes(value)
    data = before + struct + after
    end = len(before) + len(struct)
    assert scan.scan_struct(data, len(before)) == end
    assert decode.struct_reader(spec.cls)(data, len(before)) == (value, end)


@given(spec_and_value, st.data())
@settings(max_examples=examples(100), deadline=None)
def test_a_struct_that_is_cut_short_is_refused(
    case: tuple[idl.StructSpec, Any], data: st.DataObject
) -> None:
    struct = codec.to_bytes(case[1])
    length = data.draw(st.integers(0, len(struct) - 1))
    assert outcome(scan.scan_struct, struct[:length]) is ProtocolError


@given(st.sampled_from(STRUCTS), any_structs)
@settings(max_examples=examples(160), deadline=None)
def test_what_the_scan_accepts_is_read_to_the_same_byte_or_refused(
    spec: idl.StructSpec, data: bytes
) -> None:
    """Well-formed bytes that hold anything: the decoder skips or refuses, and never strays."""
    assert scan.scan_struct(data + b"tail") == len(data)
    read = outcome(decode.struct_reader(spec.cls), data + b"tail", 0)
    assert read is ProtocolError or read[1] == len(data)


# Some bytes of a struct, told by where they are in it, and what they become.
damages = st.lists(
    st.tuples(
        st.integers(0, 2**16), st.integers(0, 255) | st.sampled_from([0, 11, 12, 13, 15, 127])
    ),
    min_size=1,
    max_size=3,
)


@given(spec_and_value, st.lists(damages, min_size=8, max_size=8))
@settings(max_examples=examples(100), deadline=None)
def test_damaged_bytes_are_refused_or_read_to_the_same_byte(
    case: tuple[idl.StructSpec, Any], tries: list[list[tuple[int, int]]]
) -> None:
    """No error but ProtocolError, whatever a few bytes became. (Drawing a struct takes the most
    time, so each is damaged in several ways.)"""
    spec, value = case
    whole = codec.to_bytes(value)
    for changes in tries:
        damaged = bytearray(whole)
        for at, byte in changes:
            damaged[at % len(whole)] = byte
        end = outcome(scan.scan_struct, bytes(damaged))
        if end is not ProtocolError:
            read = outcome(decode.struct_reader(spec.cls), bytes(damaged), 0)
            assert read is ProtocolError or read[1] == end


@given(st.sampled_from(ALL), st.binary(max_size=60))
@settings(max_examples=examples(160), deadline=None)
def test_any_bytes_give_a_struct_or_a_protocol_error(spec: idl.StructSpec, data: bytes) -> None:
    outcome(codec.from_bytes, spec.cls, data)
    outcome(messages.parse, data)


# thriftpy2 as the reference. It cannot make a list a key, and it reads sets as lists.


def _keys_are_lists(type_: idl.Type) -> bool:
    match type_:
        case idl.Map(key, value):
            return isinstance(key, idl.List) or _keys_are_lists(value)
        case idl.List(element) | idl.Set(element):
            return _keys_are_lists(element)
        case idl.Struct(cls):
            return any(_keys_are_lists(field.type) for field in idl.spec_of(cls).fields)
        case _:
            return False


READABLE = [s for s in STRUCTS if not any(_keys_are_lists(f.type) for f in s.fields)]


def plain(value: Any) -> Any:
    """A struct of either load as nested tuples, without unset fields."""
    if hasattr(value, "thrift_spec"):
        fields = sorted((f[1], getattr(value, f[1])) for f in value.thrift_spec.values())
        return (type(value).__name__, *((n, plain(v)) for n, v in fields if v is not None))
    if isinstance(value, dict):
        return {plain(key): plain(item) for key, item in value.items()}.items()
    if isinstance(value, set | frozenset):
        return sorted(map(plain, value))
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    return value


def comparable(value: Any) -> Any:
    """`plain` with the lists that were sets sorted too, as text."""
    return repr(_sorted(plain(value)))


def _sorted(value: Any) -> Any:
    if isinstance(value, tuple):
        return tuple(map(_sorted, value))
    if isinstance(value, list):
        return sorted(map(_sorted, value), key=repr)
    if hasattr(value, "mapping"):  # items of a dict
        return sorted(((_sorted(k), _sorted(v)) for k, v in value), key=repr)
    return int(value) if isinstance(value, int) and not isinstance(value, bool) else value


@given(st.sampled_from(READABLE).flatmap(structs))
@settings(max_examples=examples(100), deadline=None)
def test_thriftpy2_reads_what_is_written_here(value: Any) -> None:
    read = getattr(OTHER, type(value).__name__)()
    read.read(TBinaryProtocol(TMemoryBuffer(codec.to_bytes(value))))
    assert comparable(read) == comparable(value)


@given(st.sampled_from(STRUCTS).flatmap(structs))
@settings(max_examples=examples(100), deadline=None)
def test_thriftpy2_writes_what_is_read_here(value: Any) -> None:
    out = TMemoryBuffer()
    TBinaryProtocol(out).write_struct(value)
    assert codec.from_bytes(type(value), out.getvalue()) == value


@given(
    st.sampled_from(list(MessageType)),
    st.text(st.characters(codec="utf-8"), max_size=50),
    st.integers(-(2**31), 2**31 - 1),
    st.binary(max_size=10),
)
@settings(deadline=None)
def test_a_message_is_parsed_as_it_was_made(
    type_: MessageType, name: str, sequence_id: int, body: bytes
) -> None:
    data = messages.serialize(type_, name, sequence_id, body)
    parsed = messages.parse(data)
    assert (parsed.type, parsed.name, parsed.sequence_id) == (type_, name, sequence_id)
    assert data[parsed.body :] == body
    assert outcome(messages.parse, data[: parsed.body - 1]) is ProtocolError


@given(st.sampled_from(list(ApplicationErrorType)), st.text(max_size=30), any_structs)
@settings(deadline=None)
def test_an_application_error_is_parsed_as_it_was_made(
    type_: ApplicationErrorType, message: str, unknown: bytes
) -> None:
    message = message.encode("utf-8", "replace").decode()
    data = messages.serialize_application_error(messages.ThriftApplicationError(type_, message))
    error = messages.parse_application_error(b"x" + data, 1)
    assert (error.type, error.message) == (type_, message)
    messages.parse_application_error(unknown, 0)  # whatever the fields are
    assert data[-1] == wire.STOP
