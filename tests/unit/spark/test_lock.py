"""One driver for a checkpoint."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import pytest

from squall_common.daemon.folders import Folder
from squall_common.errors import SquallError
from squall_spark.lock import STALE_SECS, FolderInUseError, HeldName, checkpoint_lock


def test_a_second_driver_is_refused_until_the_first_has_ended(tmp_path: Path) -> None:
    checkpoint = str(tmp_path / "new" / "cp")
    for _ in range(2):
        with (
            checkpoint_lock(checkpoint),
            pytest.raises(FolderInUseError, match=f"in use by process {os.getpid()} on "),
            checkpoint_lock(checkpoint),
        ):
            pass


def test_behind_a_url_a_name_is_a_lock_until_it_is_stale() -> None:
    url = "memory://lock-test/cp"
    with checkpoint_lock(url), pytest.raises(FolderInUseError), checkpoint_lock(url):
        pass
    assert Folder(url).names() == []
    dead = {"host": "gone", "pid": 1, "at": time.time() - STALE_SECS - 1}
    Folder(url).write("lock", json.dumps(dead).encode())
    with checkpoint_lock(url):
        assert json.loads(Folder(url).read("lock"))["pid"] == os.getpid()


def test_a_driver_that_was_paused_too_long_finds_the_other_one_and_stops() -> None:
    url = "memory://lock-test/paused"
    with checkpoint_lock(url) as paused:
        assert isinstance(paused, HeldName)
        paused.check()
        taken = {"host": "other", "pid": 7, "at": time.time(), "id": "another"}
        Folder(url).write("lock", json.dumps(taken).encode())
        with pytest.raises(FolderInUseError, match="in use by process 7 on other"):
            paused.check()
        paused.renew()  # as its thread does
        Folder(url).delete("lock")
        with pytest.raises(FolderInUseError):
            paused.check()  # also after the other one has ended
        Folder(url).write("lock", json.dumps(taken).encode())
    assert json.loads(Folder(url).read("lock"))["pid"] == 7, "it is the other's"


def test_a_checkpoint_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    message = f"--checkpoint {tmp_path}/file/cp cannot be written"
    with pytest.raises(SquallError, match=message), checkpoint_lock(f"{tmp_path}/file/cp"):
        pass


def test_an_error_of_the_work_is_not_the_locks(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError), checkpoint_lock(str(tmp_path)):
        open("/nowhere/at all")  # noqa: SIM115
