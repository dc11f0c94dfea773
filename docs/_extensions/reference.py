"""Pages of the reference that are made from the code when the site is built, so that they are
never out of date. They are not in the repository.

    docs/reference/commands.md   every command, from its own help
    docs/reference/errors.md     every error that says what to do, from the places that raise it
    docs/reference/flux-keys.md  every key of a Flux file, from the JSON Schema
    docs/reference/metrics.md    every family of Prometheus' page, from the places that declare it
    docs/reference/rest.md       every route of the UI's REST API, from its OpenAPI document
    docs/reference/api/connectors.md, and below api/connectors/
                                 every connector, from the packages' `__all__`

(The tables of docs/configuration.md are in the repository: `make options` writes them.)
"""

from __future__ import annotations

import ast
import importlib
import json
import pkgutil
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import click
from sphinx.application import Sphinx

ROOT = Path(__file__).resolve().parents[2]
PAGES = ROOT / "docs" / "reference"
HELP_COLUMNS = 88
NOTE = "<!-- Made when the site is built: do not edit. -->\n\n"


# ---- commands ----


def commands_page() -> str:
    """Every command, and every command of a group, with what `--help` prints."""
    from squall_cli.main import SECTIONS, storm

    parts = [
        NOTE,
        "# Commands\n\n",
        "What `storm COMMAND --help` prints, for every command. Data goes to stdout, messages to\n"
        "stderr. The exit status is 0 for success, 1 for a failure that one message explains, 2\n"
        "for wrong usage, and 130 after Ctrl-C.\n\n",
        f"```text\n{_help(storm, 'storm', None)}```\n",
    ]
    context = click.Context(storm, info_name="storm")
    for section, names in SECTIONS.items():
        parts.append(f"\n## {section}\n")
        for name in names:
            command = storm.get_command(context, name)
            assert command is not None
            for path, one, parent in _with_commands(command, f"storm {name}", context):
                parts.append(f"\n### {path}\n\n```text\n{_help(one, path, parent)}```\n")
    return "".join(parts)


def _with_commands(
    command: click.Command, path: str, parent: click.Context
) -> Iterator[tuple[str, click.Command, click.Context]]:
    yield path, command, parent
    if isinstance(command, click.Group):
        context = click.Context(command, info_name=path.split()[-1], parent=parent)
        for name in command.list_commands(context):
            inner = command.get_command(context, name)
            if inner is not None and not inner.hidden:
                yield from _with_commands(inner, f"{path} {name}", context)


def _help(command: click.Command, path: str, parent: click.Context | None) -> str:
    context = click.Context(
        command,
        info_name=path.split()[-1],
        parent=parent,
        terminal_width=HELP_COLUMNS,
        max_content_width=HELP_COLUMNS,
        help_option_names=["-h", "--help"],
    )
    return command.get_help(context) + "\n"


# ---- errors ----


@dataclass(frozen=True, slots=True)
class Raised:
    """An error that is raised with a hint. Parts that differ each time are in capitals."""

    package: str
    kind: str
    message: str
    hint: str


def errors_page() -> str:
    """Errors with their remedies, by the package that raises them."""
    parts = [
        NOTE,
        "# Errors and what to do\n\n",
        "Every error that comes with a hint, as Squall prints it: `error:` and `hint:` on the\n"
        "command line, or the message of the exception. Words in capitals stand for what differs\n"
        "from case to case. Search this page for a few words of your message.\n",
    ]
    by_package: dict[str, set[Raised]] = {}
    for raised in raised_errors():
        by_package.setdefault(raised.package, set()).add(raised)
    for package, found in sorted(by_package.items()):
        parts.append(f"\n## {package}\n\n| error | message | what to do |\n|---|---|---|\n")
        for one in sorted(found, key=lambda one: (one.kind, one.message, one.hint)):
            parts.append(f"| `{one.kind}` | {_cell(one.message)} | {_cell(one.hint)} |\n")
    return "".join(parts)


