"""The shape of a Flux file: what is checked, and published as a JSON Schema, from one declaration.

Names are Storm's. `PARTIAL_KEY`, and constructor arguments by name, are Squall's own.
"""

from __future__ import annotations

import difflib
import re
from enum import Enum
from typing import Annotated, Any, TypeVar

import msgspec

Text = Annotated[str, msgspec.Meta(min_length=1)]
Count = Annotated[int, msgspec.Meta(ge=1, le=1_000_000)]
Load = Annotated[float, msgspec.Meta(ge=0)]
Arguments = Annotated[
    list[Any] | dict[str, Any] | None,
    msgspec.Meta(
        description="A list of values, or a mapping from parameter names to values. "
        "`{ref: ID}` stands for a component, `{reflist: [ID, ...]}` for a list of them."
    ),
]


class _Struct(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    pass


class PropertyDef(_Struct, kw_only=True):
    """An attribute to set after the constructor; by its setter, if the class has one."""

    name: Text
    value: Any = None
    ref: Annotated[str, msgspec.Meta(description="The id of a component.")] | None = None


class ConfigMethodDef(_Struct, kw_only=True):
    """A method to call after the constructor and the properties."""

    name: Text
    args: Arguments = None


class ObjectDef(_Struct, kw_only=True):
    """An object to make."""

    class_name: Annotated[
        str,
        msgspec.Meta(
            min_length=1,
            description="A Python class or function, module:Name or module.Name, or one of Storm's "
            "Java classes that Squall has.",
        ),
    ]
    constructor_args: Arguments = None
    factory: Annotated[str, msgspec.Meta(description="A method of the class that makes it.")] | (
        None
    ) = None
    factory_args: Arguments = None
    properties: list[PropertyDef] | None = None
    config_methods: list[ConfigMethodDef] | None = None


class BeanDef(ObjectDef, kw_only=True):
    """An object that others refer to by its id."""

    id: Text


class VertexDef(BeanDef, kw_only=True):
    """A spout or a bolt."""

    parallelism: Annotated[Count, msgspec.Meta(description="Executors.")] = 1
    num_tasks: Annotated[Count, msgspec.Meta(description="Tasks; one an executor if missing.")] | (
        None
    ) = None
    on_heap_memory_load: Annotated[Load, msgspec.Meta(description="MiB of a task.")] | None = None
    off_heap_memory_load: Annotated[Load, msgspec.Meta(description="MiB of a task.")] | None = None
    cpu_load: Annotated[Load, msgspec.Meta(description="Percent of a core.")] | None = None
    config: dict[str, Any] | None = None


class GroupingType(Enum):
    """How a stream's tuples are spread over the tasks of a bolt."""

    ALL = "ALL"
    CUSTOM = "CUSTOM"
    DIRECT = "DIRECT"
    SHUFFLE = "SHUFFLE"
    LOCAL_OR_SHUFFLE = "LOCAL_OR_SHUFFLE"
    FIELDS = "FIELDS"
    GLOBAL = "GLOBAL"
    NONE = "NONE"
    PARTIAL_KEY = "PARTIAL_KEY"


class GroupingDef(_Struct, kw_only=True):
    """A grouping, and the stream that it groups."""

    type: GroupingType
    stream_id: Annotated[str, msgspec.Meta(min_length=1)] | None = None
    args: Annotated[list[str], msgspec.Meta(description="Fields, of FIELDS and PARTIAL_KEY.")] | (
        None
    ) = None
    custom_class: Annotated[ObjectDef, msgspec.Meta(description="Of CUSTOM.")] | None = None


class StreamDef(_Struct, kw_only=True):
    """A connection from a spout or bolt to a bolt."""

    name: Annotated[str, msgspec.Meta(description="For readers of the file only.")] | None = None
    id: str | None = None
    source: Text = msgspec.field(name="from")
    to: Text
    grouping: GroupingDef


class IncludeDef(_Struct, kw_only=True):
    """Another file whose definitions belong to this one."""

    file: Text
    resource: Annotated[
        bool, msgspec.Meta(description="Whether it is in the package, not beside this file.")
    ] = False
    override: Annotated[
        bool, msgspec.Meta(description="Whether its definitions win over those of this file.")
    ] = False


class TopologySourceDef(ObjectDef, kw_only=True):
    """A class of which a method, or a function which itself, returns the topology."""

    method_name: Text = "getTopology"


class TopologyDef(_Struct, kw_only=True):
    """A topology that `storm flux` runs."""

    name: Text | None = None
    config: (
        Annotated[dict[str, Any], msgspec.Meta(description="The topology's configuration.")] | None
    ) = None
    includes: list[IncludeDef] | None = None
    components: list[BeanDef] | None = None
    topology_source: TopologySourceDef | None = None
    spouts: list[VertexDef] | None = None
    bolts: list[VertexDef] | None = None
    streams: list[StreamDef] | None = None
    worker_hooks: (
        Annotated[list[BeanDef], msgspec.Meta(description="Objects of subclasses of WorkerHook.")]
        | None
    ) = None


def json_schema() -> dict[str, Any]:
    """The JSON Schema of a Flux file (2020-12), for editors."""
    found = msgspec.json.schema(TopologyDef)
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Flux topology",
        **found,
    }


