"""A compiled core that was made of another source than the one beside it."""

from __future__ import annotations

import hashlib
from pathlib import Path
from types import SimpleNamespace

import hatch_build

from squall_engine import core


def module(folder: Path, **attributes: object) -> SimpleNamespace:
    return SimpleNamespace(__file__=str(folder / "compiled.so"), **attributes)


def test_it_is_known_by_the_hash_of_its_source(tmp_path: Path) -> None:
    source = tmp_path / "compiled.pyx"
    part = tmp_path / "cython" / "part.pxi"
    part.parent.mkdir()
    part.write_text("z = 1\n")
    format_ = tmp_path / "wire_format.py"
    source.write_text("x = 1\n")
    format_.write_text("y = 1\n")
    made_of = hatch_build.source_hash(source)
    assert made_of == hashlib.blake2b(b"x = 1\nz = 1\ny = 1\n", digest_size=16).hexdigest()
    assert not core.is_stale(module(tmp_path, SOURCE_HASH=made_of))
    source.write_text("x = 2\n")
    assert core.is_stale(module(tmp_path, SOURCE_HASH=made_of))
    source.write_text("x = 1\n")
    part.write_text("z = 2\n")
    assert core.is_stale(module(tmp_path, SOURCE_HASH=made_of)), "of another part"
    part.write_text("z = 1\n")
    format_.write_text("y = 2\n")
    assert core.is_stale(module(tmp_path, SOURCE_HASH=made_of)), "of another format"
    assert core.is_stale(module(tmp_path)), "made before there was a hash"


def test_an_installation_has_no_source_to_compare(tmp_path: Path) -> None:
    assert not core.is_stale(module(tmp_path, SOURCE_HASH="anything"))
