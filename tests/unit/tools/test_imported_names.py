"""Tests, benchmarks and examples import only names that exist. mypy does not read them; without
this, a name that has moved is missed until the stage runs that imports it."""

from __future__ import annotations

import ast
import functools
import textwrap
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
FOLDERS = ("bench", "docs/code", "examples", "tests")
# The packages whose names are looked up, and where each lies.
HOMES = {path.parent.name: path.parents[1] for path in ROOT.glob("*/squall*/__init__.py")}
HOMES |= {"bench": ROOT, "tests": ROOT}


@dataclass(frozen=True)
class Import:
    """A name that a file imports from a module; None: the module itself."""

    line: int
    module: str
    name: str | None
    for_types: bool  # under `if TYPE_CHECKING`


# Nodes that may have, below them, statements or names that are assigned to.
_LEAD_ON = (
    *(ast.stmt, ast.ExceptHandler, ast.match_case, ast.withitem),
    *(ast.Tuple, ast.List, ast.Starred),
)


def _is_for_types(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"


def imports(body: Iterable[ast.AST], package: str, *, for_types: bool = False) -> Iterator[Import]:
    """What statements of a file in `package` import of the packages that are looked up."""
    for node in body:
        if isinstance(node, ast.Import):
            for one in node.names:
                if one.name.partition(".")[0] in HOMES:
                    yield Import(node.lineno, one.name, None, for_types)
        elif isinstance(node, ast.ImportFrom):
            above = package.split(".")[: package.count(".") + 2 - node.level] if node.level else []
            module = ".".join([*above, *filter(None, [node.module])])
            if module.partition(".")[0] in HOMES:
                for one in node.names:
                    yield Import(node.lineno, module, one.name, for_types)
        elif _is_for_types(node):
            assert isinstance(node, ast.If)
            yield from imports(node.body, package, for_types=True)
            yield from imports(node.orelse, package, for_types=for_types)
        elif isinstance(node, _LEAD_ON):
            yield from imports(ast.iter_child_nodes(node), package, for_types=for_types)


def bound(body: Iterable[ast.AST], *, for_types: bool = False) -> dict[str, bool]:
    """The names that statements of a module bind, also those in an `if`, `try` or `with`, and
    whether a program has them, or only a type checker."""
    found: dict[str, bool] = {}

    def add(names: Mapping[str, bool]) -> None:
        for name, has in names.items():
            found[name] = has or found.get(name, False)

    for node in body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            add({node.name: not for_types})
        elif isinstance(node, ast.Import | ast.ImportFrom):
            names = [one.asname or one.name.partition(".")[0] for one in node.names]
            add(dict.fromkeys(names, not for_types))
        elif isinstance(node, ast.Name):
            add({node.id: not for_types} if isinstance(node.ctx, ast.Store) else {})
        elif _is_for_types(node):
            assert isinstance(node, ast.If)
            add(bound(node.body, for_types=True))
            add(bound(node.orelse, for_types=for_types))
        elif isinstance(node, _LEAD_ON):
            add(bound(ast.iter_child_nodes(node), for_types=for_types))
    return found


def _path(module: str) -> Path:
    return HOMES[module.partition(".")[0]].joinpath(*module.split("."))


@functools.cache
def _is_module(module: str) -> bool:
    path = _path(module)
    return path.is_dir() or any(path.with_suffix(end).is_file() for end in (".py", ".pyx"))


@functools.cache
def _names(module: str) -> dict[str, bool]:
    """The names of a module, and of its stub: what is compiled or made of data has one."""
    path = _path(module)
    found: dict[str, bool] = {}
    for source in (path.with_suffix(".pyi"), path.with_suffix(".py"), path / "__init__.py"):
        if source.is_file():
            found |= bound(ast.parse(source.read_bytes()).body)
    if "__getattr__" in found:  # it imports what is declared for types
        found = dict.fromkeys(found, True)
    return found


def problem(one: Import) -> str | None:
    """What is wrong with an import; None: nothing."""
    if not _is_module(one.module):
        return f"there is no {one.module}"
    if one.name in (None, "*") or _is_module(f"{one.module}.{one.name}"):
        return None
    has = _names(one.module).get(one.name)
    if has is None:
        return f"{one.module} has no {one.name}"
    if not has and not one.for_types:
        return f"{one.module} has {one.name} for type checkers only"
    return None


def problems(source: str | bytes, package: str) -> list[tuple[int, str]]:
    """What is wrong with the imports of a file in `package`, each with its line."""
    found = imports(ast.parse(source).body, package)
    return [(one.line, said) for one in found if (said := problem(one)) is not None]


def test_every_imported_name_exists() -> None:
    wrong = []
    for path in (path for name in FOLDERS for path in sorted((ROOT / name).rglob("*.py"))):
        place = path.relative_to(ROOT)
        found = problems(path.read_bytes(), ".".join(place.parts[:-1]))
        wrong += [f"{place}:{line}: {said}" for line, said in found]
    assert wrong == [], "\n".join(wrong)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("from squall import Bolt, Nut", "squall has no Nut"),
        ("from squall.windows import tumbling, gone", "squall.windows has no gone"),
        ("from squall.gone import Bolt", "there is no squall.gone"),
        ("import squall.gone", "there is no squall.gone"),
        ("from squall_engine.core.compiled import Nut", "squall_engine.core.compiled has no Nut"),
        ("from squall_thrift.storm import Nut", "squall_thrift.storm has no Nut"),
        ("from . import gone", "tests.unit.tools has no gone"),
        ("from ..conftest import gone", "tests.unit.conftest has no gone"),
        (
            "from squall.windows.driven import Codec",
            "squall.windows.driven has Codec for type checkers only",
        ),
        ("def test():\n try:\n  pass\n finally:\n  import bench.gone", "there is no bench.gone"),
    ],
)
def test_an_import_of_what_does_not_exist_is_found(line: str, said: str) -> None:
    ((_, found),) = problems(line, "tests.unit.tools")
    assert found == said


@pytest.mark.parametrize(
    "line",
    [
        "from squall import Bolt, windows",
        "from squall.windows import *",
        "import squall.windows, squall_engine.core.compiled, json.gone",
        "from squall_engine.core.compiled import Tuple",
        "from squall_thrift.storm import Bolt, TopologySummary",
        "from ..conftest import HOOK, sys",
        "from . import test_names",
        "from .test_names import _is_named",
        "if TYPE_CHECKING:\n from squall.windows.driven import Codec",
    ],
)
def test_an_import_of_what_exists_is_not(line: str) -> None:
    assert problems(line, "tests.unit.tools") == []


def test_names_are_found_wherever_a_module_binds_them() -> None:
    source = """
        import a.b, c as d
        if x:
            first, *rest = y
        try:
            from e import f
        except ImportError:
            f = None
        else:
            with z as opened:
                typed: int = 1
        for n, (m, [k]) in z:
            several = chained = [hidden for hidden in z]
        if TYPE_CHECKING:
            from g import OnlyTyped, f
        else:
            OnlyRun = 1
        class C:
            inner = 1
        async def function():
            local = 1
        obj.attribute = items[0] = 1
    """
    found = bound(ast.parse(textwrap.dedent(source)).body)
    run = {"a", "d", "first", "rest", "f", "opened", "typed", "n", "m", "k", "several", "chained"}
    run |= {"OnlyRun", "C", "function"}
    assert found == dict.fromkeys(run, True) | {"OnlyTyped": False}
