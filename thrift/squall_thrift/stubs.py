"""Writes what follows from `storm.thrift`: `python -m squall_thrift.stubs`.

`storm_parsed.py` is what `storm` makes its classes from, `storm.pyi` is its stub for type checkers.
"""

from pathlib import Path

from squall_thrift import idl, parsed, wire

STUB_FILE = Path(__file__).with_name("storm.pyi")
PARSED_FILE = Path(__file__).with_name("storm_parsed.py")

_HEADER = '''\
"""Generated from storm.thrift by `python -m squall_thrift.stubs`: do not edit."""

import enum

from squall_thrift.idl import Interface, Service

INTERFACE: Interface
'''

_PARSED_HEADER = """\
# Generated from storm.thrift by `python -m squall_thrift.stubs`: do not edit.
# ruff: noqa
# fmt: off
"""

_SCALARS = {
    wire.BOOL: "bool", wire.BYTE: "int", wire.I16: "int", wire.I32: "int", wire.I64: "int",
    wire.DOUBLE: "float",
}  # fmt: skip


def stub_text(interface: idl.Interface) -> str:
    """Return the whole stub of an interface."""
    parts = [_HEADER]
    parts += [_enum(e) for e in interface.enums.values()]
    parts += [_struct(spec) for spec in interface.structs.values()]
    parts.append("\n" + "\n".join(f"{name}: Service" for name in interface.services) + "\n")
    return "".join(parts)


def _enum(enum: type) -> str:
    members = "".join(f"    {m.name} = {m.value}\n" for m in enum)  # type: ignore[attr-defined]
    return f"\nclass {enum.__name__}(enum.IntEnum):\n{members}"


def _struct(spec: idl.StructSpec) -> str:
    base = "(Exception)" if spec.kind is idl.Kind.EXCEPTION else ""
    if not spec.fields:
        return f"\nclass {spec.name}{base}:\n    def __init__(self) -> None: ...\n"
    attributes, arguments = [], []
    optional_seen = False
    for field in spec.fields:
        hint = type_hint(field.type)
        if not field.required and field.default is None:
            hint += " | None"
        attributes.append(f"    {field.name}: {hint}\n")
        # Python requires arguments with defaults to come last, so the stub lets a required one
        # after an optional one be left out (the codec refuses that).
        optional_seen = optional_seen or not field.required
        arguments.append(f"        {field.name}: {hint}{' = ...' if optional_seen else ''},\n")
    init = f"    def __init__(\n        self,\n{''.join(arguments)}    ) -> None: ...\n"
    return f"\nclass {spec.name}{base}:\n{''.join(attributes)}{init}"


def type_hint(type_: idl.Type, *, key: bool = False) -> str:
    """Return the Python type of a declared type; a list that is a map's key is a tuple."""
    match type_:
        case idl.Scalar(wire_type):
            return _SCALARS[wire_type]
        case idl.Text():
            return "str"
        case idl.Binary():
            return "bytes"
        case idl.Enumeration(enum):
            return enum.__name__
        case idl.Struct(cls):
            return str(cls.__name__)
        case idl.List(element):
            return f"tuple[{type_hint(element)}, ...]" if key else f"list[{type_hint(element)}]"
        case idl.Set(element):
            return f"set[{type_hint(element, key=True)}]"
        case idl.Map(map_key, value):
            return f"dict[{type_hint(map_key, key=True)}, {type_hint(value)}]"


def parsed_text() -> str:
    """Return the whole `storm_parsed.py`, from the interface file itself."""
    loaded = idl.parse(idl.INTERFACE_FILE, "squall_thrift.storm")
    return parsed.source_of(parsed.parsed_of(loaded), _PARSED_HEADER)


if __name__ == "__main__":
    PARSED_FILE.write_text(parsed_text(), encoding="utf-8")
    interface = idl.load(idl.INTERFACE_FILE, "squall_thrift.storm")
    STUB_FILE.write_text(stub_text(interface), encoding="utf-8")
