"""Positions of sources of HTTP in files."""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from squall_connectors.http.target import Position

CONTEXT: Any = SimpleNamespace(topology_name="t", this_component_id="c")


def test_a_position_is_there_for_the_next_worker(tmp_path: Path) -> None:
    Position(tmp_path / "state", CONTEXT).save({"last_id": "7"})
    assert Position(tmp_path / "state", CONTEXT).value == {"last_id": "7"}


def test_without_a_folder_it_is_in_memory() -> None:
    position = Position(None, CONTEXT)
    position.save({"last_id": "7"})
    assert position.value == {"last_id": "7"}


@pytest.mark.parametrize("content", [b"", b"{", b"[1]"])
def test_a_file_that_is_broken_is_named(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "t-c.json"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=f"{re.escape(str(path))} has no position of a source"):
        Position(tmp_path, CONTEXT)
