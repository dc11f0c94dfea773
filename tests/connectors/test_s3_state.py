"""Stored state in a real S3-compatible server, which is away for a while."""

from __future__ import annotations

from collections.abc import Iterator

import fsspec
import pytest
from tests.support.moto_server import MotoServer

from squall_common.state.checkpoint_store import CheckpointStore
from squall_common.state.errors import StateFencedError, StateStoreError
from squall_common.state.keyed import KeyedState
from squall_common.state.task_store import SegmentStore, TaskPlace
from squall_engine.core.codec import ValueCodec

PLACE = TaskPlace("words", "count", 0, 1, 128)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MotoServer]:
    with MotoServer.start(tmp_path_factory.mktemp("moto")) as started:
        yield started


@pytest.fixture
def store(
    server: MotoServer, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> CheckpointStore:
    monkeypatch.setitem(fsspec.config.conf, "s3", server.storage_options)
    bucket = request.node.name.replace("_", "-")[:40]
    fsspec.filesystem("s3").mkdir(bucket)
    return CheckpointStore(f"s3://{bucket}/squall state", sleep=lambda _: None)


def started(store: CheckpointStore) -> tuple[KeyedState, SegmentStore]:
    state, segments = KeyedState(128, ValueCodec()), SegmentStore(store, PLACE)
    segments.open(state)
    return state, segments


def flush(state: KeyedState, segments: SegmentStore) -> None:
    epoch = segments.epoch + 1
    segments.write(state.snapshot(epoch, base=segments.wants_base(len(state))), ValueCodec())
    state.completed(epoch)


def test_files_are_put_read_listed_and_deleted(store: CheckpointStore) -> None:
    assert store.names("a/b") == []
    store.put("a/b/1", [b"abc", b"def"])
    store.put("a/b/2", b"x")
    assert store.names("a/b") == ["1", "2"]
    assert store.names() == ["a"]
    assert store.get("a/b/1") == b"abcdef"
    assert store.get_part("a/b/1", 1, 2) == b"bc"
    assert store.get_part("a/b/1", -2, 2) == b"ef"
    assert store.get_part("a/b/2", -9, 9) == b"x"
    store.delete("a/b/1")
    store.delete("a/b/1")
    assert store.names("a/b") == ["2"]
    with pytest.raises(FileNotFoundError):
        store.get("a/b/1")


def test_state_is_found_again_and_replaced_tasks_are_fenced(store: CheckpointStore) -> None:
    state, segments = started(store)
    for n in range(1_500):
        state.put(f"k{n % 200}", n)
        if n % 100 == 0:
            flush(state, segments)
    flush(state, segments)
    again, newer = started(store)
    assert dict(again.items()) == dict(state.items())
    state.put("late", 1)
    with pytest.raises(StateFencedError):
        flush(state, segments)
    flush(again, newer)
    assert "late" not in dict(started(store)[0].items())


def test_a_store_that_is_away_loses_nothing(store: CheckpointStore, server: MotoServer) -> None:
    state, segments = started(store)
    state.put("a", 1)
    flush(state, segments)
    server.kill()
    state.put("b", 2)
    with pytest.raises(StateStoreError, match="could not write words/count/00000/"):
        flush(state, segments)
    server.restart()
    state.put("c", 3)
    flush(state, segments)
    assert dict(started(store)[0].items()) == {"a": 1, "b": 2, "c": 3}
