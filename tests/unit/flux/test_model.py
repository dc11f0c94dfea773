from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from squall_flux.model import (
    GroupingDef,
    ShapeError,
    StreamDef,
    TopologyDef,
    VertexDef,
    convert,
    json_schema,
)

ROOT = Path(__file__).resolve().parents[3]
VALIDATOR = jsonschema.Draft202012Validator(json_schema())


def test_the_published_schema_is_that_of_the_code() -> None:
    published = json.loads((ROOT / "docs/flux.schema.json").read_text())
    assert published == json_schema(), "run: storm flux --schema > docs/flux.schema.json"
    jsonschema.Draft202012Validator.check_schema(published)


@pytest.mark.parametrize("name", ["words", "shell", "defaults"])
def test_the_schema_accepts_the_examples(name: str) -> None:
    text = (ROOT / f"examples/flux/{name}.yaml").read_text().replace("${repeat}", "1")
    VALIDATOR.validate(yaml.safe_load(text))


VERTEX = {"id": "a", "className": "m:C"}


@pytest.mark.parametrize(
    ("kind", "data", "message", "location"),
    [
        (VertexDef, {"id": "a"}, "the key 'className' is missing", ()),
        (
            VertexDef,
            {**VERTEX, "clasName": 1},
            "unknown key 'clasName'; did you mean 'className'?",
            ("clasName",),
        ),
        (VertexDef, {**VERTEX, "parallelism": 0}, "expected int >= 1", ("parallelism",)),
        (VertexDef, {**VERTEX, "parallelism": "x"}, "expected int, got str", ("parallelism",)),
        (VertexDef, {**VERTEX, "config": []}, "expected mapping | null, got list", ("config",)),
        (
            VertexDef,
            {**VERTEX, "properties": [{"nme": 1}]},
            "unknown key 'nme'; did you mean 'name'?",
            ("properties", 0, "nme"),
        ),
        (VertexDef, [], "expected mapping, got list", ()),
        (StreamDef, {"from": "a", "to": "b"}, "the key 'grouping' is missing", ()),
        (
            GroupingDef,
            {"type": "SHUFLE"},
            "invalid enum value 'SHUFLE'; expected ALL, CUSTOM",
            ("type",),
        ),
        (
            GroupingDef,
            {"type": "CUSTOM", "customClass": {"x": 1}},
            "unknown key 'x'; expected className",
            ("customClass", "x"),
        ),
        (
            TopologyDef,
            {"workerHooks": [{**VERTEX, "parallelism": 1}]},
            "unknown key 'parallelism'; expected className",
            ("workerHooks", 0, "parallelism"),
        ),
    ],
)
def test_data_of_another_shape_is_refused(
    kind: type, data: Any, message: str, location: tuple[str | int, ...]
) -> None:
    with pytest.raises(ShapeError) as raised:
        convert(data, kind)
    assert message in str(raised.value)
    assert raised.value.location == location


@pytest.mark.parametrize(
    "bolt",
    [
        {"id": "a"},
        {**VERTEX, "clasName": 1},
        {**VERTEX, "parallelism": 0},
        {**VERTEX, "config": []},
        {**VERTEX, "properties": [{"nme": 1}]},
        {**VERTEX, "constructorArgs": "text"},
    ],
)
def test_the_schema_refuses_what_the_check_refuses(bolt: Any) -> None:
    assert not VALIDATOR.is_valid({"bolts": [bolt]})
    with pytest.raises(ShapeError):
        convert(bolt, VertexDef)


def test_numbers_in_quotes_are_numbers() -> None:
    assert convert({**VERTEX, "parallelism": "4"}, VertexDef).parallelism == 4
