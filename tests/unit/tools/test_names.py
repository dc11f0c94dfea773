"""Tests lie where the code does: `tests/unit/engine/acking/test_suspects.py` tests
`squall_engine.acking.suspects`. The same holds in tests/component and tests/property."""

from __future__ import annotations

from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
KINDS = ("unit", "component", "property")

# A folder of tests, and the code that it is about.
PACKAGES = {
    "bench": "bench",
    "cli": "cli/squall_cli",
    "common": "common/squall_common",
    "connectors": "connectors/squall_connectors",
    "deploy": "deploy",
    "drpc": "drpc/squall_drpc",
    "engine": "engine/squall_engine",
    "flux": "flux/squall_flux",
    "nimbus": "nimbus/squall_nimbus",
    "spark": "pipeline/squall_spark",
    "squall": "api/squall",
    "supervisor": "supervisor/squall_supervisor",
    "thrift": "thrift/squall_thrift",
    "tools": "tests",
    "ui": "ui/squall_ui",
    "worker": "worker/squall_worker",
}
# Tests of several modules of a room.
WORDS = {
    "bench": {"subjects"},
    "cli": {"changes", "help", "json", "storm_commands", "usage"},
    "common": {"small_parts"},
    "common/history": {"parts"},
    "deploy": {"manifests"},
    "engine/acking": {"tree_model"},
    "engine/atomic": {"kinds"},
    "engine/backpressure": {"backpressure", "model"},
    "engine/build": {"component_conf"},
    "engine/core": {
        *(
            "columns",
            "core",
            "core_traces",
            "encodable",
            "grouped",
            "inbox",
            "merging",
            "stale",
            "table_rows",
        ),
        "tried",
    },
    "engine/multilang": {"readers", "serializers"},
    "engine/tasks": {"collectors", "kinds", "turns"},
    "nimbus": {"small_parts"},
    "nimbus/service": {"info", "loop_time"},
    "nimbus/topologies": {"crashes"},
    "spark/report": {"parts"},
    "squall": {"notebook", "public_api", "stored_topologies"},
    "squall/windows": {"storm_cases", "stored_storm_cases"},
    "thrift": {"interop"},
    "tools": {
        "code_rules",
        "dependencies",
        "imported_names",
        "imports",
        "names",
        "vulnerabilities",
    },
}


def _tests(kind: str) -> list[Path]:
    return sorted(path for path in (ROOT / "tests" / kind).rglob("test_*.py"))


def _room(test: Path) -> tuple[str, ...]:
    """Its folders below tests/unit."""
    return test.relative_to(ROOT / "tests").parts[1:-1]


def _code(room: tuple[str, ...]) -> Path:
    """The folder of the code that a folder of tests is about."""
    return ROOT.joinpath(PACKAGES[room[0]], *room[1:])


def _modules(folder: Path) -> set[str]:
    """The modules and packages in it. A private one is named without its underscore."""
    found = [path for path in folder.iterdir() if path.suffix in (".py", ".pyx") or path.is_dir()]
    if folder == ROOT / "tests":
        found += (folder / "support").glob("*.py")
    return {path.stem.removeprefix("_") for path in found}


def _is_named(test: Path) -> bool:
    name = test.stem.removeprefix("test_")
    room = _room(test)
    if name in WORDS.get("/".join(room), ()):
        return True
    # test_slot_limits.py may stand beside test_slot.py.
    return any(name == known or name.startswith(f"{known}_") for known in _modules(_code(room)))


@pytest.mark.parametrize("kind", KINDS)
def test_every_folder_is_a_package_or_a_room(kind: str) -> None:
    rooms = {_room(test) for test in _tests(kind)}
    assert rooms
    wrong = {"/".join(room) for room in rooms if not room or room[0] not in PACKAGES}
    assert wrong == set(), "name the package in PACKAGES, or move the tests to one"
    lacking = {"/".join(room) for room in rooms if not _code(room).is_dir()}
    assert lacking == set(), "there is no such room"


@pytest.mark.parametrize("kind", KINDS)
def test_every_file_is_named_after_a_module_of_its_room(kind: str) -> None:
    wrong = [str(test.relative_to(ROOT)) for test in _tests(kind) if not _is_named(test)]
    assert wrong == [], "name it after the module that it tests, or list its word in WORDS"


def test_every_listed_word_is_used() -> None:
    used = {(room, word) for room, words in WORDS.items() for word in words}
    there = {
        ("/".join(_room(test)), test.stem.removeprefix("test_"))
        for kind in KINDS
        for test in _tests(kind)
    }
    assert used - there == set()