_T = TypeVar("_T")
_AT = re.compile(r"(.*?)(?: - at `(key in )?\$(.*)`)?", re.DOTALL)
_STEP = re.compile(r"\.([A-Za-z_]\w*)|\[(\d+)\]|\[\.\.\.\]")
_UNKNOWN = re.compile(r"Object contains unknown field `(.*)`", re.DOTALL)
_MISSING = re.compile(r"Object missing required field `(.*)`")


class ShapeError(Exception):
    """Data of another shape. `location` leads to the value, from the converted data; `key` says
    that it is the key there which is wrong."""

    def __init__(self, message: str, location: tuple[str | int, ...], *, key: bool = False) -> None:
        super().__init__(message)
        self.location = location
        self.key = key


def convert(data: Any, kind: type[_T]) -> _T:
    """Data as an object of a type of this module. Raises ShapeError."""
    try:
        # Numbers in quotes are accepted, as in Storm: "${parallelism}".
        return msgspec.convert(data, kind, strict=False)
    except msgspec.ValidationError as error:
        raise _shape_error(str(error), kind) from None


def _shape_error(text: str, kind: Any) -> ShapeError:
    match = _AT.fullmatch(text)
    assert match is not None
    message, path = match[1], match[3] or ""
    location: tuple[str | int, ...] = ()
    for name, index in _STEP.findall(path):
        if name or index:
            location += (name or int(index),)
    unknown = _UNKNOWN.fullmatch(message)
    if unknown is not None:
        known = _fields_at(kind, location)
        near = difflib.get_close_matches(unknown[1], known, n=1)
        expected = f"did you mean {near[0]!r}?" if near else "expected " + ", ".join(known)
        return ShapeError(
            f"unknown key {unknown[1]!r}; {expected}", (*location, unknown[1]), key=True
        )
    missing = _MISSING.fullmatch(message)
    if missing is not None:
        return ShapeError(f"the key {missing[1]!r} is missing", location)
    if message.startswith("Invalid enum value"):
        known = [member.value for member in GroupingType]
        message += "; expected " + ", ".join(known)
    plain = message.replace("`", "").replace("Expected", "expected", 1).replace("object", "mapping")
    plain = plain.replace("array", "list").replace("Invalid", "invalid", 1)
    return ShapeError(plain, location)


def _fields_at(kind: Any, location: tuple[str | int, ...]) -> list[str]:
    """The keys that the mapping at a location may have."""
    described: Any = msgspec.inspect.type_info(kind)
    for step in location:
        described = _struct_in(described, step)
    described = _struct_in(described, None)
    return [field.encode_name for field in getattr(described, "fields", ())]


def _struct_in(described: Any, step: str | int | None) -> Any:
    """The description of a value inside another; of `step` None, of the struct in a union."""
    options = getattr(described, "types", (described,))
    for option in options:
        while isinstance(option, msgspec.inspect.Metadata):
            option = option.type
        if isinstance(option, msgspec.inspect.StructType):
            if step is None:
                return option
            for field in option.fields:
                if field.encode_name == step:
                    return field.type
        elif isinstance(option, msgspec.inspect.ListType) and isinstance(step, int):
            return option.item_type
    return described
