"""Uploads: handles that are not paths, limits, and expiry."""

import asyncio
import errno
import os
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from squall_common.daemon.clock import ManualClock
from squall_common.errors import SquallError
from squall_nimbus.blobs.disk_reserve import DiskReserve
from squall_nimbus.blobs.uploads import Inbox


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def inbox(tmp_path: Path, clock: ManualClock):
    inbox = Inbox(
        tmp_path / "inbox",
        idle_secs=600,
        keep_secs=3600,
        upload_bytes_max=10,
        clock=clock.monotonic,
    )
    inbox.open()
    yield inbox
    inbox.close()


def names(inbox: Inbox) -> list[str]:
    return sorted(p.name for p in inbox._folder.iterdir())


async def test_an_upload_can_be_used_when_it_is_finished(inbox) -> None:
    handle = inbox.begin()
    await inbox.chunk(handle, b"one ")
    await inbox.chunk(handle, b"two")
    assert inbox.finished(handle) is None
    await inbox.finish(handle)
    path = inbox.finished(handle)
    assert path is not None
    assert path.read_bytes() == b"one two"
    with pytest.raises(SquallError, match="there is no file upload"):
        await inbox.chunk(handle, b"more")


@pytest.mark.parametrize(
    "handle",
    [
        "/etc/passwd",
        "../inbox/stormjar-00000000-0000-0000-0000-000000000000.jar",
        "stormjar-00000000-0000-0000-0000-000000000000.jar",
        "stormjar-x.jar",
        "",
        "\x00",
    ],
)
async def test_anything_else_is_not_an_upload(inbox, handle) -> None:
    assert inbox.finished(handle) is None
    with pytest.raises(SquallError):
        await inbox.chunk(handle, b"x")
    with pytest.raises(SquallError):
        await inbox.finish(handle)


async def test_an_upload_above_the_cap_ends_and_leaves_nothing(inbox) -> None:
    handle = inbox.begin()
    await inbox.chunk(handle, b"0123456789")
    with pytest.raises(SquallError, match="larger than 10 bytes"):
        await inbox.chunk(handle, b"!")
    assert names(inbox) == []
    with pytest.raises(SquallError, match="there is no file upload"):
        await inbox.finish(handle)


async def test_a_full_disk_is_a_clear_error_and_leaves_nothing(inbox, monkeypatch) -> None:
    handle = inbox.begin()
    await inbox.chunk(handle, b"data")

    def full(fd: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(SquallError, match="the disk of Nimbus is full"):
        await inbox.finish(handle)
    assert names(inbox) == []


async def test_an_idle_upload_expires(inbox, clock) -> None:
    idle, busy = inbox.begin(), inbox.begin()
    clock.advance(599)
    await inbox.chunk(busy, b"x")
    clock.advance(1)
    inbox.expire()
    assert names(inbox) == [f"{busy}.part"]
    with pytest.raises(SquallError, match="idle for 600 s"):
        await inbox.chunk(idle, b"x")
    await inbox.finish(busy)


async def test_a_finished_upload_expires_when_unused(inbox) -> None:
    used, old = inbox.begin(), inbox.begin()
    for handle in (used, old):
        await inbox.finish(handle)
        path = inbox.finished(handle)
        os.utime(path, (0, time.time() - 3700))
    inbox.finished(used)
    inbox.expire()
    assert names(inbox) == [used]


async def test_one_client_cannot_take_all_places(inbox) -> None:
    for _ in range(64):
        inbox.begin("10.0.0.7")
    with pytest.raises(SquallError, match=r"10\.0\.0\.7 has 64 file uploads open"):
        inbox.begin("10.0.0.7")
    handle = inbox.begin("10.0.0.8")
    await inbox.finish(handle)
    assert inbox.finished(handle)


@pytest.mark.parametrize(
    ("total_mb", "free_mb", "taken"),
    [
        (100_000, 600, True),
        (100_000, 511, False),
        (1_000, 200, True),  # on a small disk a tenth stays free
        (1_000, 99, False),
    ],
)
async def test_a_part_of_the_disk_stays_free(tmp_path, clock, total_mb, free_mb, taken) -> None:
    disk = SimpleNamespace(f_frsize=1024, f_blocks=total_mb * 1024, f_bavail=free_mb * 1024)
    folder = tmp_path / "inbox"
    inbox = Inbox(
        folder,
        idle_secs=600,
        keep_secs=3600,
        upload_bytes_max=10**9,
        clock=clock.monotonic,
        reserve=DiskReserve(folder, 512, statvfs=lambda path: disk),
    )
    inbox.open()
    if not taken:
        with pytest.raises(SquallError, match=f"has {free_mb} MB left") as caught:
            inbox.begin()
        assert "nimbus.disk.reserve.mb" in str(caught.value.hint)
        return
    handle = inbox.begin()
    await inbox.chunk(handle, b"x")
    disk.f_bavail = 0
    with pytest.raises(SquallError, match="stay free"):
        await inbox.chunk(handle, b"x")
    assert names(inbox) == [], "what was begun is gone"
    assert DiskReserve(folder, 0, statvfs=lambda path: disk).check("it") is None


async def test_parts_of_an_earlier_process_are_removed_and_finished_uploads_stay(
    inbox, clock
) -> None:
    whole = inbox.begin()
    await inbox.finish(whole)
    inbox.begin()
    again = Inbox(
        inbox._folder, idle_secs=1, keep_secs=1, upload_bytes_max=1, clock=clock.monotonic
    )
    again.open()
    assert names(again) == [whole]
    assert again.finished(whole) is not None


async def test_the_number_of_open_uploads_is_bounded(inbox) -> None:
    for _ in range(256):
        inbox.begin()
    with pytest.raises(SquallError, match="256 file uploads open"):
        inbox.begin()


async def test_chunks_of_one_upload_stay_in_order(inbox) -> None:
    handle = inbox.begin()
    await asyncio.gather(*(inbox.chunk(handle, bytes([i])) for i in range(10)))
    await inbox.finish(handle)
    assert inbox.finished(handle).read_bytes() == bytes(range(10))
