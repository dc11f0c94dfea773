"""Loads and completes an interface file: structs by value, enums as enums, services as tables.

thriftpy2 parses `storm.thrift` into classes (beforehand: see `parsed`). They lack three things,
which are added here, to the classes of this one load (other loads of the same file are not
touched):

- a struct hashes and compares by its declared fields, so that it can be the key of a map
  (GlobalStreamId, ExecutorInfo, NodeInfo). A struct that is a key must not be changed;
- a default that is a map is a new one in each object, not one that all objects share;
- an enum is an `IntEnum`, and an exception's text is its message.

`StructSpec` and `Service` hold the same information as thriftpy2's nested tuples, in readable form;
the codec, the server, the client and the stub generator all work from them.
"""

import copy
import enum
import operator
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import thriftpy2
from thriftpy2.thrift import TType

from squall_thrift import parsed, wire

INTERFACE_FILE = Path(__file__).with_name("storm.thrift")


@dataclass(frozen=True, slots=True)
class Scalar:
    """bool, byte, i16, i32, i64 or double."""

    wire_type: int


@dataclass(frozen=True, slots=True)
class Text:
    """`string`: UTF-8 on the wire, str here."""

    wire_type: int = wire.STRING


@dataclass(frozen=True, slots=True)
class Binary:
    """`binary`: bytes in both places."""

    wire_type: int = wire.STRING


@dataclass(frozen=True, slots=True)
class Enumeration:
    enum: type[enum.IntEnum]
    wire_type: int = wire.I32


@dataclass(frozen=True, slots=True)
class Struct:
    cls: Any  # a class that the interface file made
    wire_type: int = wire.STRUCT


@dataclass(frozen=True, slots=True)
class List:
    element: "Type"
    wire_type: int = wire.LIST


@dataclass(frozen=True, slots=True)
class Set:
    element: "Type"
    wire_type: int = wire.SET


@dataclass(frozen=True, slots=True)
class Map:
    key: "Type"
    value: "Type"
    wire_type: int = wire.MAP


Type = Scalar | Text | Binary | Enumeration | Struct | List | Set | Map


class Kind(enum.Enum):
    STRUCT = "struct"
    UNION = "union"  # exactly one field is set
    EXCEPTION = "exception"


@dataclass(frozen=True, slots=True)
class Field:
    id: int
    name: str
    type: Type
    required: bool
    default: Any  # None when there is none: a field that is None is not written


@dataclass(frozen=True, slots=True)
class StructSpec:
    name: str
    cls: type[Any]
    kind: Kind
    fields: tuple[Field, ...]


@dataclass(frozen=True, slots=True)
class Method:
    """A method of a service. `args` and `result` are the structs on the wire; `throws` maps the
    fields of `result` that hold exceptions to their classes; `returns` is None for a void method.
    """

    name: str
    args: StructSpec
    result: StructSpec
    returns: Type | None
    throws: Mapping[str, type[Exception]]


@dataclass(frozen=True, slots=True)
class Service:
    name: str
    methods: Mapping[str, Method]


_specs: dict[type[Any], StructSpec] = {}


def spec_of(cls: type[Any]) -> StructSpec:
    """Return the declaration of a struct's class. Raises TypeError for any other class."""
    try:
        return _specs[cls]
    except KeyError:
        raise TypeError(f"{cls!r} is not a struct of the Thrift interface") from None


@dataclass(frozen=True, slots=True)
class Interface:
    """Everything that the interface file declares, by name, in its order."""

    enums: Mapping[str, type[enum.IntEnum]]
    structs: Mapping[str, StructSpec]  # structs, unions and exceptions
    services: Mapping[str, Service]


def load(path: Path, module: str) -> Interface:
    """Load an interface file; its classes get `module` as their module."""
    return _Loader(parse(path, module).__thrift_meta__, module).interface()


def load_parsed(data: parsed.Parsed, module: str) -> Interface:
    """Load an interface file that was parsed before."""
    return _Loader(parsed.classes(data), module).interface()


def parse(path: Path, module: str) -> ModuleType:
    """What thriftpy2 makes of an interface file."""
    loaded: ModuleType = thriftpy2.load(str(path), module_name=module.replace(".", "_") + "_thrift")
    return loaded


