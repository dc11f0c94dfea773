"""`storm savepoint`: which folder it means."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from squall_cli.main import run
from squall_common.state.checkpoint_store import CheckpointStore
from squall_common.state.manifest import Manifest
from squall_common.state.savepoint import HEAD_NAME, Savepoint, encode_savepoint


def test_a_relative_folder_is_where_the_command_is_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Workers run in other folders, which go with them."""
    taken = Savepoint("words", "one", "words@1", Manifest("words", 1, 7, {}))
    CheckpointStore(f"{tmp_path}/kept/one").put(HEAD_NAME, encode_savepoint(taken))
    monkeypatch.chdir(tmp_path)
    assert run(["savepoint", "words", "--list", "--json", "--to", "kept"]) == 0
    (one,) = json.loads(capsys.readouterr().out)
    assert (one["name"], one["place"]) == ("one", f"{tmp_path}/kept/one")
