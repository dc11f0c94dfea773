"""A parsed interface file as data: written as Python source once, made into classes at each import.

thriftpy2 takes 0.15 s of CPU to parse `storm.thrift`, which every daemon, worker and command would
spend at its start. So `python -m squall_thrift.stubs` writes what thriftpy2 has made of the file,
and `classes` makes the same classes of it again, from thriftpy2's base classes, in a tenth of the
time.

A struct is (name, its `thrift_spec`, its `default_spec`), as thriftpy2 has them, but with a class
in a `thrift_spec` replaced by its name; a method is (name, arguments, result). Only the third of
the four elements of a field can hold a class.
"""

from collections.abc import Callable, Iterable, Mapping
from pprint import pformat
from types import ModuleType
from typing import Any, NamedTuple

from thriftpy2.thrift import TException, TPayload, gen_init

Fields = tuple[str, dict[int, Any], list[tuple[str, Any]]]


class Parsed(NamedTuple):
    """What an interface file declares, in its order."""

    enums: dict[str, dict[str, int]]
    structs: list[Fields]
    unions: list[Fields]
    exceptions: list[Fields]
    services: dict[str, list[tuple[str, Fields, Fields]]]


def parsed_of(loaded: ModuleType) -> Parsed:
    """The data of a file that thriftpy2 has loaded. Raises ValueError for a oneway method, which is
    not supported."""
    meta: dict[str, list[Any]] = loaded.__thrift_meta__
    return Parsed(
        enums={cls.__name__: dict(cls._NAMES_TO_VALUES) for cls in meta["enums"]},
        structs=[_fields_of(cls) for cls in meta["structs"]],
        unions=[_fields_of(cls) for cls in meta["unions"]],
        exceptions=[_fields_of(cls) for cls in meta["exceptions"]],
        services={
            cls.__name__: [_method_of(cls, name) for name in cls.thrift_services]
            for cls in meta["services"]
        },
    )


def source_of(parsed: Parsed, header: str) -> str:
    """A module whose PARSED is this data."""
    parts = ",\n".join(
        f"    {name}={pformat(value, width=96, compact=True, sort_dicts=False)}"
        for name, value in parsed._asdict().items()
    )
    return f"{header}\nfrom squall_thrift.parsed import Parsed\n\nPARSED = Parsed(\n{parts},\n)\n"


def classes(parsed: Parsed) -> dict[str, list[Any]]:
    """The classes by kind, like thriftpy2's `__thrift_meta__` of a file that it loads."""
    named: dict[str, Any] = {
        name: type(name, (), {"_NAMES_TO_VALUES": values}) for name, values in parsed.enums.items()
    }
    bases = ((parsed.structs, TPayload), (parsed.unions, TPayload), (parsed.exceptions, TException))
    for declared, base in bases:
        for name, _, _ in declared:
            named[name] = type(name, (base,), {})

    def fill(fields: Fields) -> Any:
        name, spec, defaults = fields
        return _fill(named[name], spec, defaults, named)

    return {
        "enums": [named[name] for name in parsed.enums],
        "structs": [fill(one) for one in parsed.structs],
        "unions": [fill(one) for one in parsed.unions],
        "exceptions": [fill(one) for one in parsed.exceptions],
        "services": [_service(name, methods, named) for name, methods in parsed.services.items()],
    }


def _fields_of(cls: Any) -> Fields:
    spec = {number: _named(one, lambda c: c.__name__) for number, one in cls.thrift_spec.items()}
    return cls.__name__, spec, list(cls.default_spec)


def _method_of(service: Any, name: str) -> tuple[str, Fields, Fields]:
    args, result = getattr(service, f"{name}_args"), getattr(service, f"{name}_result")
    if result.oneway:
        raise ValueError(f"{service.__name__}.{name} is oneway, which is not supported")
    return name, _fields_of(args), _fields_of(result)


def _named(field: tuple[Any, ...], swap: Callable[[Any], Any]) -> tuple[Any, ...]:
    """A field of a `thrift_spec` with each class and name of one swapped."""
    return (*field[:2], _swapped(field[2], swap), field[3]) if len(field) == 4 else field


def _swapped(spec: Any, swap: Callable[[Any], Any]) -> Any:
    if isinstance(spec, tuple):
        return tuple(_swapped(one, swap) for one in spec)
    return swap(spec) if isinstance(spec, str | type) else spec


def _fill(
    cls: Any,
    spec: Mapping[int, Any],
    defaults: Iterable[tuple[str, Any]],
    named: Mapping[str, Any],
) -> Any:
    cls.default_spec = list(defaults)
    whole = {number: _named(field, named.__getitem__) for number, field in spec.items()}
    return gen_init(cls, whole, cls.default_spec)


def _service(name: str, methods: list[tuple[str, Fields, Fields]], named: Mapping[str, Any]) -> Any:
    attributes: dict[str, Any] = {"thrift_services": [method for method, _, _ in methods]}
    for _, *both in methods:
        for declared, spec, defaults in both:
            cls = type(declared, (TPayload,), {})
            attributes[declared] = _fill(cls, spec, defaults, named)
    return type(name, (), attributes)