class _Loader:
    def __init__(self, meta: dict[str, list[Any]], module: str) -> None:
        self._meta = meta
        self._module = module
        self._enums = {cls: self._enum(cls) for cls in self._meta["enums"]}

    def interface(self) -> Interface:
        structs = {}
        for cls, kind in self._declared():
            structs[cls.__name__] = self._struct(cls, kind)
        return Interface(
            {e.__name__: e for e in self._enums.values()},
            structs,
            {cls.__name__: self._service(cls) for cls in self._meta["services"]},
        )

    def _declared(self) -> Iterator[tuple[type[Any], Kind]]:
        yield from ((cls, Kind.STRUCT) for cls in self._meta["structs"])
        yield from ((cls, Kind.UNION) for cls in self._meta["unions"])
        yield from ((cls, Kind.EXCEPTION) for cls in self._meta["exceptions"])

    def _enum(self, cls: Any) -> type[enum.IntEnum]:
        make: Any = enum.IntEnum  # mypy accepts the functional form with literals only
        return make(cls.__name__, dict(cls._NAMES_TO_VALUES), module=self._module)  # type: ignore[no-any-return]

    def _struct(self, cls: type[Any], kind: Kind) -> StructSpec:
        defaults = dict(cls.default_spec)
        fields = []
        for field_id, spec in cls.thrift_spec.items():
            wire_type, name, required = spec[0], spec[1], spec[-1]
            type_ = self._type(wire_type, spec[2] if len(spec) == 4 else None)
            fields.append(Field(field_id, name, type_, required, defaults[name]))
        made = StructSpec(cls.__name__, cls, kind, tuple(fields))
        _specs[cls] = made
        _mend(cls, made, self._module)
        return made

    def _service(self, cls: Any) -> Service:
        methods = {}
        for name in cls.thrift_services:
            args = self._struct(getattr(cls, f"{name}_args"), Kind.STRUCT)
            result = self._struct(getattr(cls, f"{name}_result"), Kind.STRUCT)
            returns, throws = None, {}
            for field in result.fields:
                if field.name == "success":
                    returns = field.type
                elif isinstance(field.type, Struct):
                    throws[field.name] = field.type.cls
            methods[name] = Method(name, args, result, returns, throws)
        return Service(cls.__name__, methods)

    def _type(self, wire_type: int, spec: Any) -> Type:
        # `spec` is thriftpy2's: a class for structs and enums, an element for lists and sets, a
        # pair of elements for maps. An element is a type's number, or (number, its own spec).
        match wire_type:
            case TType.STRING:
                return Text()
            case TType.BINARY:
                return Binary()
            case TType.STRUCT:
                return Struct(spec)
            case TType.LIST:
                return List(self._element(spec))
            case TType.SET:
                return Set(self._element(spec))
            case TType.MAP:
                return Map(self._element(spec[0]), self._element(spec[1]))
            case TType.I32 if spec is not None:
                return Enumeration(self._enums[spec])
            case _:
                return Scalar(wire_type)

    def _element(self, element: Any) -> Type:
        return self._type(*element) if isinstance(element, tuple) else self._type(element, None)


def _mend(cls: Any, spec: StructSpec, module: str) -> None:
    cls.__module__ = module
    values = _values_getter([field.name for field in spec.fields])

    def eq(self: Any, other: object) -> Any:
        if self.__class__ is not other.__class__:
            return NotImplemented
        return values(self) == values(other)

    def hash_(self: Any) -> int:
        try:
            return hash(values(self))
        except TypeError:  # a list, set or map among them
            return hash(_freeze(values(self)))

    cls.__eq__, cls.__ne__, cls.__hash__ = eq, object.__ne__, hash_
    shared = {f.name: f.default for f in spec.fields if isinstance(f.default, dict | list | set)}
    if shared:
        cls.__init__ = _init_with_own_defaults(cls.__init__, shared)
    if spec.kind is Kind.EXCEPTION:
        cls.__str__ = lambda self: str(self.msg)


def _values_getter(names: list[str]) -> Callable[[Any], tuple[Any, ...]]:
    if len(names) > 1:
        return operator.attrgetter(*names)
    if names:
        [name] = names
        return lambda self: (getattr(self, name),)
    return lambda self: ()


def _freeze(value: Any) -> Any:
    if isinstance(value, tuple | list):
        return tuple(map(_freeze, value))
    if isinstance(value, dict):
        return frozenset((_freeze(key), _freeze(item)) for key, item in value.items())
    if isinstance(value, set | frozenset):
        return frozenset(map(_freeze, value))
    return value


def _init_with_own_defaults(init: Callable[..., None], shared: dict[str, Any]) -> Any:
    def own(self: Any, *args: Any, **kwargs: Any) -> None:
        init(self, *args, **kwargs)
        for name, default in shared.items():
            if getattr(self, name) is default:
                setattr(self, name, copy.copy(default))

    return own
