"""Finds in the source of the product which options a module reads."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from squall_common.config.options import OPTIONS

ROOT = Path(__file__).parents[2]
CODE = (
    "api", "cli", "common", "connectors", "drpc", "engine", "nimbus", "pipeline", "supervisor",
    "thrift", "ui", "worker",
)  # fmt: skip
# Reads and merges configurations, and so names keys.
CONFIG = ROOT / "common" / "squall_common" / "config"

# Thrift's structs have such a field as well.
_ALSO_THRIFTS = {"storm_id", "topology_version"}
_KEY_OF = {option.field: option.key for option in OPTIONS.values()}


def looks_up_by_key(path: Path) -> bool:
    return path.is_relative_to(CONFIG)


def options_read(path: Path) -> set[str]:
    """The keys of the options that a module reads as fields of typed options; where options are
    still looked up by key, also those that it names."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    read = {
        _KEY_OF[node.attr]
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute)
        and isinstance(node.ctx, ast.Load)
        and node.attr in _KEY_OF
        and not (node.attr in _ALSO_THRIFTS and "options" not in ast.unparse(node.value))
    }
    return read | _named(tree) if looks_up_by_key(path) else read


def _named(tree: ast.AST) -> set[str]:
    """The options whose value a module may look up: named as text, but not as the key of a map
    that is written, as the target of an assignment, or as a member of a set of names."""
    passed: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Dict):
            passed |= {id(key) for key in node.keys if key is not None}
        elif isinstance(node, ast.Set):
            passed |= {id(element) for element in node.elts}
        elif isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store):
            passed.add(id(node.slice))
    return {
        node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and node.value in OPTIONS and id(node) not in passed
    }


def lookups(source: str, constants: dict[str, str]) -> list[tuple[int, str]]:
    """Each look-up of an option by its key (`conf["a.key"]`, `conf.get("a.key")`): line and key.
    `constants` are the names that stand for a key."""
    found = []
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Subscript(slice=index, ctx=ast.Load()):
                pass
            case ast.Call(func=ast.Attribute(attr="get" | "pop" | "setdefault"), args=[index, *_]):
                pass
            case _:
                continue
        key = _key(index, constants)
        if key is not None:
            found.append((node.lineno, key))
    return found


def _key(node: ast.expr, constants: dict[str, str]) -> str | None:
    match node:
        case ast.Constant(value=str() as key) if key in OPTIONS:
            return key
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return constants.get(name)
    return None


def key_constants(source: str) -> dict[str, str]:
    """The module's constants that hold the key of an option."""
    found = {}
    for node in ast.parse(source).body:
        match node:
            case ast.Assign(targets=[ast.Name(id=name)], value=ast.Constant(value=str() as key)):
                if key in OPTIONS:
                    found[name] = key
    return found


def modules() -> Iterator[Path]:
    """Every module of the product."""
    for folder in CODE:
        yield from (ROOT / folder).rglob("*.py")
