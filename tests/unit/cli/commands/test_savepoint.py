"""`storm savepoint`: which folder it means."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from squall_cli.commands import savepoint
from squall_common.state.checkpoint_store import CheckpointStore
from squall_common.state.manifest import Manifest
from squall_common.state.savepoint import HEAD_NAME, Savepoint, encode_savepoint


def test_a_relative_folder_is_where_the_command_is_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Workers run in other folders, which go with them."""
    taken = Savepoint("words", "one", "words@1", Manifest("words", 1, 7, {}))
    CheckpointStore(f"{tmp_path}/kept/one").put(HEAD_NAME, encode_savepoint(taken))
    monkeypatch.chdir(tmp_path)
    given = ["words", "--list", "--json", "--to", "kept"]
    found = CliRunner().invoke(savepoint.command, given, catch_exceptions=False)
    (one,) = json.loads(found.stdout)
    assert (one["name"], one["place"]) == ("one", f"{tmp_path}/kept/one")
