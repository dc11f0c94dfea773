"""Which form of a module is imported: the compiled one only as long as it is made of the sources
that lie there. The compiled modules of these tests are Python as well, under another name."""

from __future__ import annotations

import importlib
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import hatch_build
import pytest

from squall_common.daemon import compiled_modules
from squall_common.errors import SquallError
from squall_engine import core

ROOT = Path(__file__).resolve().parents[4]
MODULES = ("pack.one", "pack.room.two")
IMPORTED = "pack/types.py"
SOURCES = ["pack/one.py", "pack/room/two.py", IMPORTED]


class Pack:
    """A package with two modules in Python, and their compiled forms."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        for source in SOURCES:
            file = self.source(source)
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text("FORM = 'python'\n")
        self.compile()

    def source(self, name: str) -> Path:
        return self.folder.parent / name

    def compile(self) -> None:
        digest = compiled_modules.digest(map(self.source, SOURCES))
        self.home = self.folder / compiled_modules.FOLDER / digest
        self.home.mkdir(parents=True)
        for module in (*MODULES, compiled_modules.LIBRARY):
            (self.home / compiled_modules.file_name(module)).write_text("FORM = 'compiled'\n")
        made_of = {"digest": digest, "sources": SOURCES}
        (self.home / compiled_modules.MADE_OF).write_text(json.dumps(made_of))

    def forms(self) -> list[str]:
        return [load(module).FORM for module in MODULES]


def load(module: str) -> ModuleType:
    return importlib.import_module(module)


@pytest.fixture
def pack(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Pack]:
    monkeypatch.setattr(compiled_modules, "MODULES", MODULES)
    monkeypatch.setattr(compiled_modules, "HOME", "pack")
    monkeypatch.setattr(compiled_modules, "LIBRARY", "pack__mypyc")
    monkeypatch.setattr(compiled_modules, "EXTENSION_SUFFIXES", [".py"])
    monkeypatch.delenv("SQUALL_MODULES", raising=False)
    monkeypatch.delenv("SQUALL_CORE", raising=False)
    others = [one for one in sys.meta_path if not isinstance(one, compiled_modules.CompiledModules)]
    monkeypatch.setattr(sys, "meta_path", others)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    monkeypatch.syspath_prepend(str(tmp_path))
    made = Pack(tmp_path / "pack")
    (made.folder / "__init__.py").write_text(
        f"from {compiled_modules.__name__} import prefer\nprefer()\n"
    )
    yield made
    compiled_modules._folder.cache_clear()
    for name in [name for name in sys.modules if name.partition(".")[0] == "pack"]:
        del sys.modules[name]


def test_modules_that_were_compiled_from_these_sources_are_used(pack: Pack) -> None:
    assert pack.forms() == ["compiled", "compiled"]
    assert compiled_modules.are_used()


@pytest.mark.parametrize("source", SOURCES)
def test_after_any_edit_all_run_as_they_are_written(pack: Pack, source: str) -> None:
    file = pack.source(source)
    file.write_text(file.read_text() + "# edited\n")
    assert pack.forms() == ["python", "python"]
    assert not compiled_modules.are_used()


@pytest.mark.parametrize("module", [*MODULES, "pack__mypyc"])
def test_they_are_used_together_or_not_at_all(pack: Pack, module: str) -> None:
    (pack.home / compiled_modules.file_name(module)).unlink()
    assert pack.forms() == ["python", "python"]


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"digest": 1, "sources": ["other/one.py"]}'])
def test_a_list_of_sources_that_cannot_be_read_is_none(pack: Pack, text: str) -> None:
    (pack.home / compiled_modules.MADE_OF).write_text(text)
    assert pack.forms() == ["python", "python"]


def test_an_edit_while_a_process_runs_does_not_mix_them(pack: Pack) -> None:
    assert load(MODULES[0]).FORM == "compiled"
    pack.source(SOURCES[1]).write_text("FORM = 'edited'\n")
    assert load(MODULES[1]).FORM == "compiled", "it knows the layout of the other"


def test_a_source_that_is_as_it_was_again_is_the_compiled_one(pack: Pack) -> None:
    file = pack.source(SOURCES[0])
    before = file.read_text()
    file.write_text("FORM = 'edited'\n")
    file.write_text(before)
    assert pack.forms() == ["compiled", "compiled"]


@pytest.mark.parametrize("choice", [("SQUALL_MODULES", "python"), ("SQUALL_CORE", "pure")])
def test_python_can_be_chosen(
    pack: Pack, choice: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(*choice)
    assert pack.forms() == ["python", "python"]


def test_where_they_have_to_be_compiled_an_edited_source_is_an_error(
    pack: Pack, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SQUALL_MODULES", "compiled")
    pack.source(IMPORTED).write_text("FORM = 'edited'\n")
    with pytest.raises(SquallError, match="have not been compiled as they are now"):
        load(MODULES[0])


def test_a_choice_that_does_not_exist_is_an_error(
    pack: Pack, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SQUALL_MODULES", "fast")
    with pytest.raises(SquallError, match="SQUALL_MODULES=fast"):
        load(MODULES[0])


def test_what_a_compiled_module_imports_is_among_its_sources() -> None:
    folders = {path.parent.name: path.parent for path in ROOT.glob("*/squall*/__init__.py")}
    found = hatch_build._sources_of(["squall_worker.transport.link"], folders)
    assert {
        "squall_worker/transport/link.py",
        "squall_worker/transport/frames.py",
        "squall_common/topology/model.py",
        "squall_engine/transport.py",
    } <= found
    assert "squall_engine/core/compiled.pyi" in hatch_build._sources_of(
        ["squall_engine.dataflow.flow"], folders
    )


@pytest.mark.skipif(
    not core.COMPILED or os.environ.get("SQUALL_MODULES") == "python",
    reason="nothing is compiled here",
)
def test_the_modules_of_this_checkout_run_compiled() -> None:
    """Else the tests say nothing about what users run."""
    assert compiled_modules.are_used(), "make modules"
