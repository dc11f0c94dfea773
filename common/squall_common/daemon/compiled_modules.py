"""Modules in Python of which there is a compiled form, made by mypyc from the same source.

Compiled modules know the layout of each other's classes, and rely on the types that the modules
declare which they import. So all of them lie in one folder, `_compiled/DIGEST/` of `squall_engine`,
beside a list of the sources that they were made of. They are imported if all of these are still the
same. Otherwise all run in Python: an edited module runs as it was edited.

SQUALL_MODULES chooses: "python" leaves the compiled ones alone, and with "compiled" it is an error
if there are none of these sources. Unset, it is "python" where SQUALL_CORE is "pure".

`hatch_build` runs this file by itself to make them, so it imports nothing of ours when it is read.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from importlib.abc import MetaPathFinder
from importlib.machinery import EXTENSION_SUFFIXES, ModuleSpec
from importlib.util import find_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

# What moves tuples between tasks and workers. Not among them: `core.drive`, whose frames show what
# a component does (`squall_engine.observe.under_way`), and tasks on threads and of coroutines.
MODULES = (
    "squall_engine.acking.coordinator",
    "squall_engine.backpressure.blocked_tasks",
    "squall_engine.backpressure.credit",
    "squall_engine.backpressure.inbox",
    "squall_engine.backpressure.turn_size",
    "squall_engine.dataflow.flow",
    "squall_engine.dataflow.outgoing",
    "squall_engine.dataflow.remote",
    "squall_engine.embed",
    "squall_engine.engine",
    "squall_engine.engine_life",
    "squall_engine.tasks.base",
    "squall_engine.tasks.bolt",
    "squall_engine.tasks.spout",
    "squall_engine.timing",
    "squall_worker.transport.frames",
    "squall_worker.transport.link",
    "squall_worker.transport.link_counts",
    "squall_worker.transport.out_frames",
    "squall_worker.transport.push",
    "squall_worker.transport.ring.connections",
    "squall_worker.transport.zmq",
)
GROUP = "squall"
LIBRARY = f"{GROUP}__mypyc"  # the code of all of them, which each imports
HOME = "squall_engine"  # whose folder they lie in
FOLDER = "_compiled"
MADE_OF = "made_of.json"  # {"sources": [PACKAGE/..., ...], "digest": of these}


def file_name(module: str) -> str:
    """The name of a compiled module's file."""
    return module + EXTENSION_SUFFIXES[0]


def digest(sources: Iterable[Path]) -> str:
    """Of some sources, in this order. Raises OSError if one is not there."""
    found = hashlib.blake2b(digest_size=16)
    for source in sources:
        data = source.read_bytes()
        found.update(b"%d " % len(data))
        found.update(data)
    return found.hexdigest()


def is_of_these_sources(folder: Path) -> bool:
    """Whether what lies in a folder was made of the sources that would be imported."""
    try:
        made_of = json.loads((folder / MADE_OF).read_bytes())
        parts = [source.split("/") for source in made_of["sources"]]
        found = digest(_folder(package).joinpath(*rest) for package, *rest in parts)
    except (OSError, ValueError, KeyError, TypeError):
        return False
    return bool(found == made_of["digest"])


class CompiledModules(MetaPathFinder):
    """Finds the compiled modules, all of them or none."""

    def __init__(self) -> None:
        self._names = frozenset((*MODULES, LIBRARY))
        self._files: dict[str, Path] | None = None  # not None once one was asked for

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Raises SquallError if there have to be compiled ones, and are none."""
        if fullname not in self._names:
            return None
        file = self.files().get(fullname)
        return None if file is None else spec_from_file_location(fullname, file)

    def files(self) -> Mapping[str, Path]:
        """The compiled modules that were made of these sources; empty if there are none. Later
        calls return the same, whatever has changed: they fit each other."""
        if self._files is None:
            self._files = self._look(_choice())
        return self._files

    def _look(self, choice: str) -> dict[str, Path]:
        if choice == "python":
            return {}
        for folder in sorted((_folder(HOME) / FOLDER).glob("*")):
            files = {module: folder / file_name(module) for module in self._names}
            if is_of_these_sources(folder) and all(file.is_file() for file in files.values()):
                return files
        if choice == "compiled":
            raise _error(
                "SQUALL_MODULES=compiled, but the modules have not been compiled as they are now",
                hint="compile them again: pip install -e .",
            )
        return {}


@cache
def _folder(package: str) -> Path:
    spec = find_spec(package)
    places = None if spec is None else spec.submodule_search_locations
    if not places:
        raise FileNotFoundError(package)
    return Path(places[0])


def _choice() -> str:
    choice = os.environ.get("SQUALL_MODULES", "")
    if choice not in ("", "python", "compiled"):
        raise _error(f"SQUALL_MODULES={choice}", hint="unset it, or set it to python or compiled")
    if not choice and os.environ.get("SQUALL_CORE") == "pure":
        return "python"
    return choice


def _error(message: str, hint: str) -> Exception:
    from squall_common.errors import SquallError

    return SquallError(message, hint=hint)


def prefer() -> None:
    """Import compiled modules, where they are those of the sources. To be called before any of them
    is imported."""
    if _finder() is None:
        sys.meta_path.insert(0, CompiledModules())


def are_used() -> bool:
    """Whether the compiled modules are those that are imported."""
    finder = _finder()
    return finder is not None and bool(finder.files())


def _finder() -> CompiledModules | None:
    return next((one for one in sys.meta_path if isinstance(one, CompiledModules)), None)
