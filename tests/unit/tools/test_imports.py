"""Imports between packages point down only: docs/architecture.md describes them under "The
packages"."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
PACKAGES = {
    "thrift": "squall_thrift",
    "common": "squall_common",
    "engine": "squall_engine",
    "api": "squall",
    "nimbus": "squall_nimbus",
    "supervisor": "squall_supervisor",
    "worker": "squall_worker",
    "drpc": "squall_drpc",
    "pipeline": "squall_spark",
    "cli": "squall_cli",
}
# What each package may import, besides itself. Daemons are started as programs, never imported.
BELOW = {
    "squall_thrift": set(),
    "squall_common": {"squall_thrift"},
    "squall_engine": {"squall_common"},
    "squall": {"squall_engine", "squall_common", "squall_thrift"},
    "squall_nimbus": {"squall_common", "squall_thrift"},
    "squall_supervisor": {"squall_common", "squall_thrift"},
    "squall_worker": {"squall_engine", "squall_common", "squall_thrift"},
    "squall_drpc": {"squall", "squall_common", "squall_thrift"},
    "squall_spark": {"squall", "squall_engine", "squall_common"},
    "squall_cli": {"squall", "squall_drpc", "squall_common", "squall_thrift"},
}


def modules(package: str) -> Iterator[tuple[str, Path]]:
    """Each module of a package with its file."""
    folder = next(ROOT / name for name, packed in PACKAGES.items() if packed == package)
    for file in (folder / package).rglob("*.py"):
        parts = file.relative_to(folder).with_suffix("").parts
        yield ".".join(parts[:-1] if parts[-1] == "__init__" else parts), file


def imports(file: Path) -> Iterator[str]:
    """The modules that a file imports, at its top or later; of a `from` import, also the names,
    which may be modules."""
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module is not None and node.level == 0:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def test_imports_between_packages_point_down() -> None:
    wrong = {
        f"{module} imports {name}"
        for package, below in BELOW.items()
        for module, file in modules(package)
        for name in imports(file)
        if (other := name.partition(".")[0]) in BELOW and other not in {package, *below}
    }
    assert not wrong


def test_the_command_line_imports_no_more_of_drpc_than_its_client() -> None:
    found = {
        name
        for _, file in modules("squall_cli")
        for name in imports(file)
        if name.startswith("squall_drpc")
    }
    assert all(name.startswith("squall_drpc.client") for name in found)
