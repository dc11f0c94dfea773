"""Digests for ZooKeeper on their way into the folders of workers."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from squall_common.cluster.access.digests import Digests, new_payload
from squall_common.worker_files.launch_spec import Incarnation, LaunchSpec
from squall_common.worker_files.zookeeper_file import zookeeper_json
from squall_supervisor.blobs.zookeeper_files import ZooKeeperFiles

ID = "words-1-17"


def make_worker(tmp_path: Path, *, shows_digest: bool) -> Path:
    folder = tmp_path / "worker"
    folder.mkdir(mode=0o700)
    spec = LaunchSpec(
        ID, "node", "host", 6700, "id", Incarnation(1, 1), tmp_path, folder, tmp_path, {}
    )
    spec.write(folder / "launch.json")
    if not shows_digest:
        value = json.loads((folder / "launch.json").read_text())
        del value["shows_digest"]  # as earlier versions wrote it
        (folder / "launch.json").write_text(json.dumps(value))
    return folder


@pytest.mark.parametrize("shows_digest", [True, False])
async def test_a_worker_that_runs_gets_the_file_and_counts_if_it_can_use_it(
    tmp_path: Path, shows_digest: bool
) -> None:
    folder, digests = make_worker(tmp_path, shows_digest=shows_digest), Digests((new_payload(),))
    running, changes = {(6700, ID): folder}, list[str]()
    files = ZooKeeperFiles(digests, lambda: running, lambda: changes.append(files.published()))
    assert files.without() == (ID,)
    await files.look()
    await files.look()
    file = folder / "zookeeper.json"
    assert file.read_bytes() == zookeeper_json(digests, ID)
    assert file.stat().st_mode & 0o777 == 0o600
    assert changes == ["[]" if shows_digest else f'["{ID}"]']
    running.clear()
    assert files.without() == ()


async def test_a_worker_whose_folder_cannot_be_written_counts_as_one_without(
    tmp_path: Path,
) -> None:
    running = {(6700, ID): tmp_path / "gone"}
    files = ZooKeeperFiles(Digests((new_payload(),)), lambda: running, lambda: None)
    await files.look()
    assert files.without() == (ID,)
