"""One driver for a checkpoint."""

from __future__ import annotations

import contextlib
import json
import os
import time
from pathlib import Path

import pytest

from squall_common.daemon.folders import Folder
from squall_common.errors import SquallError
from squall_spark.lock import STALE_SECS, FolderInUseError, Held, HeldName, checkpoint_lock


def test_a_second_driver_is_refused_until_the_first_has_ended(tmp_path: Path) -> None:
    checkpoint = str(tmp_path / "new" / "cp")
    for _ in range(2):
        with (
            checkpoint_lock(checkpoint),
            pytest.raises(FolderInUseError, match=f"in use by process {os.getpid()} on "),
            checkpoint_lock(checkpoint),
        ):
            pass


def _claim(url: str, term: int, at: float) -> str:
    """Another driver's claim."""
    name = f"lock.{term:09d}.ab"
    Folder(url).write(name, json.dumps({"host": "other", "pid": 7, "at": at}).encode())
    return name


def test_behind_a_url_a_claim_is_a_lock_until_it_is_stale() -> None:
    url = "memory://lock-test/cp"
    with checkpoint_lock(url), pytest.raises(FolderInUseError), checkpoint_lock(url):
        pass
    assert Folder(url).names() == []
    old = time.time() - STALE_SECS - 1
    dead = _claim(url, 4, old)
    Folder(url).write(f"{dead}.at", json.dumps({"at": time.time()}).encode())
    with pytest.raises(FolderInUseError, match="by process 7 on other"), checkpoint_lock(url):
        pass
    assert sorted(Folder(url).names()) == [dead, f"{dead}.at"], "who was refused leaves nothing"
    Folder(url).write(f"{dead}.at", json.dumps({"at": old}).encode())
    with checkpoint_lock(url):
        (own,) = Folder(url).names()
        assert own.startswith("lock.000000005.")
        assert json.loads(Folder(url).read(own))["pid"] == os.getpid()


def test_a_driver_of_an_earlier_version_is_not_disturbed_while_it_runs() -> None:
    url = "memory://lock-test/earlier"
    earlier = {"host": "other", "pid": 7, "id": "ab", "at": time.time()}
    Folder(url).write("lock", json.dumps(earlier).encode())
    with pytest.raises(FolderInUseError, match="by process 7 on other"), checkpoint_lock(url):
        pass
    assert Folder(url).names() == ["lock"]
    earlier["at"] = time.time() - STALE_SECS - 1
    Folder(url).write("lock", json.dumps(earlier).encode())
    with checkpoint_lock(url):
        assert "lock" not in Folder(url).names()


def test_a_driver_paused_while_it_begins_leaves_its_successors_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    url = "memory://lock-test/begins"
    names = Folder.names
    looks = 0

    def late(folder: Folder) -> list[str]:
        """Another driver takes over, and renews its time, after this one has looked twice."""
        nonlocal looks
        looks += 1
        if looks == 3:
            Folder(url).write(_claim(url, 2, 0.0) + ".at", json.dumps({"at": 1.0}).encode())
        return names(folder)

    monkeypatch.setattr(Folder, "names", late)
    with checkpoint_lock(url) as paused:
        assert "lock.000000002.ab.at" in names(Folder(url))
        with pytest.raises(FolderInUseError):
            paused.check()


def test_a_driver_that_was_paused_too_long_finds_the_other_one_and_stops() -> None:
    url = "memory://lock-test/paused"
    with checkpoint_lock(url) as paused:
        paused.check()
        taken = _claim(url, 2, time.time())
        with pytest.raises(FolderInUseError, match="in use by process 7 on other"):
            paused.check()
        Folder(url).delete(taken)
        with pytest.raises(FolderInUseError):
            paused.check()  # also after the other one has ended
        _claim(url, 2, time.time())
    assert Folder(url).names() == [taken], "it is the other's"


@pytest.mark.parametrize("ended", [False, True])
def test_a_driver_paused_between_its_look_and_its_write_does_no_harm(
    ended: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its successor keeps the folder, and it finds that it has lost it."""
    url = f"memory://lock-test/between-{ended}"
    write = Folder.write
    with contextlib.ExitStack() as successor, checkpoint_lock(url) as paused:
        assert isinstance(paused, HeldName)

        def late(folder: Folder, name: str, data: bytes) -> None:
            """A minute passes, and a successor takes over, before the write."""
            monkeypatch.setattr(Folder, "write", write)
            now = time.time
            monkeypatch.setattr(time, "time", lambda: now() + STALE_SECS + 1)
            held.append(successor.enter_context(checkpoint_lock(url)))
            if ended:
                successor.close()
            write(folder, name, data)

        held: list[Held] = []
        monkeypatch.setattr(Folder, "write", late)
        paused.renew()
        if not ended:
            held[0].check()
        with pytest.raises(FolderInUseError):
            paused.check()
        if ended:
            with checkpoint_lock(url) as third:
                third.check()


def test_of_two_that_begin_at_once_not_both_hold_the_folder(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    url = "memory://lock-test/at-once"
    write = Folder.write

    def late(folder: Folder, name: str, data: bytes) -> None:
        """Another driver claims the folder between this one's look and its claim."""
        monkeypatch.setattr(Folder, "write", write)
        _claim(url, 1, time.time())
        write(folder, name, data)

    monkeypatch.setattr(Folder, "write", late)
    with pytest.raises(FolderInUseError, match="by process 7"), checkpoint_lock(url):
        pass
    assert Folder(url).names() == ["lock.000000001.ab"]


def test_a_store_that_fails_after_the_claim_does_not_refuse_the_next_try(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    url, names, looks = "memory://lock-test/failing", Folder.names, 0

    def failing(folder: Folder) -> list[str]:
        nonlocal looks
        looks += 1
        if looks == 2:  # once it has its claim
            raise OSError("the store is away")
        return names(folder)

    monkeypatch.setattr(Folder, "names", failing)
    with pytest.raises(OSError, match="the store is away"), checkpoint_lock(url):
        pass
    with checkpoint_lock(url):
        pass


def test_a_checkpoint_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    message = f"--checkpoint {tmp_path}/file/cp cannot be written"
    with pytest.raises(SquallError, match=message), checkpoint_lock(f"{tmp_path}/file/cp"):
        pass


def test_an_error_of_the_work_is_not_the_locks(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError), checkpoint_lock(str(tmp_path)):
        open("/nowhere/at all")  # noqa: SIM115
