"""The columns of a section, as bytes.

    H columns, then for each:  <B kind, B width, I size> and `size` bytes

    VALUES      msgpack [[value ...]], a row of all values (see `codec`): of mixed types, or of a
                type that is none of these
    INT         one signed integer of `width` bytes (1, 2, 4 or 8) for each row
    FLOAT       8 bytes (IEEE 754) for each row
    BOOL        one byte for each row, 0 or 1
    STR, BYTES  one length of `width` bytes (1, 2 or 4) for each row, then the bytes (of text:
                UTF-8). The greatest number that fits into a length means the value of the row
                before, which takes no bytes.

Each row of a column takes at least one byte, so a section cannot hold more rows than bytes,
whatever its head says. All values of a column are of exactly its kind. This is the reference; the
compiled core has the same in `cython/column_wire.pxi`.
"""

from __future__ import annotations

import struct
import sys
from array import array
from collections.abc import Callable, Sequence
from typing import Any

from squall_engine.core.codec import CodecError, ValueCodec
from squall_engine.core.wire_format import COLUMN_HEAD, FIELDS, ColumnKind

_HEAD = COLUMN_HEAD.struct
_FIELDS = struct.Struct("<" + FIELDS)
_SWAP = sys.byteorder == "big"
# Codes of `array` by width, and the bits of a value.
_SIGNED = {1: "b", 2: "h", 4: "i", 8: "q"}
_LENGTHS = {1: "B", 2: "H", 4: "I"}

_Encoded = tuple[ColumnKind, int, bytes]  # kind, width, payload


def encode_columns(columns: Sequence[Sequence[Any]], codec: ValueCodec) -> bytes:
    """Columns of one length, at least one row, at most FIELDS_MAX columns. Raises
    ValueNotEncodableError when some value cannot travel."""
    parts = [_FIELDS.pack(len(columns))]
    for column in columns:
        kind, width, payload = _encode(column) or (
            ColumnKind.VALUES,
            0,
            codec.encode_rows([column]),
        )
        parts += (_HEAD.pack(kind, width, len(payload)), payload)
    return b"".join(parts)


def decode_columns(data: memoryview, rows: int, codec: ValueCodec) -> list[list[Any]]:
    """The inverse, for so many rows. Raises CodecError."""
    if rows == 0:
        raise CodecError("a section has columns without rows")
    try:
        (count,) = _FIELDS.unpack_from(data)
        at = _FIELDS.size
        columns = []
        for _ in range(count):
            kind, width, size = _HEAD.unpack_from(data, at)
            at += _HEAD.size
            if size > len(data) - at:
                raise CodecError("a column ends after its section")
            columns.append(_decode(kind, width, data[at : at + size], rows, codec))
            at += size
    except CodecError:
        raise
    except (struct.error, ValueError) as error:
        raise CodecError(f"columns that cannot be decoded: {error}") from error
    if at != len(data):
        raise CodecError(f"a section has {len(data) - at} surplus bytes")
    if not columns:
        raise CodecError("a section has rows without columns")
    return columns


def _encode(column: Sequence[Any]) -> _Encoded | None:
    """A column of one type that has a kind; None: any other."""
    (cls, *others) = set(map(type, column))
    encode = _ENCODERS.get(cls)
    return None if others or encode is None else encode(column)


def _encode_ints(column: Sequence[int]) -> _Encoded | None:
    least, greatest = min(column), max(column)
    for width, code in _SIGNED.items():
        bound = 1 << (8 * width - 1)
        if -bound <= least and greatest < bound:
            return ColumnKind.INT, width, _bytes(array(code, column))
    return None


def _encode_floats(column: Sequence[float]) -> _Encoded:
    return ColumnKind.FLOAT, 8, _bytes(array("d", column))


def _encode_bools(column: Sequence[bool]) -> _Encoded:
    return ColumnKind.BOOL, 1, bytes(column)


def _encode_text(column: Sequence[str]) -> _Encoded | None:
    try:
        return _encode_pieces(ColumnKind.STR, [text.encode() for text in column])
    except UnicodeEncodeError:  # a lone surrogate
        return None


def _encode_bytes(column: Sequence[bytes]) -> _Encoded | None:
    return _encode_pieces(ColumnKind.BYTES, column)


def _encode_pieces(kind: ColumnKind, pieces: Sequence[bytes]) -> _Encoded | None:
    longest = max(map(len, pieces))
    width = next((width for width in _LENGTHS if longest < _repeated(width)), None)
    if width is None:
        return None
    repeated = _repeated(width)
    lengths = array(_LENGTHS[width])
    parts: list[bytes] = []
    last = None
    for piece in pieces:
        if piece == last:
            lengths.append(repeated)
        else:
            lengths.append(len(piece))
            parts.append(piece)
            last = piece
    return kind, width, _bytes(lengths) + b"".join(parts)


_ENCODERS: dict[type, Callable[[Sequence[Any]], _Encoded | None]] = {
    int: _encode_ints,
    float: _encode_floats,
    bool: _encode_bools,
    str: _encode_text,
    bytes: _encode_bytes,
}


def _decode(kind: int, width: int, data: memoryview, rows: int, codec: ValueCodec) -> list[Any]:
    if kind == ColumnKind.VALUES and width == 0:
        found = codec.decode_rows(data)
        if len(found) != 1 or len(found[0]) != rows:
            raise CodecError(f"a column of {rows} rows has other values")
        return found[0]
    if kind == ColumnKind.INT and width in _SIGNED:
        return _numbers(_SIGNED[width], data, rows)
    if kind == ColumnKind.FLOAT and width == 8:
        return _numbers("d", data, rows)
    if kind == ColumnKind.BOOL and width == 1:
        numbers = _numbers("B", data, rows)
        if max(numbers) > 1:
            raise CodecError("a truth value is neither 0 nor 1")
        return list(map(bool, numbers))
    if kind in (ColumnKind.STR, ColumnKind.BYTES) and width in _LENGTHS:
        return _pieces(kind == ColumnKind.STR, width, data, rows)
    raise CodecError(f"a column is of an unknown kind: {kind}, width {width}")


def _numbers(code: str, data: memoryview, rows: int) -> list[Any]:
    numbers = array(code)
    if len(data) != rows * numbers.itemsize:
        raise CodecError(f"a column of {rows} rows has {len(data)} bytes")
    numbers.frombytes(data)
    if _SWAP:
        numbers.byteswap()
    return numbers.tolist()


def _pieces(is_text: bool, width: int, data: memoryview, rows: int) -> list[Any]:
    at = rows * width
    lengths = _numbers(_LENGTHS[width], data[:at], rows)
    repeated = _repeated(width)
    values: list[Any] = []
    for length in lengths:
        if length == repeated and values:
            values.append(values[-1])
            continue
        if length == repeated or length > len(data) - at:
            raise CodecError(f"a column of {rows} rows has {len(data)} bytes")
        piece = bytes(data[at : at + length])
        values.append(piece.decode() if is_text else piece)
        at += length
    if at != len(data):
        raise CodecError(f"a column has {len(data) - at} surplus bytes")
    return values


def _repeated(width: int) -> int:
    """The length of a value that is the one of the row before."""
    return (1 << 8 * width) - 1


def _bytes(numbers: array[Any]) -> bytes:
    if _SWAP:
        numbers.byteswap()
    return numbers.tobytes()
