"""Values on the wire: msgpack, with extension types so that a value keeps its type.

msgpack has None, bool, 64-bit int, float, str, bytes, list and dict. Everything else is one of the
extensions of `Ext`, whose payload is msgpack again. Rows of plain values (nearly all there are) go
to msgspec as they are; a row with anything else is rewritten first.

`decode(encode(v))` gives an equal value of the same type, or `encode` raises ValueNotEncodable.
Pickle is written and read only when the topology turns it on (`topology.fall.back.on.pickle`).
"""

from __future__ import annotations

import dataclasses
import datetime as dt
import enum
import pickle
import uuid
import zoneinfo
from collections.abc import Callable, Iterable, Sequence
from decimal import Decimal
from itertools import chain
from pathlib import Path, PosixPath, PurePosixPath, PureWindowsPath, WindowsPath
from typing import Any, ClassVar

import msgspec

from squall_common.errors import describe
from squall_common.state.disk.rows import PlainRows
from squall_common.state.keyed import ALWAYS_STORED
from squall_common.state.task_state import RowPacker
from squall_common.topology.serialization import Registry, value_of_python
from squall_engine.core.known_classes import KnownClasses, loaded_class


class Ext:
    """Codes of the extension types. They are part of the wire format: never renumber. (Plain ints:
    msgspec refuses an IntEnum.)"""

    TUPLE = 1
    SET = 2
    FROZENSET = 3
    BIG_INT = 4
    DATETIME = 5
    DATE = 6
    TIME = 7
    TIMEDELTA = 8
    DECIMAL = 9
    UUID = 10
    DATACLASS = 11
    ENUM = 12
    NAMEDTUPLE = 13
    REGISTERED = 14
    PICKLE = 15
    SURROGATE_STR = 16
    BYTEARRAY = 17
    COMPLEX = 18
    PATH = 19
    DICT = 20  # a dict whose keys msgpack would not keep apart, as pairs
    PURE_POSIX_PATH = 21
    PURE_WINDOWS_PATH = 22


class CodecError(ValueError):
    """A value cannot be sent, or bytes cannot be decoded."""


class UndeliverableError(CodecError):
    """A tuple that was emitted cannot be sent to another worker. Has its `stream` and `values`."""

    def __init__(self, message: str, stream: str, values: Sequence[Any]) -> None:
        super().__init__(message)
        self.stream = stream
        self.values = values


class ValueNotEncodableError(CodecError):
    """`index` is the value's place in its row, `kind` its type's name; `reason` says what to do."""

    def __init__(self, index: int, kind: str, reason: str) -> None:
        super().__init__(f"a value of type {kind} cannot be sent to another worker: {reason}")
        self.index = index
        self.kind = kind
        self.reason = reason
        self.reason = reason


_SCALARS = frozenset({str, int, float, bool, bytes, type(None)})
_INT_MIN, _INT_MAX = -(2**63), 2**64 - 1
_MICROSECOND = dt.timedelta(microseconds=1)
_PATHS = (PosixPath, WindowsPath)  # of files: each becomes one of the host that gets it
_NO_REGISTRY = "make it a dataclass, or register its type (topology.kryo.register)"


