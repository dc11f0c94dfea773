"""The OpenAPI 3.1 document of the REST API, made from its endpoints."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from squall_ui.rest.endpoints import ERROR, PREFIX, Endpoint

_PART = re.compile(r"[^A-Za-z0-9]+")


def document(endpoints: Iterable[Endpoint], *, version: str) -> dict[str, Any]:
    """The whole document."""
    paths: dict[str, dict[str, Any]] = {}
    for one in endpoints:
        paths.setdefault(f"{PREFIX}{one.path}", {})[one.method.lower()] = _operation(one)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Squall UI REST API",
            "version": version,
            "description": "Apache Storm's UI REST API, as Squall answers it. Requests that may "
            "come from another site's page are refused.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "paths": paths,
        "components": {"schemas": {"Error": ERROR}},
    }


def _operation(one: Endpoint) -> dict[str, Any]:
    operation: dict[str, Any] = {
        "operationId": _PART.sub("_", f"{one.method.lower()} {one.path}").strip("_"),
        "summary": one.sentence,
        "parameters": [
            {
                "name": param.name,
                "in": "path" if param.in_path else "query",
                "required": param.in_path,
                "description": param.sentence,
                "schema": param.shape,
            }
            for param in one.params
        ],
        "responses": {
            "200": {
                "description": "The answer.",
                "content": {one.content_type: {"schema": one.answer}},
            },
            "default": {
                "description": "It failed; errorMessage says why.",
                "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}},
            },
        },
    }
    if one.body is not None:
        operation["requestBody"] = {
            "required": False,
            "content": {"application/json": {"schema": one.body}},
        }
    return operation
