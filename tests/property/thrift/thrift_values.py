"""Hypothesis strategies for everything that the Thrift interface declares."""

import functools
import struct
from typing import Any

from hypothesis import strategies as st

from squall_thrift import idl, storm, wire

_BITS = {wire.BYTE: 8, wire.I16: 16, wire.I32: 32, wire.I64: 64}

STRUCTS = list(storm.INTERFACE.structs.values())
ALL = STRUCTS + [
    spec
    for service in storm.INTERFACE.services.values()
    for method in service.methods.values()
    for spec in (method.args, method.result)
]


def structs(spec: idl.StructSpec) -> st.SearchStrategy[Any]:
    """Valid structs of one declaration."""
    return _structs(spec.cls)


@functools.cache
def _structs(cls: Any) -> st.SearchStrategy[Any]:
    spec = idl.spec_of(cls)
    if spec.kind is idl.Kind.UNION:
        return st.one_of(
            st.builds(cls, **{field.name: values(field.type)}) for field in spec.fields
        )
    # An optional field with a default is always there: left out, it would come back as the default.
    fields = {
        field.name: values(field.type)
        if field.required or field.default is not None
        else st.none() | values(field.type)
        for field in spec.fields
    }
    return st.builds(cls, **fields)


def values(type_: idl.Type, *, key: bool = False) -> st.SearchStrategy[Any]:
    """Values of a declared type; as a map's key or set's element when `key`."""
    match type_:
        case idl.Scalar(wire.BOOL):
            return st.booleans()
        case idl.Scalar(wire.DOUBLE):
            return st.floats(allow_nan=False)
        case idl.Scalar(wire_type):
            bits = _BITS[wire_type]
            return st.integers(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
        case idl.Text():
            return st.text(st.characters(codec="utf-8"), max_size=8)
        case idl.Binary():
            return st.binary(max_size=8)
        case idl.Enumeration(enum):
            return st.sampled_from(list(enum))
        case idl.Struct(cls):
            return _structs(cls)
        case idl.List(element):
            lists = st.lists(values(element, key=key), max_size=3)
            return lists.map(tuple) if key else lists
        case idl.Set(element):
            sets = st.sets(values(element, key=True), max_size=3)
            return sets.map(frozenset) if key else sets
        case idl.Map(map_key, value):
            return st.dictionaries(values(map_key, key=True), values(value), max_size=3)


# Any value of the binary protocol, whatever is declared: (type, bytes).

_SCALARS = st.one_of(
    st.booleans().map(lambda v: (wire.BOOL, bytes([v]))),
    st.integers(-128, 127).map(lambda v: (wire.BYTE, struct.pack(">b", v))),
    st.floats(allow_nan=False).map(lambda v: (wire.DOUBLE, struct.pack(">d", v))),
    st.integers(-(2**15), 2**15 - 1).map(lambda v: (wire.I16, struct.pack(">h", v))),
    st.integers(-(2**31), 2**31 - 1).map(lambda v: (wire.I32, struct.pack(">i", v))),
    st.integers(-(2**63), 2**63 - 1).map(lambda v: (wire.I64, struct.pack(">q", v))),
    st.binary(max_size=6).map(lambda v: (wire.STRING, struct.pack(">i", len(v)) + v)),
)

_field_ids = st.integers(-(2**15), 2**15 - 1)


def _struct(fields: list[tuple[int, tuple[int, bytes]]]) -> tuple[int, bytes]:
    body = b"".join(struct.pack(">Bh", t, field_id) + data for field_id, (t, data) in fields)
    return wire.STRUCT, body + b"\0"


def _list(kind: int, items: list[tuple[int, bytes]]) -> tuple[int, bytes]:
    same = [item for item in items if item[0] == items[0][0]]
    wire_type = same[0][0] if same else wire.STRING
    return kind, struct.pack(">Bi", wire_type, len(same)) + b"".join(data for _, data in same)


def _map(items: list[tuple[tuple[int, bytes], tuple[int, bytes]]]) -> tuple[int, bytes]:
    kinds = [(key[0], value[0]) for key, value in items]
    same = [item for item, kind in zip(items, kinds, strict=True) if kind == kinds[0]]
    key_type, value_type = kinds[0] if kinds else (wire.STRING, wire.STRING)
    body = b"".join(key[1] + value[1] for key, value in same)
    return wire.MAP, struct.pack(">BBi", key_type, value_type, len(same)) + body


any_values: st.SearchStrategy[tuple[int, bytes]] = st.recursive(
    _SCALARS,
    lambda inner: st.one_of(
        st.lists(st.tuples(_field_ids, inner), max_size=4).map(_struct),
        st.lists(inner, max_size=4).map(lambda items: _list(wire.LIST, items)),
        st.lists(inner, max_size=4).map(lambda items: _list(wire.SET, items)),
        st.lists(st.tuples(inner, inner), max_size=3).map(_map),
    ),
    max_leaves=12,
)

any_structs: st.SearchStrategy[bytes] = st.lists(
    st.tuples(st.integers(0, 20) | _field_ids, any_values), max_size=6
).map(lambda fields: _struct(fields)[1])