class ValueCodec:
    """Encodes rows of values. One instance a topology; not for several threads at once."""

    # That of the chosen core, which imports this module: `squall_engine.core` sets it.
    packer: ClassVar[Callable[[int], RowPacker]]
    of_table: ClassVar[Callable[[int], PlainRows]]
    is_sure: ClassVar[Callable[[Any, frozenset[type]], bool]]
    merge: ClassVar[Callable[[list[bytes]], tuple[bytes, int] | None]]

    def __init__(
        self,
        registry: Registry | None = None,
        *,
        allow_pickle: bool = False,
        modules: Iterable[str] = (),
    ) -> None:
        """`modules`: those of the topology's components (`component_modules`)."""
        self._registry = registry or Registry()
        self._classes = KnownClasses(modules)
        self._field_names: dict[type, frozenset[str]] = {}  # of dataclasses
        self._allow_pickle = allow_pickle
        self._pack = msgspec.msgpack.Encoder().encode
        self._unpack = msgspec.msgpack.Decoder(ext_hook=self._from_ext).decode
        self._unpack_rows = msgspec.msgpack.Decoder(list[list[Any]], ext_hook=self._from_ext).decode
        self._to_ext: dict[type, Callable[[Any], msgspec.msgpack.Ext]] = {
            tuple: lambda v: self._ext(Ext.TUPLE, [self._plain(item) for item in v]),
            set: lambda v: self._ext(Ext.SET, self._sorted(v)),
            frozenset: lambda v: self._ext(Ext.FROZENSET, self._sorted(v)),
            dt.datetime: lambda v: self._ext(Ext.DATETIME, _datetime_to_plain(v)),
            dt.date: lambda v: self._ext(Ext.DATE, v.isoformat()),
            dt.time: lambda v: self._ext(Ext.TIME, _time_to_plain(v)),
            dt.timedelta: lambda v: self._ext(Ext.TIMEDELTA, _timedelta_to_plain(v)),
            Decimal: lambda v: self._ext(Ext.DECIMAL, str(v)),
            uuid.UUID: lambda v: msgspec.msgpack.Ext(Ext.UUID, v.bytes),
            bytearray: lambda v: msgspec.msgpack.Ext(Ext.BYTEARRAY, bytes(v)),
            complex: lambda v: self._ext(Ext.COMPLEX, [v.real, v.imag]),
            **dict.fromkeys(_PATHS, lambda v: self._ext(Ext.PATH, str(v))),
            PurePosixPath: lambda v: self._ext(Ext.PURE_POSIX_PATH, str(v)),
            PureWindowsPath: lambda v: self._ext(Ext.PURE_WINDOWS_PATH, str(v)),
        }
        self._from_plain: dict[int, Callable[[Any], Any]] = {
            Ext.TUPLE: tuple,
            Ext.SET: set,
            Ext.FROZENSET: frozenset,
            Ext.DATETIME: _datetime_from_plain,
            Ext.DATE: dt.date.fromisoformat,
            Ext.TIME: _time_from_plain,
            Ext.TIMEDELTA: lambda p: dt.timedelta(days=p[0], seconds=p[1], microseconds=p[2]),
            Ext.DECIMAL: Decimal,
            Ext.COMPLEX: lambda p: complex(p[0], p[1]),
            Ext.DATACLASS: self._dataclass_from_plain,
            Ext.ENUM: self._enum_from_plain,
            Ext.NAMEDTUPLE: self._namedtuple_from_plain,
            Ext.REGISTERED: self._registered_from_plain,
            Ext.PATH: Path,
            Ext.PURE_POSIX_PATH: PurePosixPath,
            Ext.PURE_WINDOWS_PATH: PureWindowsPath,
            Ext.DICT: dict,
        }

    def encode_rows(self, rows: Sequence[Sequence[Any]]) -> bytes:
        """Rows of values. Raises ValueNotEncodableError of some row: find the culprit with
        `encode_row`."""
        if _SCALARS.issuperset(map(type, chain.from_iterable(rows))):
            return self.encode_scalar_rows(rows)
        return self._pack([self._plain_row(row) for row in rows])

    def surely_encodes(self, value: Any) -> bool:
        """See `RowCodec`."""
        return ValueCodec.is_sure(value, ALWAYS_STORED)

    def group_packer(self, groups: int) -> RowPacker:
        """What encodes rows (key, value) of plain values by key group, as `encode_rows` does."""
        return ValueCodec.packer(groups)

    def merge_blocks(self, blocks: list[bytes]) -> tuple[bytes, int] | None:
        """See `RowCodec`."""
        return ValueCodec.merge(blocks)

    def table_rows(self, groups: int) -> PlainRows:
        """What reads and writes plain entries of a table on disk."""
        return ValueCodec.of_table(groups)

    def encode_scalar_rows(self, rows: Sequence[Sequence[Any]]) -> bytes:
        """Rows, lists or tuples, of values that are None, bool, int, float, str or bytes."""
        try:
            # A row may be a list or a tuple; both are arrays here and lists on arrival.
            return self._pack(rows)
        except (OverflowError, UnicodeEncodeError):  # a big int, or a lone surrogate
            return self._pack([self._plain_row(row) for row in rows])

    def decode_rows(self, data: bytes | memoryview) -> list[list[Any]]:
        """The inverse. Raises CodecError."""
        try:
            return self._unpack_rows(data)
        except CodecError:
            raise
        except Exception as error:
            raise CodecError(f"values that cannot be decoded: {describe(error)}") from error

    def encode_row(self, row: Sequence[Any]) -> bytes:
        """One row. Raises ValueNotEncodableError naming the value that cannot travel."""
        return self._pack(self._plain_row(row))

    def decode_row(self, data: bytes) -> list[Any]:
        """The inverse. Raises CodecError."""
        try:
            row: list[Any] = self._unpack(data)
        except CodecError:
            raise
        except Exception as error:
            raise CodecError(f"values that cannot be decoded: {error}") from error
        return row

    def _plain_row(self, row: Sequence[Any]) -> list[Any]:
        plain = []
        for index, value in enumerate(row):
            try:
                plain.append(self._plain(value))
            except RecursionError:
                reason = "it contains itself or is nested too deeply"
                raise ValueNotEncodableError(index, _path(type(value)), reason) from None
            except CodecError as error:
                # The culprit may lie deep inside: name both it and the value that holds it.
                kind = getattr(error, "kind", _path(type(value)))
                raise ValueNotEncodableError(
                    index, kind, getattr(error, "reason", str(error))
                ) from error
            except (ValueError, TypeError, AttributeError, OverflowError) as error:
                raise ValueNotEncodableError(index, _path(type(value)), str(error)) from error
        return plain

    def _plain(self, value: Any) -> Any:
        cls = type(value)
        if cls is str:
            try:
                value.encode()
            except UnicodeEncodeError:
                data = value.encode("utf-8", "surrogatepass")
                return msgspec.msgpack.Ext(Ext.SURROGATE_STR, data)
            return value
        if cls is int:
            if _INT_MIN <= value <= _INT_MAX:
                return value
            data = value.to_bytes(value.bit_length() // 8 + 1, "little", signed=True)
            return msgspec.msgpack.Ext(Ext.BIG_INT, data)
        if cls in _SCALARS:
            return value
        if cls is list:
            return [self._plain(item) for item in value]
        if cls is dict:
            return self._plain_dict(value)
        convert = self._to_ext.get(cls)
        if convert is not None:
            return convert(value)
        return self._plain_object(value, cls)

    def _plain_dict(self, value: dict[Any, Any]) -> Any:
        if all(type(key) is str for key in value):
            return {self._plain(key): self._plain(item) for key, item in value.items()}
        pairs = [[self._plain(key), self._plain(item)] for key, item in value.items()]
        return self._ext(Ext.DICT, pairs)

    def _plain_object(self, value: Any, cls: type) -> Any:
        path = _path(cls)
        serializer = self._registry.serializer_of(cls)
        if serializer is not None:
            return self._ext(Ext.REGISTERED, [path, self._plain(serializer.encode(value))])
        if isinstance(value, enum.Enum):
            _check_importable(cls, path)
            return self._ext(Ext.ENUM, [path, value.name])
        if isinstance(value, tuple) and hasattr(cls, "_fields"):
            _check_importable(cls, path)
            return self._ext(Ext.NAMEDTUPLE, [path, [self._plain(item) for item in value]])
        if dataclasses.is_dataclass(cls):
            _check_importable(cls, path)
            fields = {
                f.name: self._plain(getattr(value, f.name)) for f in dataclasses.fields(value)
            }
            return self._ext(Ext.DATACLASS, [path, fields])
        if self._allow_pickle:
            try:
                return msgspec.msgpack.Ext(Ext.PICKLE, pickle.dumps(value))
            except Exception as error:
                raise ValueNotEncodableError(0, path, f"pickle: {error}") from error
        raise ValueNotEncodableError(0, path, value_of_python(cls) or _NO_REGISTRY)

    def _sorted(self, items: Iterable[Any]) -> list[Any]:
        """The elements of a set in the order of their encoding, so that equal sets are equal
        bytes (the test kit compares them)."""
        return sorted((self._plain(item) for item in items), key=self._pack)

    def _ext(self, code: int, plain: Any) -> msgspec.msgpack.Ext:
        return msgspec.msgpack.Ext(code, self._pack(plain))

    def _from_ext(self, code: int, data: memoryview) -> Any:
        if code == Ext.UUID:
            return uuid.UUID(bytes=bytes(data))
        if code == Ext.BIG_INT:
            return int.from_bytes(data, "little", signed=True)
        if code == Ext.SURROGATE_STR:
            return bytes(data).decode("utf-8", "surrogatepass")
        if code == Ext.BYTEARRAY:
            return bytearray(data)
        if code == Ext.PICKLE:
            if not self._allow_pickle:
                raise CodecError("received pickled values, but topology.fall.back.on.pickle is off")
            return pickle.loads(data)
        convert = self._from_plain.get(code)
        if convert is None:
            raise CodecError(f"extension type {code} is unknown")
        return convert(self._unpack(data))

    def _registered_from_plain(self, plain: Any) -> Any:
        path, inner = plain
        serializer = self._registry.serializer_at(path)
        if serializer is None:
            raise CodecError(f"{path} is not registered here (topology.kryo.register)")
        return serializer.decode(inner)

    def _class_at(self, path: str) -> type:
        found = self._classes.find(path)
        if found is None:
            raise CodecError(
                f"class {path} is not known here: no component's module imports it, and names "
                "that come from other workers are not imported (add it to topology.kryo.register)"
            )
        return found

    def _dataclass_from_plain(self, plain: list[Any]) -> Any:
        path, fields = plain
        cls = self._class_at(path)
        names = self._field_names.get(cls)
        if names is None:
            if not dataclasses.is_dataclass(cls):
                raise CodecError(f"{path} is not a dataclass here")
            names = frozenset(field.name for field in dataclasses.fields(cls))
            self._field_names[cls] = names
        if fields.keys() != names:
            raise CodecError(f"{path} has different fields on the worker that sent the value")
        # Not through __init__: it may check, convert or count, and the value exists already.
        value: Any = object.__new__(cls)
        for name, item in fields.items():
            object.__setattr__(value, name, item)
        return value

    def _enum_from_plain(self, plain: list[Any]) -> Any:
        path, name = plain
        cls = self._class_at(path)
        if not issubclass(cls, enum.Enum):
            raise CodecError(f"{path} is not an Enum here")
        return cls[name]

    def _namedtuple_from_plain(self, plain: list[Any]) -> Any:
        path, items = plain
        cls: Any = self._class_at(path)
        if not (issubclass(cls, tuple) and hasattr(cls, "_make")):
            raise CodecError(f"{path} is not a namedtuple here")
        return cls._make(items)


def _path(cls: type) -> str:
    return f"{cls.__module__}:{cls.__qualname__}"


def _check_importable(cls: type, path: str) -> None:
    if loaded_class(path) is not cls:
        raise ValueNotEncodableError(0, path, "its class cannot be imported by that name")


def _datetime_to_plain(value: dt.datetime) -> list[Any]:
    naive = value.replace(tzinfo=None, fold=0).isoformat()
    return [naive, value.fold, _zone_to_plain(value.tzinfo)]


def _datetime_from_plain(plain: list[Any]) -> dt.datetime:
    naive, fold, zone = plain
    return dt.datetime.fromisoformat(naive).replace(fold=fold, tzinfo=_zone_from_plain(zone))


def _time_to_plain(value: dt.time) -> list[Any]:
    naive = value.replace(tzinfo=None, fold=0).isoformat()
    return [naive, value.fold, _zone_to_plain(value.tzinfo)]


def _time_from_plain(plain: list[Any]) -> dt.time:
    naive, fold, zone = plain
    return dt.time.fromisoformat(naive).replace(fold=fold, tzinfo=_zone_from_plain(zone))


def _timedelta_to_plain(value: dt.timedelta) -> list[int]:
    return [value.days, value.seconds, value.microseconds]


def _zone_to_plain(zone: dt.tzinfo | None) -> Any:
    if zone is None:
        return None
    if type(zone) is dt.timezone:
        return zone.utcoffset(None) // _MICROSECOND
    if isinstance(zone, zoneinfo.ZoneInfo) and zone.key is not None:
        return zone.key
    raise ValueNotEncodableError(0, _path(type(zone)), "use datetime.timezone or zoneinfo")


def _zone_from_plain(plain: Any) -> dt.tzinfo | None:
    if plain is None:
        return None
    if isinstance(plain, int):
        return dt.UTC if plain == 0 else dt.timezone(plain * _MICROSECOND)
    return zoneinfo.ZoneInfo(plain)
