"""A YAML file as plain data that knows the line and the column of each of its values.

The file may be hostile. Its size, nesting and number of values are bounded before anything is made
of it, and aliases count as what they stand for: ten lines can describe more values than memory
holds.
"""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from squall_common.errors import InvalidTopologyError, SquallError
from squall_flux.substitution import Filter, Substituted, substitute

FILE_BYTES_MAX = 1 << 20
VALUES_MAX = 50_000
NESTING_MAX = 50

Location = tuple[str | int, ...]  # ("bolts", 0, "className")

_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_PLAIN_TAGS = {"tag:yaml.org,2002:map", "tag:yaml.org,2002:seq"}


@dataclass(slots=True)
class Document:
    """The data of a file."""

    name: str
    data: Any = None
    places: dict[Location, str] = field(default_factory=dict)  # of values: "file:line:column"
    key_places: dict[Location, str] = field(default_factory=dict)

    def where(self, location: Location) -> str:
        """The place of a value, or else of the nearest one around it."""
        for end in range(len(location), -1, -1):
            if location[:end] in self.places:
                return self.places[location[:end]]
        return f"{self.name}:1:1"

    def where_key(self, location: Location) -> str:
        """The place of a key, or else of what contains it."""
        return self.key_places.get(location) or self.where(location)


def read_text(path: Path, what: str) -> str:
    """The text of a file. Raises SquallError for one that is missing, too large, no regular file or
    not UTF-8."""
    try:
        # A FIFO would block, and a device might never end.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(descriptor, "rb") as file:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise SquallError(f"{what} {path} is not a regular file")
            data = file.read(FILE_BYTES_MAX + 1)
    except OSError as error:
        raise SquallError(f"{what} {path} cannot be read: {error.strerror or error}") from error
    except ValueError as error:
        raise SquallError(f"{what} {str(path)!r} cannot be read: {error}") from error
    if len(data) > FILE_BYTES_MAX:
        raise SquallError(f"{what} {path} is larger than {FILE_BYTES_MAX >> 20} MiB")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise SquallError(f"{what} {path} is not UTF-8 text (byte {error.start})") from error


def read_document(name: str, text: str, values: Filter) -> Document:
    """Read the text of a YAML file called `name`. Raises InvalidTopologyError, which names the line
    and the column."""
    substituted = substitute(text.replace("\r\n", "\n"), values)
    if substituted.problems:
        raise InvalidTopologyError.listing(
            [f"{name}:{y + 1}:{x + 1}: {problem}" for y, x, problem in substituted.problems]
        )
    return _Reader(name, substituted).read()


