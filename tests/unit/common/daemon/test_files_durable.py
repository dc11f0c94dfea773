"""Folders that a power failure must not take away."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from tests.support.archives import STORED, Entry, zip_bytes

from squall_common.daemon.files import make_dirs, sync_file_system
from squall_common.packaging.archive.unpack import extract
from squall_common.packaging.package import unpack_package


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


def test_a_large_tree_is_synced_once(
    tmp_path: Path, synced: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """9,000 folders in a package cost 85 s of fsync at each supervisor."""
    whole: list[str] = []

    def sync_file_system(fd: int) -> bool:
        whole.append(os.readlink(f"/proc/self/fd/{fd}"))
        return True

    monkeypatch.setattr("squall_common.daemon.files.sync_file_system", sync_file_system)
    archive, target = tmp_path / "package.zip", tmp_path / "target"
    archive.write_bytes(zip_bytes([Entry(f"d{n}/f", method=STORED) for n in range(1000)]))
    target.mkdir()
    extract(archive, target)
    assert (whole, synced) == ([str(target)], [])


def test_a_small_tree_does_not_wait_for_other_data(tmp_path: Path, synced: list[str]) -> None:
    archive, target = tmp_path / "package.zip", tmp_path / "target"
    archive.write_bytes(zip_bytes([Entry("d/a"), Entry("b")]))
    target.mkdir()
    extract(archive, target)
    assert sorted(synced) == sorted(str(target / name) for name in ("", "d", "d/a", "b"))


def test_a_client_that_looks_into_a_package_syncs_nothing(
    tmp_path: Path, synced: list[str]
) -> None:
    archive = tmp_path / "package.zip"
    archive.write_bytes(zip_bytes([Entry("d/a"), Entry("b")]))
    assert (unpack_package(archive, tmp_path) / "d" / "a").is_file()
    assert synced == []


def test_a_file_system_is_really_synced(tmp_path: Path) -> None:
    fd = os.open(tmp_path, os.O_RDONLY)
    try:
        assert sync_file_system(fd)
    finally:
        os.close(fd)
    with pytest.raises(OSError, match="Bad file descriptor"):
        sync_file_system(fd)
