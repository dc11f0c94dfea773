"""The schemas on docs/json.md."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import jsonschema

_PAGE = Path(__file__).parents[2] / "docs" / "json.md"
_BLOCK = re.compile(r"<!-- schema: (.+?) -->\n```json\n(.*?)\n```", re.DOTALL)


def schemas() -> dict[str, Any]:
    """Each by its command, such as `storm list`; a schema that is not valid raises."""
    found = {name: json.loads(text) for name, text in _BLOCK.findall(_PAGE.read_text("utf-8"))}
    for schema in found.values():
        jsonschema.Draft202012Validator.check_schema(schema)
    return found
