"""The savepoint that a topology is to start from, before it is submitted."""

from __future__ import annotations

from pathlib import Path

import pytest

from squall import TopologyBuilder
from squall._savepoint import with_savepoint
from squall.testing import ReplayableSpout
from squall_common.config.options.typed import TopologyOptions
from squall_common.state.checkpoint_store import CheckpointStore
from squall_common.state.manifest import Manifest
from squall_common.state.savepoint import HEAD_NAME, Savepoint, encode_savepoint


class Words(ReplayableSpout):
    outputs = ["word"]


def test_a_relative_place_is_where_the_command_is_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken = Savepoint("words", "one", "words@1", Manifest("words", 1, 7, {}))
    CheckpointStore(f"{tmp_path}/kept/one").put(HEAD_NAME, encode_savepoint(taken))
    builder = TopologyBuilder()
    builder.spout("words", Words([["the"]]))
    conf = {
        "topology.checkpoint.interval.secs": 1,
        "topology.state.url": str(tmp_path),
        "topology.checkpoint.savepoint": "kept/one",
    }
    monkeypatch.chdir(tmp_path)
    found = with_savepoint("words", conf, builder.build(), TopologyOptions.read(conf))
    assert found["topology.checkpoint.savepoint"] == f"{tmp_path}/kept/one"
