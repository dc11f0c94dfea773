"""The format of a section, declared once. `sections` says what the parts mean.

The Python core packs and unpacks with these structs. The compiled core gets the same declarations
as C: `hatch_build.py` writes what `cython()` returns to `wire_format.pxi` when it compiles
`compiled.pyx`, which includes it. The file is not checked in, so it cannot be out of date, and a
compiled module knows itself by the hash of this file as well as of its own source.

The build loads this file by its path, without Squall: it imports the standard library alone.
"""

from __future__ import annotations

import enum
import struct


class Kind(enum.IntEnum):
    """The first byte of a section."""

    TUPLES = 1
    ACKS = 2
    FAILS = 3
    RESETS = 4
    DONE = 5
    FAILED = 6
    RESET = 7
    NOTES = 16
    KILLED = 17
    TRACES = 18
    METRICS = 19
    EPOCHS = 20


class Flag(enum.IntFlag):
    """The second byte of a TUPLES section: which parts it has."""

    SAME_TASK = 1
    ANCHORED = 2
    SEVERAL_ROOTS = 4
    SEVERAL_SOURCES = 8
    COLUMNS = 16


class ColumnKind(enum.IntEnum):
    """What a column of a section holds."""

    VALUES = 0  # msgpack [[value ...]], a row of all values
    INT = 1
    FLOAT = 2
    BOOL = 3
    STR = 4
    BYTES = 5


UNANCHORED = 0  # root of a tuple that belongs to no tree: nobody waits for it
MANY = 1  # root of a tuple that belongs to several: look at `anchors`. (No root is this small.)
# The low bits of a root are the index of its acker among the topology's acker tasks.
ACKER_INDEX_BITS = 16

# Numbers after the head, as codes of `struct`; all are little-endian.
ID = ROOT = XOR = "Q"
TASK = "i"
SIZE = "I"  # of a part, in bytes
FIELDS = "H"  # number of columns

_C_TYPES = {"B": "uint8_t", "H": "uint16_t", "i": "int32_t", "I": "uint32_t", "Q": "uint64_t"}

# A section of fewer tuples has rows, because the heads of columns would cost more.
COLUMN_ROWS_MIN = 8
FIELDS_MAX = 0xFFFF


class Head:
    """What a section, or a column in it, begins with: fields of fixed size without gaps."""

    def __init__(self, name: str, **fields: str) -> None:
        """`fields` are codes of `struct` by name; `name` is the struct's name in C."""
        self.name = name
        self.fields = fields
        self.struct = struct.Struct("<" + "".join(fields.values()))

    def cython(self) -> str:
        """As a packed C struct."""
        fields = "".join(f"    {_C_TYPES[code]} {name}\n" for name, code in self.fields.items())
        return f"cdef packed struct {self.name}:\n{fields}"


TUPLES_HEAD = Head("TuplesHead", kind="B", flags="B", source_task="i", stream_bytes="H", count="I")
ACKS_HEAD = Head("AcksHead", kind="B", flags="B", acker="I", acks="I", inits="I")
ROOTS_HEAD = Head("RootsHead", kind="B", flags="B", target="I", count="I")
COLUMN_HEAD = Head("ColumnHead", kind="B", width="B", size="I")
_HEADS = (TUPLES_HEAD, ACKS_HEAD, ROOTS_HEAD, COLUMN_HEAD)
_NUMBERS = {"ID": ID, "ROOT": ROOT, "XOR": XOR, "TASK": TASK, "SIZE": SIZE, "FIELDS": FIELDS}


def cython() -> str:
    """These declarations for the compiled core."""
    numbers = {
        **{f"KIND_{kind.name}": int(kind) for kind in Kind},
        **{str(flag.name): int(flag) for flag in Flag},
        **{f"COLUMN_{kind.name}": int(kind) for kind in ColumnKind},
        "COLUMN_ROWS_MIN": COLUMN_ROWS_MIN,
        "FIELDS_MAX": FIELDS_MAX,
        "MANY": MANY,
        "ACKER_INDEX_BITS": ACKER_INDEX_BITS,
    }
    for name, code in _NUMBERS.items():
        numbers[f"{name}_BYTES"] = struct.calcsize("<" + code)
    for head in _HEADS:
        numbers[f"{head.name.removesuffix('Head').upper()}_HEAD_BYTES"] = head.struct.size
    constants = "".join(f"    {name} = {number}\n" for name, number in numbers.items())
    heads = "\n".join(head.cython() for head in _HEADS)
    return f"# Made of wire_format.py by the build.\n\ncdef enum:\n{constants}\n{heads}"
