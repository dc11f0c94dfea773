"""A worker's file with its digest for ZooKeeper."""

from __future__ import annotations

from pathlib import Path

import pytest

from squall_common.cluster.access.digests import Digests, StoreAccess, new_payload
from squall_common.worker_files.zookeeper_file import ZooKeeperFile, zookeeper_json

ID = "words-1-17"


def test_a_worker_reads_what_its_supervisor_writes(tmp_path: Path) -> None:
    digests = Digests((new_payload(), new_payload()))
    file = tmp_path / "zookeeper.json"
    assert ZooKeeperFile(file, ID).read() is None
    file.write_bytes(zookeeper_json(digests, ID))
    found = ZooKeeperFile(file, ID).read()
    assert found is not None
    assert found.payloads == digests.payloads_of(ID)
    assert found.lists.of(f"/errors/{ID}/x") == digests.for_daemon().lists.of(f"/errors/{ID}/x")
    for payload in digests.payloads:
        assert payload.partition(":")[2] not in file.read_text()


def test_a_file_that_was_replaced_is_read_again_and_no_other(tmp_path: Path) -> None:
    file, taken = tmp_path / "zookeeper.json", list[StoreAccess]()
    following = ZooKeeperFile(file, ID)
    following.follow(taken.append)
    for _ in range(2):
        newer = tmp_path / "newer"
        newer.write_bytes(zookeeper_json(Digests((new_payload(),)), ID))
        newer.replace(file)
        following.follow(taken.append)
        following.follow(taken.append)
    assert len(taken) == 2
    assert taken[0].payloads != taken[1].payloads


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"payloads": 7, "daemons": []}', "x" * 70_000])
def test_another_file_is_an_error(tmp_path: Path, text: str) -> None:
    file = tmp_path / "zookeeper.json"
    file.write_text(text)
    with pytest.raises(ValueError, match=r"."):
        ZooKeeperFile(file, ID).read()