class _Reader:
    def __init__(self, name: str, substituted: Substituted) -> None:
        self._substituted = substituted
        self._document = Document(name)
        self._scalars = yaml.SafeLoader("")
        self._flattened: set[int] = set()  # nodes whose merge keys (<<) were carried out

    def read(self) -> Document:
        text = self._substituted.text
        try:
            self._check_bounds(text)
            node = yaml.compose(text, Loader=_Loader)
            if node is None:
                raise self._error(None, "the file is empty; expected a topology definition")
            self._check_aliases(node)
            self._document.data = self._data(node, ())
        except yaml.MarkedYAMLError as error:
            context = f" {error.context}" if error.context else ""
            raise self._error(
                error.problem_mark or error.context_mark, f"{error.problem}{context}"
            ) from error
        except yaml.YAMLError as error:
            raise self._error(None, " ".join(str(error).split())) from error
        return self._document

    def _place(self, mark: Any) -> str:
        if mark is None:
            return f"{self._document.name}:1:1"
        column = self._substituted.column(mark.line, mark.column)
        return f"{self._document.name}:{mark.line + 1}:{column + 1}"

    def _error(self, mark: Any, problem: str) -> InvalidTopologyError:
        return InvalidTopologyError(f"{self._place(mark)}: {problem}")

    def _check_bounds(self, text: str) -> None:
        """Refuse too many values and too deep ones while nothing is made of them."""
        try:
            self._check_events(text, _Loader)
        except yaml.YAMLError as error:
            # libyaml has a limit of its own, far above ours, but looks 1,024 characters ahead: it
            # fails before it has reported the value that is too deep for us.
            if "nesting" in str(error):
                self._check_events(text, yaml.SafeLoader)
            raise

    def _check_events(self, text: str, loader: Any) -> None:
        """A parser of events needs no recursion."""
        depth = values = documents = 0
        for event in yaml.parse(text, Loader=loader):
            if isinstance(event, yaml.DocumentStartEvent):
                documents += 1
                if documents > 1:
                    raise self._error(event.start_mark, "expected one YAML document in the file")
            elif isinstance(event, yaml.CollectionStartEvent):
                depth += 1
                if depth > NESTING_MAX:
                    raise self._error(event.start_mark, f"values nest more than {NESTING_MAX} deep")
            elif isinstance(event, yaml.CollectionEndEvent):
                depth -= 1
            if isinstance(event, yaml.NodeEvent):
                values += 1
                if values > VALUES_MAX:
                    raise self._error(event.start_mark, f"more than {VALUES_MAX:,} values")

    def _check_aliases(self, root: yaml.Node) -> None:
        """Count the values again, each alias as all that it stands for."""
        sizes: dict[int, tuple[int, int]] = {}  # by the node's id: values, depth
        open_nodes: set[int] = set()

        def measure(node: yaml.Node) -> tuple[int, int]:
            # An anchor comes before its aliases, so this goes no deeper than the file's brackets.
            if id(node) in sizes:
                return sizes[id(node)]
            if id(node) in open_nodes:
                raise self._error(node.start_mark, "this value contains itself, by an alias")
            open_nodes.add(id(node))
            size, depth = 1, 0
            children: list[yaml.Node] = []
            if isinstance(node, yaml.MappingNode):
                children = [child for pair in node.value for child in pair]
            elif isinstance(node, yaml.SequenceNode):
                children = node.value
            for child in children:
                child_size, child_depth = measure(child)
                size += child_size
                depth = max(depth, child_depth)
            if size > VALUES_MAX:
                raise self._error(
                    node.start_mark, f"aliases make this more than {VALUES_MAX:,} values"
                )
            if depth >= NESTING_MAX:
                raise self._error(
                    node.start_mark, f"aliases make values nest more than {NESTING_MAX} deep"
                )
            open_nodes.discard(id(node))
            sizes[id(node)] = size, depth + 1
            return sizes[id(node)]

        measure(root)

    def _data(self, node: yaml.Node, location: Location) -> Any:
        self._document.places[location] = self._place(node.start_mark)
        if isinstance(node, yaml.ScalarNode):
            return self._scalar(node)
        if node.tag not in _PLAIN_TAGS:
            raise self._error(node.start_mark, f"unexpected tag {node.tag}; expected none")
        if isinstance(node, yaml.SequenceNode):
            return [self._data(child, (*location, i)) for i, child in enumerate(node.value)]
        assert isinstance(node, yaml.MappingNode)
        return self._mapping(node, location)

    def _scalar(self, node: yaml.ScalarNode) -> Any:
        try:
            return self._scalars.construct_object(node)
        except (ValueError, OverflowError) as error:  # 2026-99-99
            raise self._error(node.start_mark, f"{node.value[:100]!r}: {error}") from error

    def _mapping(self, node: yaml.MappingNode, location: Location) -> dict[str, Any]:
        if id(node) not in self._flattened:
            self._flattened.add(id(node))
            self._refuse_double_keys(node)
            self._scalars.flatten_mapping(node)
        found = {}
        for key, value in node.value:
            name = self._scalar(key) if isinstance(key, yaml.ScalarNode) else None
            if not isinstance(name, str):
                raise self._error(key.start_mark, "expected text as the key")
            self._document.key_places[(*location, name)] = self._place(key.start_mark)
            found[name] = self._data(value, (*location, name))
        return found

    def _refuse_double_keys(self, node: yaml.MappingNode) -> None:
        seen: set[str] = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode) and key.tag != "tag:yaml.org,2002:merge":
                if key.value in seen:
                    raise self._error(key.start_mark, f"{key.value!r} is given twice")
                seen.add(key.value)
