"""Classes by the names that values carry: only ones that are loaded, or that the topology declares.

A dataclass, enum or namedtuple travels as its class's name and its content. The name comes off the
wire, so nothing is imported by it, and no code runs to look it up: it is found in what this process
has loaded, by plain dictionaries (a module's `__getattr__` is not asked, a lazy module not woken).

A worker may not have loaded a class that is quite in order: its own components need not know the
module whose dataclass they are sent. So the first unknown name has this process import the modules
of *all components of the topology*, which the topology declares and which the worker that sent the
value has loaded. A worker that emits a class nearly always has it from there; for the rest there is
`topology.kryo.register`, whose classes are imported at the start.

Turned down: importing those modules at every start (a worker would pay for the libraries of all
components); a list of classes made at the submit (it lacks what a component imports late).
"""

from __future__ import annotations

import sys
import types
from collections.abc import Iterable

from squall_common.daemon.logs import get_logger
from squall_common.topology.import_paths import import_stored_module
from squall_common.topology.model import PythonObject, Topology

log = get_logger(__name__)


def component_modules(topology: Topology) -> tuple[str, ...]:
    """The modules that hold the classes of a topology's components."""
    paths = (
        component.object.class_path
        for component in topology.components.values()
        if isinstance(component.object, PythonObject)
    )
    return tuple(dict.fromkeys(path.partition(":")[0] for path in paths))


class KnownClasses:
    """`declared`: modules that may be imported when a name is not known otherwise."""

    def __init__(self, declared: Iterable[str] = ()) -> None:
        self._declared = tuple(declared)
        self._found: dict[str, type] = {}

    def find(self, path: str) -> type | None:
        """The class at `module:Qualified.Name`, None when it is not known."""
        found = self._found.get(path) or loaded_class(path)
        if found is None and self._declared:
            self._import_declared()
            found = loaded_class(path)
        if found is not None:
            self._found[path] = found
        return found

    def _import_declared(self) -> None:
        modules, self._declared = self._declared, ()  # once, whatever becomes of it
        for module in modules:
            if module in sys.modules:
                continue
            try:
                import_stored_module(module)
            except (Exception, SystemExit) as error:  # the user's code
                log.warning("component_module_not_imported", module=module, error=error)


def loaded_class(path: str) -> type | None:
    """The class that has this very name, in the modules that are loaded."""
    module_name, _, name = path.partition(":")
    module = sys.modules.get(module_name)
    if not isinstance(module, types.ModuleType):
        return None
    names = types.ModuleType.__getattribute__(module, "__dict__")
    found: object = None
    for part in name.split("."):
        found = names.get(part)
        if not isinstance(found, type):
            return None
        names = type.__getattribute__(found, "__dict__")
    assert isinstance(found, type)
    return found if (found.__module__, found.__qualname__) == (module_name, name) else None
