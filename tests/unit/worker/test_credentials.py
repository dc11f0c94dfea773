"""Credentials as a worker reads them from the file of its supervisor."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from squall_common.security.credentials import TopologyCredentials
from squall_worker.credentials import CredentialsFile

ID = "words-1-17"


def put(path: Path, number: int, **values: str) -> None:
    temporary = path.with_suffix(".new")
    temporary.write_bytes(TopologyCredentials(ID, number, values).to_bytes())
    temporary.replace(path)


def test_only_newer_ones_count(tmp_path: Path) -> None:
    path = tmp_path / "credentials.json"
    file = CredentialsFile(path, ID)
    assert file.read() is None, "it has none"
    put(path, 5, user="ann")
    assert file.read() == {"user": "ann"}
    assert file.read() is None
    for number in (5, 4):  # written again, or an old one that was put back
        put(path, number, user="bob")
        assert file.read() is None
    put(path, 6)
    assert file.read() == {}


def test_a_file_that_cannot_be_read_changes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "credentials.json"
    file = CredentialsFile(path, ID)
    path.write_bytes(b"{")
    assert file.read() is None
    path.unlink()
    path.mkdir()
    assert file.read() is None
    path.rmdir()
    put(path, 1, user="ann")
    assert file.read() == {"user": "ann"}


def test_a_file_that_cannot_be_opened_just_now_is_read_the_next_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "credentials.json"
    file = CredentialsFile(path, ID)
    put(path, 1, user="ann")

    def fails(self: Path) -> bytes:
        raise OSError(errno.EMFILE, "too many open files")

    with monkeypatch.context() as patch:
        patch.setattr(Path, "read_bytes", fails)
        assert file.read() is None
    assert file.read() == {"user": "ann"}
