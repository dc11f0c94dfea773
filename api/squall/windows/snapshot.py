"""What windows hold, as bytes.

The objects of this package are pickled, and only they: everything that reading could execute is
refused. Tuples are stored beside them, by number, since their sources have to be found again.
Values of users' classes (keys and totals) are stored as a topology's tuples store them. What a bolt
brings along (its methods, the function that finds a key) is not stored: a name stands for it.
"""

from __future__ import annotations

import io
import pickle
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from squall.windows.panes import NOTHING
from squall_common.errors import SquallError

# To be raised when the attributes of a class change that are stored (a test watches them).
FORMAT = 1

_PACKAGE = "squall.windows."
_PLAIN = frozenset(
    {type(None), bool, int, float, str, bytes, tuple, list, dict, set, frozenset, type}
)
_NOTHING = "nothing"
_TUPLE = 0
_VALUE = 1


class Codec(Protocol):
    """Stores values: the codec of a topology."""

    def encode_rows(self, rows: Sequence[Sequence[Any]]) -> bytes: ...

    def decode_rows(self, data: bytes | memoryview) -> list[list[Any]]: ...


def dump(
    parts: Any, fixed: Mapping[str, Any], codec: Codec, tuple_class: type, tuples: list[Any]
) -> bytes:
    """Objects of this package as bytes. `tuples` gets the tuples in them; for the objects in
    `fixed` their name is stored."""
    names = {id(one): name for name, one in {**fixed, _NOTHING: NOTHING}.items()}
    numbers: dict[int, int] = {}

    class Pickler(pickle.Pickler):
        def persistent_id(self, obj: Any) -> Any:
            kind = type(obj)
            if kind in _PLAIN:
                return None
            if kind is tuple_class:
                number = numbers.get(id(obj))
                if number is None:
                    number = numbers[id(obj)] = len(tuples)
                    tuples.append(obj)
                return (_TUPLE, number)
            name = names.get(id(obj))
            if name is not None:
                return name
            if kind.__module__.startswith(_PACKAGE):
                return None
            return (_VALUE, codec.encode_rows(((obj,),)))

    out = io.BytesIO()
    Pickler(out, protocol=5).dump(parts)
    return out.getvalue()


def load(data: bytes, fixed: Mapping[str, Any], codec: Codec, tuples: Sequence[Any]) -> Any:
    """The inverse. Raises SquallError for bytes that name other classes."""

    class Unpickler(pickle.Unpickler):
        def persistent_load(self, pid: Any) -> Any:
            if isinstance(pid, str):
                return NOTHING if pid == _NOTHING else fixed[pid]
            kind, of = pid
            return tuples[of] if kind == _TUPLE else codec.decode_rows(of)[0][0]

        def find_class(self, module: str, name: str) -> Any:
            if module.startswith(_PACKAGE) and "." not in name:
                found = super().find_class(module, name)
                if isinstance(found, type) and found.__module__.startswith(_PACKAGE):
                    return found
            raise SquallError(f"stored windows cannot be read: they name {module}.{name}")

    return Unpickler(io.BytesIO(data)).load()
