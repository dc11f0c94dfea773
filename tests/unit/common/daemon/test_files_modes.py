"""Who may read what daemons write."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from squall_common.daemon.files import make_private_dirs, write_atomic
from squall_common.daemon.folders import Folder
from squall_supervisor.confine.ownership import open_tree


def mode(path: Path) -> int:
    return stat.S_IMODE(path.lstat().st_mode)


@pytest.fixture(params=[0o000, 0o077])
def _umask(request: pytest.FixtureRequest) -> Iterator[None]:
    before = os.umask(request.param)
    yield
    os.umask(before)


@pytest.mark.usefixtures("_umask")
def test_files_are_their_writers_only(tmp_path: Path) -> None:
    write_atomic(tmp_path / "file", b"x")
    assert mode(tmp_path / "file") == 0o600


def test_a_folder_that_was_open_is_closed(tmp_path: Path) -> None:
    (tmp_path / "inbox").mkdir(mode=0o755)
    make_private_dirs(tmp_path / "inbox")
    assert mode(tmp_path / "inbox") == 0o700


@pytest.mark.usefixtures("_umask")
def test_the_history_is_for_its_group_to_read(tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o2750)
    Folder(f"{shared}/history/topology").write("a.parquet", b"x")
    assert mode(shared / "history" / "topology" / "a.parquet") == 0o640
    for folder in (shared / "history", shared / "history" / "topology"):
        assert mode(folder) == 0o2750
        assert folder.stat().st_gid == shared.stat().st_gid


@pytest.mark.usefixtures("_umask")
def test_a_tree_is_opened_but_not_what_its_links_lead_to(tmp_path: Path) -> None:
    outside, tree = tmp_path / "outside", tmp_path / "tree"
    outside.write_text("x")
    outside.chmod(0o600)
    (tree / "folder").mkdir(parents=True)
    (tree / "folder" / "run").write_text("x")
    (tree / "folder" / "run").chmod(0o700)
    (tree / "plain").write_text("x")
    (tree / "link").symlink_to(outside)
    open_tree(tree)
    assert mode(tree) == mode(tree / "folder") == mode(tree / "folder" / "run") == 0o755
    assert mode(tree / "plain") == 0o644
    assert mode(outside) == 0o600
