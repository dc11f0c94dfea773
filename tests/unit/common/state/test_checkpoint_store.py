from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from squall_common.daemon.folders import Folder
from squall_common.state.checkpoint_store import CheckpointStore
from squall_common.state.errors import StateStoreError


@pytest.fixture(params=["path", "file", "memory"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> CheckpointStore:
    urls = {
        "path": str(tmp_path / "a folder"),
        "file": f"file://{tmp_path}/store/",
        "memory": f"memory://{tmp_path.name}",
    }
    return CheckpointStore(urls[request.param])


def test_files_are_put_read_listed_and_deleted(store: CheckpointStore) -> None:
    assert store.names("words/count") == []
    store.put("words/count/1.segment", [b"abc", b"", b"def"])
    store.put("words/count/0.segment", b"xyz")
    store.put("words/count/0.segment", b"xy")
    assert store.names("words/count") == ["0.segment", "1.segment"]
    assert store.names("words/") == store.names("words") == ["count"]
    assert store.names() == ["words"]
    assert store.get("words/count/1.segment") == b"abcdef"
    assert store.get_part("words/count/1.segment", 2, 2) == b"cd"
    assert store.get_part("words/count/1.segment", -2, 2) == b"ef"
    assert store.get_part("words/count/0.segment", -9, 9) == b"xy"
    store.delete("words/count/1.segment")
    store.delete("words/count/1.segment")
    assert store.names("words/count") == ["0.segment"]
    with pytest.raises(FileNotFoundError):
        store.get("words/count/1.segment")


@pytest.mark.parametrize("name", ["", "a/", "/etc/passwd", "a/../b"])
def test_a_name_cannot_lead_out_of_the_store(store: CheckpointStore, name: str) -> None:
    with pytest.raises(ValueError, match="not the name of a file"):
        store.put(name, b"")


class Failing:
    def __init__(self, *errors: Exception) -> None:
        self.errors = list(errors)
        self.calls = 0

    def __call__(self, _folder: Folder, name: str, data: bytes) -> None:
        self.calls += 1
        if self.errors:
            raise self.errors.pop(0)


def failing(monkeypatch: pytest.MonkeyPatch, *errors: Exception) -> tuple[CheckpointStore, Failing]:
    calls = Failing(*errors)
    monkeypatch.setattr(Folder, "write", lambda *args: calls(*args))
    return CheckpointStore("/store", sleep=lambda _: None), calls


def test_a_call_that_fails_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    store, calls = failing(monkeypatch, ConnectionResetError("reset"), TimeoutError("late"))
    store.put("a/b", b"")
    assert calls.calls == 3


def test_after_some_tries_the_error_says_what_was_tried_and_where(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    store, calls = failing(monkeypatch, *[ConnectionResetError("reset")] * 9)
    with pytest.raises(StateStoreError) as raised:
        store.put("a/b", b"")
    assert calls.calls == 4
    assert raised.value.message == (
        "could not write a/b in the state store /store: ConnectionResetError: reset"
    )
    assert "topology.state.url" in str(raised.value.hint)


@pytest.mark.parametrize(
    ("number", "hint"), [(errno.ENOSPC, "free space"), (errno.EACCES, "the user that the workers")]
)
def test_a_full_disk_is_not_tried_again(
    monkeypatch: pytest.MonkeyPatch, number: int, hint: str
) -> None:
    store, calls = failing(monkeypatch, OSError(number, os.strerror(number)))
    with pytest.raises(StateStoreError) as raised:
        store.put("a/b", b"")
    assert calls.calls == 1
    assert hint in str(raised.value.hint)


def test_a_url_that_nothing_reads_is_not_tried_again() -> None:
    waits: list[float] = []
    store = CheckpointStore("nosuch://place/folder", sleep=waits.append)
    with pytest.raises(StateStoreError, match="Protocol not known") as raised:
        store.names("words")
    assert waits == []
    assert "a URL that fsspec knows" in str(raised.value.hint)


def test_a_full_disk_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = CheckpointStore(str(tmp_path))
    store.put("a", b"old")

    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", full)
        with pytest.raises(StateStoreError):
            store.put("a", b"new")
    assert store.get("a") == b"old"
    assert store.names() == ["a"]
