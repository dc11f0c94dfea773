"""Folders that a power failure must not take away."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from squall.files import make_dirs


@pytest.fixture
def synced(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    paths: list[str] = []
    monkeypatch.setattr(os, "fsync", lambda fd: paths.append(os.readlink(f"/proc/self/fd/{fd}")))
    return paths


def test_the_name_of_every_new_folder_is_synced(tmp_path: Path, synced: list[str]) -> None:
    make_dirs(tmp_path / "a" / "b" / "c", mode=0o700)
    assert synced == [str(tmp_path), str(tmp_path / "a"), str(tmp_path / "a" / "b")]
    assert (tmp_path / "a" / "b" / "c").stat().st_mode & 0o777 == 0o700


def test_a_folder_whose_maker_may_have_died_is_synced_again(
    tmp_path: Path, synced: list[str]
) -> None:
    (tmp_path / "a").mkdir()
    make_dirs(tmp_path / "a")
    assert synced == [str(tmp_path)]