def raised_errors() -> Iterator[Raised]:
    """The calls of error classes with `hint=`, in every package of the product."""
    for package, node in _nodes():
        raised = _raised(node, package)
        if raised is not None:
            yield raised


def _nodes() -> Iterator[tuple[str, ast.AST]]:
    """The syntax of every package of the product, with the package's name."""
    for package, module in _modules():
        for node in ast.walk(module):
            yield package, node


@cache
def _modules() -> list[tuple[str, ast.Module]]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    return [
        (Path(folder).name, ast.parse(path.read_text()))
        for folder in project["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]
        for path in sorted((ROOT / folder).rglob("*.py"))
    ]


def _raised(node: ast.AST, package: str) -> Raised | None:
    if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.args):
        return None
    if not node.func.id.endswith("Error"):
        return None
    hint = next((_text(word.value) for word in node.keywords if word.arg == "hint"), None)
    message = _text(node.args[0])
    # One that is put together elsewhere has no words to search for.
    if not hint or not message or not any(part.islower() for part in message.split()):
        return None
    return Raised(package, node.func.id, message, hint)


def _text(node: ast.expr) -> str | None:
    """A string, with the name of each expression in it in capitals."""
    match node:
        case ast.Constant(value=str(value)):
            return value
        case ast.JoinedStr(values=values):
            return "".join(
                part.value if isinstance(part, ast.Constant) else _placeholder(part)  # type: ignore[attr-defined]
                for part in values
            )
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            return f"{_text(left) or '...'}{_text(right) or '...'}"
        case ast.IfExp(body=body, orelse=orelse):
            return _text(body) or _text(orelse)
        case _:
            return None


def _placeholder(node: ast.expr) -> str:
    value = node.value if isinstance(node, ast.FormattedValue) else node
    while isinstance(value, ast.Call | ast.Subscript):
        if isinstance(value, ast.Call) and value.args:
            value = value.args[-1]
        else:
            value = value.func if isinstance(value, ast.Call) else value.value
    name = value.attr if isinstance(value, ast.Attribute) else getattr(value, "id", "")
    return name.strip("_").upper() or "..."


# ---- metrics ----


@dataclass(frozen=True, slots=True, order=True)
class Metric:
    """A family of metrics, as the code declares it."""

    package: str
    name: str
    kind: str
    labels: tuple[str, ...]
    text: str


def metrics_page() -> str:
    """Every family of metrics that Prometheus can read, by the package that declares it."""
    parts = [
        NOTE,
        "# Metrics\n\n",
        "What the pages for Prometheus have: [how to read them](../metrics.md#prometheus).\n"
        "The names of a counter's samples end with `_total`. The workers' families, declared in\n"
        "`squall_common`, also have the labels `topology` and `port`.\n",
    ]
    package = ""
    for one in sorted(set(declared_metrics())):
        if one.package != package:
            package = one.package
            parts.append(f"\n## {package}\n\n| family | kind | labels | |\n|---|---|---|---|\n")
        labels = ", ".join(f"`{label}`" for label in one.labels)
        parts.append(f"| `{one.name}` | {one.kind} | {labels} | {_cell(one.text)} |\n")
    return "".join(parts)


def declared_metrics() -> Iterator[Metric]:
    """The calls whose arguments begin with a name `squall_...`, and have a sentence."""
    for package, node in _nodes():
        if not isinstance(node, ast.Call):
            continue
        texts = [
            one.value
            for one in node.args
            if isinstance(one, ast.Constant) and isinstance(one.value, str)
        ]
        sentence = next((text for text in texts[1:] if text.endswith(".")), None)
        if not texts or not texts[0].startswith("squall_") or sentence is None:
            continue
        function = ast.unparse(node.func).lower()
        kinds = ("counter", "histogram", "gauge")
        kind = next((one for one in kinds if one in function or one in texts[1:2]), "gauge")
        lists = [*node.args, *(word.value for word in node.keywords if word.arg == "labels")]
        labels = [
            one.value
            for found in lists
            if isinstance(found, ast.List | ast.Tuple)
            for one in found.elts
            if isinstance(one, ast.Constant)
        ]
        labels += texts[texts.index(sentence) + 1 :]
        yield Metric(package, texts[0], kind, tuple(labels), sentence)


