"""Imports between packages run one way: what docs/architecture.md says under "Where what lives"."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
PACKAGES = {
    "thrift": "squall_thrift",
    "common": "squall",
    "nimbus": "squall_nimbus",
    "supervisor": "squall_supervisor",
    "worker": "squall_worker",
    "drpc": "squall_drpc",
    "pipeline": "squall_spark",
    "cli": "squall_cli",
}
BELOW = {
    "squall_thrift": set(),
    "squall": {"squall_thrift"},
    "squall_spark": {"squall", "squall_thrift", "squall_worker"},
    "squall_cli": {"squall", "squall_thrift"},
}
DAEMON_BELOW = {"squall", "squall_thrift"}
# (module, package): the exceptions that the page names.
EXCEPTIONS = {
    ("squall.local", "squall_worker"),
    ("squall.testing", "squall_worker"),
    ("squall_cli.commands.drpc_client", "squall_drpc"),
}


def imports(file: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module is not None and node.level == 0:
            yield node.module


def test_imports_run_one_way() -> None:
    ours = set(PACKAGES.values())
    found = set()
    for folder, package in PACKAGES.items():
        for file in (ROOT / folder / package).rglob("*.py"):
            module = ".".join(file.relative_to(ROOT / folder).with_suffix("").parts)
            for name in imports(file):
                other = name.partition(".")[0]
                if other in ours and other != package:
                    found.add((module, package, other))
    wrong = {
        (module, other)
        for module, package, other in found
        if other not in BELOW.get(package, DAEMON_BELOW)
    }
    assert wrong == EXCEPTIONS
