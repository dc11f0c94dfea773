"""A Flux file and the files that it includes, as one definition.

Each part keeps the document that it comes from, so that whatever is found wrong later has a line.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic, TypeVar

from squall_common.errors import InvalidTopologyError, SquallError
from squall_flux.model import (
    BeanDef,
    IncludeDef,
    ShapeError,
    StreamDef,
    TopologyDef,
    TopologySourceDef,
    VertexDef,
    convert,
)
from squall_flux.reading import Document, Location, read_document, read_text
from squall_flux.substitution import Filter

FILES_MAX = 100

_P = TypeVar("_P", covariant=True)
_B = TypeVar("_B", bound=BeanDef)


@dataclass(frozen=True, slots=True)
class Located(Generic[_P]):
    """A part of the definition, and where it was found."""

    value: _P
    document: Document
    location: Location

    def where(self, *inner: str | int) -> str:
        """The place of a value in it."""
        return self.document.where((*self.location, *inner))


@dataclass(slots=True)
class Definition:
    """A topology as its files define it, by ids."""

    name: Located[str] | None = None
    config: dict[str, Located[Any]] = field(default_factory=dict)
    components: dict[str, Located[BeanDef]] = field(default_factory=dict)
    spouts: dict[str, Located[VertexDef]] = field(default_factory=dict)
    bolts: dict[str, Located[VertexDef]] = field(default_factory=dict)
    streams: list[Located[StreamDef]] = field(default_factory=list)
    worker_hooks: dict[str, Located[BeanDef]] = field(default_factory=dict)
    topology_source: Located[TopologySourceDef] | None = None


def load_definition(file: str, values: Filter, code: Path, *, resource: bool = False) -> Definition:
    """Read a definition and what it includes. `code` is the unpacked package: with `resource`, the
    file is searched for there. Raises InvalidTopologyError, which lists all that is wrong in a
    file, and SquallError for a file that cannot be read."""
    return _Loader(values, code).load(_find(file, None, code, resource=resource), file, ())


def _find(file: str, beside: Path | None, code: Path, *, resource: bool) -> Path:
    """A file: in the package or its resources/; or beside the one that includes it, or in the
    current folder."""
    if not resource:
        if beside is not None and (beside / file).exists():
            return beside / file
        return Path(file)
    if Path(file).is_absolute():
        file = file.lstrip("/")  # as Java names resources
    for folder in (code, code / "resources"):
        path = (folder / file).resolve()
        if path.is_relative_to(code.resolve()) and path.is_file():
            return path
    raise SquallError(
        f"the package has no file {file!r}", hint="its path in the package, or in its resources/"
    )


class _Loader:
    def __init__(self, values: Filter, code: Path) -> None:
        self._values = values
        self._code = code
        self._files = 0

    def load(self, path: Path, shown: str, open_files: tuple[Path, ...]) -> Definition:
        self._files += 1
        if self._files > FILES_MAX:
            raise SquallError(f"the definition includes more than {FILES_MAX} files")
        text = read_text(path, "the topology definition")
        parsed = _Parts(read_document(shown, text, self._values))
        definition = parsed.definition
        for include in parsed.includes:
            self._include(definition, include, path, (*open_files, path.resolve()))
        return definition

    def _include(
        self,
        definition: Definition,
        include: Located[IncludeDef],
        path: Path,
        open_files: tuple[Path, ...],
    ) -> None:
        wanted = include.value
        try:
            found = _find(wanted.file, path.parent, self._code, resource=wanted.resource)
            if found.resolve() in open_files:
                raise SquallError(f"{wanted.file} includes itself, by way of this file")
            included = self.load(found, wanted.file, open_files)
        except InvalidTopologyError:
            raise  # it names the place in the included file
        except (SquallError, OSError, ValueError) as error:
            reason = error.message if isinstance(error, SquallError) else str(error)
            raise InvalidTopologyError(f"{include.where('file')}: {reason}") from error
        _merge(definition, included, override=wanted.override)


def _merge(definition: Definition, included: Definition, *, override: bool) -> None:
    if included.name is not None and (override or definition.name is None):
        definition.name = included.name
    if included.topology_source is not None and (override or definition.topology_source is None):
        definition.topology_source = included.topology_source
    pairs: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
        ("option", definition.config, included.config),
        ("component", definition.components, included.components),
        ("spout", definition.spouts, included.spouts),
        ("bolt", definition.bolts, included.bolts),
        ("worker hook", definition.worker_hooks, included.worker_hooks),
    ]
    for what, ours, theirs in pairs:
        for key, value in theirs.items():
            if override or key not in ours:
                ours[key] = value
            else:
                print(
                    f"note: {value.where()}: {what} {key!r} is ignored: the file that includes "
                    "this one has it, and override is false",
                    file=sys.stderr,
                )
    definition.streams += included.streams


class _Parts:
    """The parts of one document. Raises InvalidTopologyError that lists all wrong ones."""

    def __init__(self, document: Document) -> None:
        self.definition = Definition()
        self.includes: list[Located[IncludeDef]] = []
        self._document = document
        self._problems: list[str] = []
        data = document.data
        if not isinstance(data, dict):
            raise InvalidTopologyError(
                f"{document.where(())}: expected a mapping with name, spouts, bolts and streams"
            )
        # Each part by itself, so that all are checked; then what is left, for unknown keys.
        rest = dict(data)
        self.includes = self._list(rest, "includes", IncludeDef)
        own = self.definition
        own.components = self._by_id(self._list(rest, "components", BeanDef))
        own.spouts = self._by_id(self._list(rest, "spouts", VertexDef))
        own.bolts = self._by_id(self._list(rest, "bolts", VertexDef))
        own.streams = self._list(rest, "streams", StreamDef)
        own.worker_hooks = self._by_id(self._list(rest, "workerHooks", BeanDef))
        source = rest.pop("topologySource", None)
        if source is not None:
            own.topology_source = self._part(source, TopologySourceDef, ("topologySource",))
        top = self._part(rest, TopologyDef, ())
        if self._problems:
            raise InvalidTopologyError.listing(self._problems)
        assert top is not None
        if top.value.name is not None:
            own.name = Located(top.value.name, document, ("name",))
        for key, value in (top.value.config or {}).items():
            own.config[key] = Located(value, document, ("config", key))

    def _part(self, data: Any, kind: type[_P], location: Location) -> Located[_P] | None:
        try:
            return Located(convert(data, kind), self._document, location)
        except ShapeError as error:
            found = (*location, *error.location)
            where = self._document.where_key(found) if error.key else self._document.where(found)
            self._problems.append(f"{where}: {_path(location)}{error}")
            return None

    def _list(self, data: dict[str, Any], key: str, kind: type[_P]) -> list[Located[_P]]:
        items = data.get(key)
        if not isinstance(items, Sequence) or isinstance(items, (str, bytes)):
            return []  # none, or for the check of the rest to refuse
        del data[key]
        found = [self._part(item, kind, (key, i)) for i, item in enumerate(items)]
        return [part for part in found if part is not None]

    def _by_id(self, parts: list[Located[_B]]) -> dict[str, Located[_B]]:
        found: dict[str, Located[_B]] = {}
        for part in parts:
            if part.value.id in found:
                before = found[part.value.id].where()
                self._problems.append(
                    f"{part.where('id')}: the id {part.value.id!r} is taken, at {before}"
                )
            found[part.value.id] = part
        return found


def _path(location: Location) -> str:
    """`bolts[2]: `, for the front of a message."""
    text = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in location)
    return f"{text.removeprefix('.')}: " if text else ""
