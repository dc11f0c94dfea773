"""Classes and functions by the path under which another process imports them: `module:name`."""

from __future__ import annotations

import importlib
import sys
import types
from pathlib import Path
from typing import Any

from squall_common.errors import InvalidTopologyError

# Modules that stored topologies may name although they live elsewhere now. What is stored must load
# for as long as a topology runs, across upgrades.
_STORED_MODULES = {
    "squall.columns": "squall_common.component.columns.columns",
    "squall.component": "squall_common.component.component",
    "squall.context": "squall_common.component.context",
    "squall.errors": "squall_common.errors",
    "squall.groupings": "squall_common.component.groupings",
    "squall.model": "squall_common.topology.model",
    "squall.replaying": "squall_common.component.delivery.replaying",
    "squall.serialization": "squall_common.topology.serialization",
    "squall.state": "squall_common.component.state",
    "squall.tuples": "squall_common.component.tuples",
    "squall_common.component.arrow": "squall_common.component.columns.arrow",
    "squall_common.component.columns": "squall_common.component.columns.columns",
    "squall_common.component.metrics": "squall_common.component.metrics.consumers",
    "squall_common.component.replaying": "squall_common.component.delivery.replaying",
    "squall_common.component.rewinding": "squall_common.component.delivery.rewinding",
    "squall_common.component.transactional": "squall_common.component.delivery.transactional",
    "squall_drpc.batch": "squall_drpc.batched.batch",
    "squall_drpc.coordinated": "squall_drpc.batched.coordinated",
    "squall_drpc.coordinated_shell": "squall_drpc.batched.coordinated_shell",
    "squall_drpc.coordination": "squall_drpc.batched.coordination",
    "squall_drpc.subtopology": "squall_drpc.batched.subtopology",
}


def import_stored_module(name: str) -> types.ModuleType:
    """Import a module by the name under which a topology may have stored it. Raises ImportError."""
    return importlib.import_module(_STORED_MODULES.get(name, name))


def import_path(path: str) -> Any:
    """The object that `module:name` names. Raises InvalidTopologyError if the module or the name is
    not found. An import error *inside* the module is raised as it is."""
    module_name, separator, name = path.partition(":")
    if not separator or not module_name or not name:
        raise InvalidTopologyError(f"{path!r} is not an import path (module:name)")
    try:
        module = import_stored_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is not None and (module_name + ".").startswith(error.name + "."):
            raise InvalidTopologyError(
                f"{path}: there is no module {error.name!r}",
                hint="is it in the package that was submitted?",
            ) from error
        raise
    found: Any = module
    for part in name.split("."):
        try:
            found = getattr(found, part)
        except AttributeError:
            raise InvalidTopologyError(f"module {module_name!r} has no {name!r}") from None
    return found


def class_here(path: str) -> type | None:
    """The class at `module:name`, if this process has the module already, under its name or as the
    program that runs. Imports nothing, so runs no code of users."""
    module_name, _, name = path.partition(":")
    module = sys.modules.get(_STORED_MODULES.get(module_name, module_name))
    if module is None and module_name == main_module_name():
        module = sys.modules["__main__"]
    found = getattr(module, name, None)
    return found if isinstance(found, type) else None


def import_path_of(value: type | types.FunctionType | types.BuiltinFunctionType) -> str:
    """The `module:name` of a class or function, under which a worker finds it too. Raises
    InvalidTopologyError for one that has none: a lambda, one nested in a function or a class, one
    that its module's name does not lead to."""
    name = value.__qualname__
    what = "class" if isinstance(value, type) else "function"
    if name.endswith("<lambda>"):
        raise InvalidTopologyError("a lambda cannot travel: make it a function of a module")
    if "<locals>" in name:
        raise InvalidTopologyError(
            f"{what} {value.__name__!r} is made inside a function: "
            "move it to its module's top level"
        )
    if "." in name:
        raise InvalidTopologyError(
            f"{what} {name!r} is nested in a class: move it to its module's top level"
        )
    module = value.__module__
    if getattr(sys.modules.get(module), name, None) is not value:
        raise InvalidTopologyError(
            f"{what} {name!r} is not what {module}.{name} names, and a worker would get that one"
        )
    return f"{main_module_name() if module == '__main__' else module}:{name}"


def main_module_name() -> str:
    """The name under which a worker can import what runs here as `__main__`: the name it was
    started by (`python -m jobs.wordcount`), or its file's. `__main__` when it has neither (a
    prompt, `python -c`)."""
    main = sys.modules["__main__"]
    spec = getattr(main, "__spec__", None)
    if spec is not None:
        return str(spec.name)
    file = getattr(main, "__file__", None)
    return "__main__" if file is None else Path(file).stem