# ---- connectors ----


def connector_pages() -> Iterator[tuple[str, str]]:
    """Names and texts: a page for each system, and one that lists them. What they share comes
    last."""
    import squall_connectors

    rooms = sorted(
        (room.name for room in pkgutil.iter_modules(squall_connectors.__path__) if room.ispkg),
        key=lambda room: (room == "base", room),
    )
    yield (
        "api/connectors.md",
        f"{NOTE}# Connectors\n\n"
        "Spouts and bolts for other systems: [how they compare](../../connectors.md). The classes\n"
        "are in `squall_connectors.SYSTEM`; importing them imports no client.\n\n"
        "```{toctree}\n:maxdepth: 2\n\n"
        + "".join(f"connectors/{room}\n" for room in rooms)
        + "```\n",
    )
    for room in rooms:
        module = importlib.import_module(f"squall_connectors.{room}")
        title = "Your own connectors" if room == "base" else f"squall_connectors.{room}"
        classes = "".join(
            f"\n```{{eval-rst}}\n.. autoclass:: squall_connectors.{room}.{name}\n   :members:\n"
            "   :show-inheritance:\n```\n"
            for name in module.__all__
        )
        yield f"api/connectors/{room}.md", f"{NOTE}# {title}\n{classes}"


# ---- Flux ----


def flux_page() -> str:
    """Every key of a Flux file, a table for each kind of mapping."""
    from squall_flux.model import json_schema

    schema = json_schema()
    found: dict[str, Any] = schema["$defs"]
    parts = [
        NOTE,
        "# Keys of Flux files\n\n",
        "The mappings of a YAML file for `storm flux`, and their keys: [how to write\n"
        "one](../flux.md). The [JSON Schema](../flux.schema.json) says the same to editors.\n",
    ]
    order = ["TopologyDef", *sorted(name for name in found if name != "TopologyDef")]
    for name in order:
        struct = found[name]
        title = "The file" if name == "TopologyDef" else name.removesuffix("Def")
        parts.append(f"\n## {title}\n\n{struct.get('description', '').strip()}\n\n")
        if "enum" in struct:
            parts.append(", ".join(f"`{one}`" for one in struct["enum"]) + "\n")
            continue
        parts.append("| key | value | default | |\n|---|---|---|---|\n")
        required = struct.get("required", ())
        for key, value in struct.get("properties", {}).items():
            default = "required" if key in required else _default(value.get("default"))
            described = _cell(" ".join(_described(value)))
            parts.append(f"| `{key}` | {_value(value)} | {default} | {described} |\n")
    return "".join(parts)


def _default(value: object) -> str:
    return "" if value is None else f"`{json.dumps(value)}`"


def _value(schema: dict[str, Any]) -> str:
    """What a value may be: `text`, `list of Bean`."""
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2].removesuffix("Def")
        return f"[{name}](#{name.lower()})"
    options = schema.get("anyOf") or schema.get("oneOf")
    if options is not None:
        found = [_value(one) for one in options if one.get("type") != "null"]
        return " or ".join(dict.fromkeys(found))
    kind = schema.get("type")
    if kind == "array":
        items = schema.get("items") or {}
        return f"list of {_value(items)}" if items else "list"
    names = {"string": "text", "object": "mapping", "integer": "whole number", None: "anything"}
    return names.get(kind, str(kind))


def _described(schema: dict[str, Any]) -> Iterator[str]:
    if "description" in schema:
        yield schema["description"]
    for one in (*schema.get("anyOf", ()), *schema.get("oneOf", ())):
        yield from _described(one)


# ---- REST ----


