"""Folders of small files."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from squall_common.daemon.folders import Folder


@pytest.fixture(params=["path", "file URL", "memory URL"])
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Folder:
    return Folder(
        {
            "path": f"{tmp_path}/new/folder",
            "file URL": f"file://{tmp_path}/new/folder",
            "memory URL": f"memory://{tmp_path}/folder",
        }[request.param]
    )


def test_of_two_that_create_a_file_one_succeeds(folder: Folder) -> None:
    def create(number: int) -> bool:
        try:
            folder.create("name", str(number).encode())
        except FileExistsError:
            return False
        return True

    if folder.url.startswith("memory:"):  # (it knows no threads)
        made = [create(number) for number in range(4)]
    else:
        with ThreadPoolExecutor(4) as pool:
            made = list(pool.map(create, range(4)))
    assert made.count(True) == 1
    assert folder.read("name") == str(made.index(True)).encode()
    assert folder.names() == ["name"]
