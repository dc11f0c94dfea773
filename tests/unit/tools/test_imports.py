"""Imports run one way: commands and daemons on top, `squall` and `squall_thrift` below."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]

# What each package may import of the others. No daemon imports another, and the command line
# starts daemons as programs.
ALLOWED = {
    "thrift/squall_thrift": set(),
    "common/squall": {"squall_thrift"},
    "nimbus/squall_nimbus": {"squall", "squall_thrift"},
    "supervisor/squall_supervisor": {"squall", "squall_thrift"},
    "worker/squall_worker": {"squall", "squall_thrift"},
    "drpc/squall_drpc": {"squall", "squall_thrift"},
    # A task on Spark is run by the worker's engine, with Spark for its transport.
    "pipeline/squall_spark": {"squall", "squall_thrift", "squall_worker"},
    "cli/squall_cli": {"squall", "squall_thrift"},
}
# Local mode and the test kit are part of the API and run the worker's engine: they import it when
# they are used, and nothing else does.
EXCEPTIONS = {
    ("common/squall/local.py", "squall_worker"),
    ("common/squall/testing.py", "squall_worker"),
    # A client is no daemon.
    ("cli/squall_cli/commands/drpc_client.py", "squall_drpc"),
}


def imported(path: Path) -> set[str]:
    """Top-level names that a file imports, anywhere in it."""
    names = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names.update(alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names.add(node.module.partition(".")[0])
    return names


@pytest.mark.parametrize("package", ALLOWED)
def test_a_package_imports_only_what_is_below_it(package: str) -> None:
    ours = {Path(name).name for name in ALLOWED}
    wrong = []
    for path in sorted((ROOT / package).rglob("*.py")):
        where = path.relative_to(ROOT).as_posix()
        for name in imported(path) & (ours - {Path(package).name} - ALLOWED[package]):
            if (where, name) not in EXCEPTIONS:
                wrong.append(f"{where} imports {name}")
    assert wrong == []


def modules_imported(path: Path, modules: set[str]) -> set[str]:
    """Which of the modules a file imports, anywhere in it: for types alone, and late, too."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            names = {f"{node.module}.{alias.name}" for alias in node.names}
            found.update(names if names & modules else {node.module})
    return found & modules


@pytest.mark.parametrize("package", ALLOWED)
def test_no_modules_import_each_other_in_a_circle(package: str) -> None:
    top = (ROOT / package).parent
    path_of = {
        ".".join(path.relative_to(top).with_suffix("").parts).removesuffix(".__init__"): path
        for path in sorted((ROOT / package).rglob("*.py"))
    }
    imports = {
        module: modules_imported(path, set(path_of)) - {module} for module, path in path_of.items()
    }
    while leaves := [module for module, others in imports.items() if not others & imports.keys()]:
        for module in leaves:
            del imports[module]
    # What is left is in a circle, or imports one.
    assert {module: sorted(others & imports.keys()) for module, others in imports.items()} == {}


def test_every_package_of_the_distribution_has_its_rule() -> None:
    folders = {
        path.parent.relative_to(ROOT).as_posix() for path in ROOT.glob("*/squall*/__init__.py")
    }
    assert folders == set(ALLOWED)