def rest_page() -> str:
    """Every route of the REST API, by what it is about, with its parameters and its answer."""
    from squall_ui.rest.api import ENDPOINTS
    from squall_ui.rest.openapi import document

    parts = [
        NOTE,
        "# REST API\n\n",
        "The routes of `storm ui`, as its OpenAPI document has them:\n"
        "`GET /api/v1/openapi.json` gives that to programs. [Web UI, REST API, logs](../ui.md)\n"
        "says where they differ from Storm's, and has the routes of the logviewer. Every answer\n"
        "may be an error instead: `error` and `errorMessage`, with a status from 400 on.\n",
    ]
    subject = ""
    for path, methods in document(ENDPOINTS, version="")["paths"].items():
        found = path.split("/")[3].removesuffix(".json").removesuffix("-workers")
        if found != subject:
            subject = found
            parts.append(f"\n## {subject}\n")
        for method, operation in methods.items():
            parts.append(f"\n### {method.upper()} {path}\n\n{operation['summary']}\n")
            parts.extend(_operation(operation))
    return "".join(parts)


def _operation(operation: dict[str, Any]) -> Iterator[str]:
    if operation["parameters"]:
        yield "\n| parameter | in | |\n|---|---|---|\n"
    for one in operation["parameters"]:
        yield f"| `{one['name']}` | {one['in']} | {_cell(one['description'])} |\n"
    if "requestBody" in operation:
        body = operation["requestBody"]["content"]["application/json"]["schema"]
        yield "\nThe body, which may be left out:\n\n```text\n"
        yield from _outline(body, 0)
        yield "```\n"
    ((kind, answer),) = operation["responses"]["200"]["content"].items()
    yield f"\nThe answer (`{kind}`):\n\n```text\n"
    yield from _outline(answer["schema"], 0)
    yield "```\n"


def _outline(schema: dict[str, Any], depth: int) -> Iterator[str]:
    """A JSON Schema as lines `name: type`, with what is inside of a value below it."""
    if not schema.get("properties"):
        yield f"{'    ' * depth}{_json_type(schema)}\n"
    for name, value in schema.get("properties", {}).items():
        optional = "" if name in schema.get("required", ()) else " (optional)"
        yield f"{'    ' * depth}{name}: {_json_type(value)}{optional}\n"
        inside = _struct(value)
        if inside is not None:
            yield from _outline(inside, depth + 1)


def _struct(schema: dict[str, Any]) -> dict[str, Any] | None:
    """The object with named fields in a value: itself, or in a list, in a map, or or-null."""
    if schema.get("properties"):
        return schema
    within = [schema.get("items"), schema.get("additionalProperties"), *schema.get("anyOf", ())]
    found = (_struct(one) for one in within if isinstance(one, dict))
    return next((one for one in found if one is not None), None)


def _json_type(schema: dict[str, Any]) -> str:
    if "anyOf" in schema:
        return " or ".join(_json_type(one) for one in schema["anyOf"])
    if "enum" in schema:
        return " | ".join(json.dumps(one) for one in schema["enum"])
    kind = schema.get("type")
    if isinstance(kind, list):
        return " or ".join(_json_type({"type": one}) for one in kind)
    if kind == "array":
        return f"list of {_json_type(schema.get('items') or {})}"
    if kind == "object" and isinstance(schema.get("additionalProperties"), dict):
        return f"object, each value: {_json_type(schema['additionalProperties'])}"
    names = {"string": "text", "integer": "whole number", None: "anything"}
    return names.get(kind, str(kind))


def _cell(text: str) -> str:
    text = " ".join(text.split())
    for char in "\\`*_<>[]|$":
        text = text.replace(char, f"\\{char}")
    return text


def _write(app: Sphinx) -> None:
    PAGES.mkdir(exist_ok=True)
    pages = {
        "commands.md": commands_page(),
        "errors.md": errors_page(),
        "flux-keys.md": flux_page(),
        "metrics.md": metrics_page(),
        "rest.md": rest_page(),
        **dict(connector_pages()),
    }
    for name, text in pages.items():
        page = PAGES / name
        page.parent.mkdir(exist_ok=True)
        if not page.exists() or page.read_text(encoding="utf-8") != text:
            page.write_text(text, encoding="utf-8")


def setup(app: Sphinx) -> dict[str, Any]:
    app.connect("builder-inited", _write)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
