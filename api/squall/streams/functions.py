"""Users' functions, on their way from the client to the workers.

A function travels as its import path, as classes do, so it must be found under that path: a
function of a module, also of the program's own (`__main__`), a class, or a method of a class of a
module (`str.lower`). What it depends on travels with `functools.partial`, whose arguments are
encoded like those of a component. `itemgetter`, `attrgetter` and `methodcaller` of `operator`, and
objects of callable dataclasses, travel, too. Lambdas and closures have no import path: another
process cannot find them.

The form in which a function travels is its *spec*: the function itself, or a list that says how to
make it.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import operator
import sys
import types
import typing
from collections.abc import Callable
from typing import Any

from squall_common.errors import InvalidTopologyError
from squall_common.topology.arguments import encode_arguments
from squall_common.topology.import_paths import import_path, import_path_of, main_module_name

Spec = Any  # a function or a class, or a list: see `callable_of`

_OPERATORS = (operator.itemgetter, operator.attrgetter, operator.methodcaller)
_MOVE = "define it with `def` at the top level of a module"
_PARTIAL = "pass it values with functools.partial(function, ...)"


def spec_of(function: Any) -> Spec:
    """The form in which a function travels. Raises InvalidTopologyError, which says why it cannot
    and what to do."""
    spec = _spec_of(function)
    encode_arguments([spec], {})
    return spec


def callable_of(spec: Spec) -> Callable[..., Any]:
    """The function again. Raises InvalidTopologyError if it is not found."""
    if not isinstance(spec, list):
        function: Callable[..., Any] = spec
        return function
    kind, *rest = spec
    if kind == "partial":
        inner, args, kwargs = rest
        return functools.partial(callable_of(inner), *args, **kwargs)
    if kind == "made":
        make, args = rest
        made: Callable[..., Any] = callable_of(make)(*args)
        return made
    if kind == "attribute":
        found: Callable[..., Any] = getattr(rest[0], rest[1])
        return found
    imported: Callable[..., Any] = import_path(rest[0])
    return imported


def path_of(spec: Spec) -> str:
    """The import path of what a spec calls, without the arguments that are bound to it:
    `shop.orders:normalise`, `builtins:str.lower`."""
    if isinstance(spec, list):
        kind, inner, *rest = spec
        if kind == "import":
            return str(inner)
        return f"{path_of(inner)}.{rest[0]}" if kind == "attribute" else path_of(inner)
    named = spec if hasattr(spec, "__qualname__") else type(spec)  # a callable dataclass
    module = main_module_name() if named.__module__ == "__main__" else named.__module__
    return f"{module}:{named.__qualname__}"


def name_of(function: Any) -> str:
    """A short name for people: `split`, `str.lower`, `itemgetter('user')`."""
    if isinstance(function, functools.partial):
        return name_of(function.func)
    if isinstance(function, _OPERATORS):
        return repr(function).removeprefix("operator.")
    name = getattr(function, "__qualname__", None) or type(function).__name__
    return str(name).rpartition("<locals>.")[2]


def kind_problem(operation: str, function: Any) -> tuple[str, str] | None:
    """Why this operation cannot call the function, and what to do, by what can be seen of it."""
    inner = function
    while isinstance(inner, functools.partial):
        inner = inner.func
    is_async = inspect.iscoroutinefunction(inner)
    if operation == "map_async":
        if not is_async:
            return f"{name_of(function)} is not async", "use map(), or define it with `async def`"
        return None
    if is_async or inspect.isasyncgenfunction(inner):
        return f"{name_of(function)} is async", "use map_async()"
    if operation != "flat_map" and operation != "process" and inspect.isgeneratorfunction(inner):
        return (
            f"{name_of(function)} contains `yield`, so its result is a generator",
            "use flat_map(), or return a value",
        )
    return None


def _spec_of(function: Any) -> Spec:
    if isinstance(function, functools.partial):
        return ["partial", _spec_of(function.func), list(function.args), dict(function.keywords)]
    if isinstance(typing.get_origin(function), type):  # list[int] makes what list makes
        return _spec_of(typing.get_origin(function))
    if isinstance(function, _OPERATORS):
        made: Any = function.__reduce__()
        make, args = made[:2]
        return ["made", _spec_of(make), list(args)]
    if isinstance(function, types.MethodDescriptorType | types.WrapperDescriptorType):
        return ["attribute", function.__objclass__, function.__name__]
    if isinstance(function, types.MethodType) and isinstance(function.__self__, type):
        return ["attribute", function.__self__, function.__name__]
    if isinstance(function, type | types.FunctionType):
        return _imported(function)
    if isinstance(function, types.BuiltinFunctionType) and not _is_bound(function):
        return _imported(function)
    if isinstance(function, types.MethodType | types.BuiltinFunctionType):
        raise InvalidTopologyError(
            f"{name_of(function)} is a method of an object, which stays in this process",
            hint=f"{_MOVE}, and {_PARTIAL}",
        )
    if not callable(function):
        raise InvalidTopologyError(f"{function!r:.100} is not a function", hint=_MOVE)
    if dataclasses.is_dataclass(function):
        return function
    wrapped = getattr(function, "__wrapped__", None)  # functools.cache, for one
    if isinstance(wrapped, types.FunctionType):
        return ["import", _path_of_wrapper(function, wrapped)]
    raise InvalidTopologyError(
        f"{function!r:.100} is an object with a state, which stays in this process",
        hint=f"{_MOVE}, or make its class a dataclass",
    )


def _imported(function: Any) -> Any:
    name = name_of(function)
    if name == "<lambda>":
        raise InvalidTopologyError(
            "a lambda has no import path, so that no worker could find it", hint=_MOVE
        )
    if "<locals>" in function.__qualname__:
        what = "class" if isinstance(function, type) else "function"
        raise InvalidTopologyError(
            f"{what} {name!r} is made inside a function, so that no worker could import it",
            hint=f"{_MOVE}, and {_PARTIAL}",
        )
    owner, dot, attribute = function.__qualname__.rpartition(".")
    if dot and not isinstance(function, type):
        cls = getattr(sys.modules.get(function.__module__), owner, None)
        if isinstance(cls, type) and getattr(cls, attribute, None) is function:
            return ["attribute", cls, attribute]
    import_path_of(function)
    return function


def _is_bound(function: types.BuiltinFunctionType) -> bool:
    owner = function.__self__
    return owner is not None and not isinstance(owner, types.ModuleType)


def _path_of_wrapper(function: Any, wrapped: types.FunctionType) -> str:
    """The import path of an object that wraps a function and stands in its place."""
    path = f"{wrapped.__module__}:{wrapped.__qualname__}"
    if "<locals>" in path or import_path(path) is not function:
        raise InvalidTopologyError(
            f"{name_of(function)} is not found under its own name, {path}", hint=_MOVE
        )
    if wrapped.__module__ == "__main__":
        # Its path as a worker imports it.
        path = f"{main_module_name()}:{wrapped.__qualname__}"
    return path
