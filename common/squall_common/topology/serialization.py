"""Types of the user's own on the wire: `topology.kryo.register`.

    topology.kryo.register:
      - "shop.orders:Order"                      # a dataclass, enum or namedtuple: as it is
      - "shop.money:Money": "shop.money:MoneyCodec"   # anything else: by a serializer

A serializer is a class with `encode(self, value) -> plain value` and `decode(self, plain) -> value`
(or static methods of these names); plain is anything that travels already. Dataclasses, enums and
namedtuples travel without being registered when they are in a module that the topology's components
import; one that a component imports late, inside a function, has to be registered.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol

from squall_common.errors import ConfigError
from squall_common.topology.import_paths import import_stored_module

if TYPE_CHECKING:
    from squall_common.config.options.typed import TopologyOptions


# Their values look like Python's, and come out of models and frames unnoticed.
_TO_PYTHON = {
    "numpy": ".item() of one value or .tolist() of an array",
    "pandas": ".to_pydatetime() of a Timestamp, .tolist() of a Series or .to_dict() of a DataFrame",
    "pyarrow": ".as_py() of one value or .to_pylist() of an array",
}
_NO_VALUES = ("NaTType", "NAType")


def value_of_python(cls: type) -> str | None:
    """What to emit in place of a value of a library whose values look like Python's; None: it is
    of no such library."""
    library = cls.__module__.partition(".")[0]
    if library == "pandas" and cls.__name__ in _NO_VALUES:
        return "emit None in its place"
    if library in _TO_PYTHON:
        return f"emit a value of Python, by {_TO_PYTHON[library]}"
    return None


class Serializer(Protocol):
    """Turns values of one type into plain ones and back."""

    def encode(self, value: Any) -> Any: ...

    def decode(self, plain: Any) -> Any: ...


class Registry:
    """The registered types of a topology."""

    def __init__(self) -> None:
        self._by_type: dict[type, Serializer] = {}
        self._by_path: dict[str, Serializer] = {}

    def register(self, cls: type, serializer: Serializer) -> None:
        """Values of exactly this class travel through `serializer`."""
        self._by_type[cls] = serializer
        self._by_path[f"{cls.__module__}:{cls.__qualname__}"] = serializer

    def serializer_of(self, cls: type) -> Serializer | None:
        return self._by_type.get(cls)

    def serializer_at(self, path: str) -> Serializer | None:
        """By class path, `module:Class`."""
        return self._by_path.get(path)

    @classmethod
    def of(cls, options: TopologyOptions) -> Registry:
        """What `topology.kryo.register` says. Raises ConfigError naming the entry that is wrong
        (unless `topology.skip.missing.kryo.registrations`)."""
        registry = cls()
        for entry in options.topology_kryo_register:
            pairs = entry.items() if isinstance(entry, Mapping) else [(entry, None)]
            for path, serializer_path in pairs:
                if serializer_path is None and ":" not in path:
                    continue  # a Java class, of Storm's own clients
                try:
                    if serializer_path is None:
                        load_class(path)  # known from now on, from any sender
                        continue
                    serializer = load_class(serializer_path)()
                    registry.register(load_class(path), serializer)
                except (ImportError, AttributeError, ValueError, TypeError) as error:
                    if options.topology_skip_missing_kryo_registrations:
                        continue
                    raise ConfigError(
                        f"topology.kryo.register: {path!r}"
                        f"{f': {serializer_path!r}' if serializer_path else ''} cannot be used: "
                        f"{error}",
                        hint='name a class and its serializer as "module:Class"',
                    ) from error
        return registry


def load_class(path: str) -> Any:
    """The class at `module:Qualified.Name`. Raises ImportError, AttributeError or ValueError."""
    module, _, name = path.partition(":")
    if not module or not name:
        raise ValueError(f'{path!r} is not of the form "module:Class"')
    found: Any = import_stored_module(module)
    for part in name.split("."):
        found = getattr(found, part)
    return found
