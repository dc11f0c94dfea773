"""New credentials, on their way into the folders of running workers."""

from __future__ import annotations

import logging
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from squall_common.cluster.store import ConnectionLostError
from squall_common.security.credentials import TopologyCredentials
from squall_supervisor.blobs.credentials import CredentialsUpdates, give_credentials

ID = "words-1-17"


class Cluster:
    """Has the version of the blob."""

    version: int | None = 1
    away = False

    async def blob(self, key: str) -> Any:
        assert key == f"{ID}-credentials"
        if self.away:
            raise ConnectionLostError("away")
        if self.version is None:
            return None
        return SimpleNamespace(meta=SimpleNamespace(version=self.version)), 0


class Local:
    """A localizer that counts how often Nimbus is asked."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.asked = 0

    def path_of(self, topology_id: str) -> Path:
        return self.folder

    async def update_credentials(self, topology_id: str) -> bool:
        self.asked += 1
        data = TopologyCredentials(ID, self.asked, {"n": str(self.asked)}).to_bytes()
        (self.folder / "credentials.json").write_bytes(data)
        return True


@pytest.fixture
def worker(tmp_path: Path) -> Path:
    folder = tmp_path / "worker"
    folder.mkdir(mode=0o700)
    return folder


def number_in(worker: Path) -> int:
    data = (worker / "credentials.json").read_bytes()
    return TopologyCredentials.from_bytes(data, ID).number


async def test_nimbus_is_asked_only_when_the_version_changed(tmp_path: Path, worker: Path) -> None:
    cluster, local = Cluster(), Local(tmp_path)
    running: dict[str, list[Path]] = {ID: [worker]}
    updates = CredentialsUpdates(cluster, local, lambda: running)  # type: ignore[arg-type]
    for _ in range(3):
        await updates.look()
    assert (local.asked, number_in(worker)) == (1, 1)
    cluster.version = 2
    await updates.look()
    assert (local.asked, number_in(worker)) == (2, 2)
    cluster.away, cluster.version = True, 3
    (worker / "credentials.json").unlink()
    await updates.look()  # what is here is given without ZooKeeper
    assert (local.asked, number_in(worker)) == (2, 2)
    cluster.away, cluster.version = False, None
    await updates.look()
    assert local.asked == 2
    running.clear()
    await updates.look()


def test_a_file_is_replaced_and_never_written_through_a_link(tmp_path: Path, worker: Path) -> None:
    elsewhere = tmp_path / "passwd"
    elsewhere.write_text("untouched")
    target = worker / "credentials.json"
    target.symlink_to(elsewhere)
    assert give_credentials(worker, b"new")
    assert not target.is_symlink()
    assert (target.read_bytes(), elsewhere.read_text()) == (b"new", "untouched")
    assert target.stat().st_mode & 0o777 == 0o600
    assert not give_credentials(worker, b"new"), "it has them already"
    target.unlink()
    target.mkdir()
    with pytest.raises(OSError, match="directory"):
        give_credentials(worker, b"newer")
    assert [path.name for path in worker.iterdir()] == ["credentials.json"], "nothing is left over"
    link = tmp_path / "link"
    link.symlink_to(worker)
    with pytest.raises(OSError, match=r".*"):
        give_credentials(link, b"newer")


async def test_a_worker_that_has_gone_is_only_logged(
    tmp_path: Path, worker: Path, caplog: pytest.LogCaptureFixture
) -> None:
    running = {ID: [tmp_path / "gone", worker]}
    updates = CredentialsUpdates(Cluster(), Local(tmp_path), lambda: running)  # type: ignore[arg-type]
    with caplog.at_level(logging.WARNING):
        await updates.look()
    assert number_in(worker) == 1
