"""Imports between packages point down only: docs/architecture.md describes them under "The
packages"."""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator
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
    "connectors": "squall_connectors",
    "flux": "squall_flux",
    "ui": "squall_ui",
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
    "squall_connectors": {"squall", "squall_common"},
    "squall_flux": {"squall", "squall_common"},
    "squall_ui": {"squall_common", "squall_thrift"},
    "squall_spark": {"squall", "squall_engine", "squall_common"},
    "squall_cli": {"squall", "squall_drpc", "squall_flux", "squall_common", "squall_thrift"},
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


def module_imports(file: Path, known: Collection[str]) -> set[str]:
    """Which of the `known` modules a file imports. `from package import module` imports the module,
    and a name that is none, the package."""
    found = set()
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module is not None and node.level == 0:
            for alias in node.names:
                name = f"{node.module}.{alias.name}"
                found.add(name if name in known else node.module)
    return found.intersection(known)


def room_of(module: str, package: str) -> str:
    """The room of a module: the folder below its package, or the module itself beside the rooms."""
    folder = next(ROOT / name for name, packed in PACKAGES.items() if packed == package)
    parts = module.split(".")[:2]
    while len(parts) > 1 and not (folder.joinpath(*parts).with_suffix(".py")).is_file():
        if folder.joinpath(*parts).is_dir():
            break
        parts.pop()
    return ".".join(parts)


def circles(arrows: dict[str, set[str]]) -> list[list[str]]:
    """What remains of a graph when each node that leads nowhere else is taken away, again and
    again: its circles and what leads to them."""
    left = {node: set(targets) for node, targets in arrows.items()}
    while ends := [node for node, targets in left.items() if not targets & left.keys()]:
        for node in ends:
            del left[node]
    return [[node, *sorted(targets & left.keys())] for node, targets in sorted(left.items())]


def test_rooms_of_a_package_import_each_other_in_one_direction() -> None:
    for package in BELOW:
        arrows: dict[str, set[str]] = {}
        for module, file in modules(package):
            room = room_of(module, package)
            targets = {room_of(n, package) for n in imports(file) if n.startswith(f"{package}.")}
            # A package's own __init__ re-exports what its rooms offer.
            if room != package:
                arrows.setdefault(room, set()).update(targets - {room, package})
        assert circles(arrows) == []


def test_modules_of_a_package_import_each_other_in_one_direction() -> None:
    """Imports for types alone and late ones count, too."""
    for package in BELOW:
        files = dict(modules(package))
        arrows = {
            module: module_imports(file, files.keys()) - {module} for module, file in files.items()
        }
        assert circles(arrows) == []


def test_circles_are_found() -> None:
    assert circles({"a": {"b"}, "b": {"c"}, "c": {"b"}, "d": set()}) == [
        ["a", "b"],
        ["b", "c"],
        ["c", "b"],
    ]
    assert circles({"a": {"b"}, "b": {"c"}, "c": set()}) == []


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


# Programs that embed the engine, and the modules of it that they may import.
EMBEDDERS = ("worker", "api", "pipeline", "drpc", "bench", "tests/simulation")
DOOR = {"squall_engine.embed", "squall_engine.transport", "squall_engine.epochs"}
# They change the engine's insides, which is their purpose.
PATCHES = {"bench/stubs.py", "tests/simulation/sabotage.py"}


def embedding_files() -> Iterator[Path]:
    for folder in EMBEDDERS:
        for file in (ROOT / folder).rglob("*.py"):
            if str(file.relative_to(ROOT)) not in PATCHES:
                yield file


def test_embedders_import_only_the_engines_door() -> None:
    core = {"squall_engine", "squall_engine.core"}  # for its name
    wrong = {
        f"{file.relative_to(ROOT)} imports {name}"
        for file in embedding_files()
        for name in imports(file)
        if name.split(".")[0] == "squall_engine" and name not in core
        if ".".join(name.split(".")[:2]) not in DOOR
    }
    assert not wrong


def reached_in_engines(source: str) -> Iterator[str]:
    """The attributes that a program reads of a variable or an attribute called `engine`."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Attribute):
            owner = node.value
            name = owner.id if isinstance(owner, ast.Name) else getattr(owner, "attr", "")
            if name in ("engine", "_engine"):
                yield node.attr


def offered(*files: str) -> set[str]:
    """The names in the bodies of classes. (A compiled class also has what its constructor sets.)"""
    found = set()
    for file in files:
        for node in ast.walk(ast.parse((ROOT / "engine/squall_engine" / file).read_text())):
            is_engine = isinstance(node, ast.ClassDef) and node.name in ("Engine", "EmbeddedEngine")
            for one in node.body if is_engine else ():
                if isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef):
                    found.add(one.name)
                elif isinstance(one, ast.AnnAssign) and isinstance(one.target, ast.Name):
                    found.add(one.target.id)
    return found


def test_embedders_use_only_what_the_door_offers() -> None:
    # The door is made of methods; what an engine sets in its constructor is its own.
    door = offered("engine.py", "embed.py")
    wrong = {
        f"{file.relative_to(ROOT)} reads {attribute} of an engine"
        for file in embedding_files()
        for attribute in reached_in_engines(file.read_text())
        if attribute.startswith("_") or attribute not in door
    }
    assert not wrong


def test_what_is_reached_in_an_engine_is_found() -> None:
    source = "self._engine.built\nengine._flow.tap()\nengine.stop(0)\nprocess.worker._engine.plan"
    assert set(reached_in_engines(source)) == {"built", "_flow", "stop", "plan"}


def test_other_rooms_of_the_supervisor_know_no_steps_of_a_launch() -> None:
    package = "squall_supervisor"
    offered = {
        f"{package}.launch.{name}" for name in ("start", "node", "machine", "worker_process")
    }
    wrong = {
        f"{module} imports {name}"
        for module, file in modules(package)
        if not module.startswith(f"{package}.launch")
        for name in imports(file)
        if name.startswith(f"{package}.launch.") and ".".join(name.split(".")[:3]) not in offered
    }
    assert not wrong
