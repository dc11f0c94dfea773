"""Shapes of JSON values, as JSON Schema (the dialect of OpenAPI 3.1).

    TOPOLOGY = obj(id=TEXT, uptimeSeconds=COUNT, owner=TEXT, lastError=nullable(TEXT))

An object has exactly the fields that its shape names, so that a test notices a field that the
document does not describe. Names that are no identifiers go into `more`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Shape = dict[str, Any]

TEXT: Shape = {"type": "string"}
COUNT: Shape = {"type": "integer"}
NUMBER: Shape = {"type": "number"}
FLAG: Shape = {"type": "boolean"}
ANY: Shape = {}
# Storm writes latencies and capacities as text with three decimals.
DECIMAL: Shape = {"type": "string", "pattern": r"^-?[0-9]+\.[0-9]{3}$"}


def nullable(shape: Shape) -> Shape:
    """The same, or null."""
    return {"anyOf": [shape, {"type": "null"}]}


def array(items: Shape) -> Shape:
    """A list of these."""
    return {"type": "array", "items": items}


def map_of(values: Shape) -> Shape:
    """An object with any names."""
    return {"type": "object", "additionalProperties": values}


def obj(
    more: Mapping[str, Shape] | None = None,
    *,
    optional: Mapping[str, Shape] | None = None,
    **fields: Shape,
) -> Shape:
    """An object with these fields, of which only `optional` ones may be missing."""
    required = {**fields, **(more or {})}
    return {
        "type": "object",
        "properties": {**required, **(optional or {})},
        "required": sorted(required),
        "additionalProperties": False,
    }


def extended(base: Shape, other: Shape) -> Shape:
    """An object with the fields of both."""
    return {
        "type": "object",
        "properties": {**base["properties"], **other["properties"]},
        "required": sorted({*base["required"], *other["required"]}),
        "additionalProperties": False,
    }
