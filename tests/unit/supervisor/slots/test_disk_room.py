"""Ports that are withdrawn while the disk is full."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable
from pathlib import Path

import pytest

from squall_common.daemon.loop.background import BackgroundTasks
from squall_supervisor.blobs.source import LocalizeError
from squall_supervisor.slots import disk_room
from squall_supervisor.slots.disk_room import DiskRoom, has_room

PORTS = (6700, 6701, 6702)


def _no_space() -> OSError:
    return OSError(errno.ENOSPC, "No space left on device")


@pytest.fixture
def room(monkeypatch: pytest.MonkeyPatch) -> dict[str, bool]:
    """Whether there is room, which `has_room` then says."""
    state = {"there": False}
    monkeypatch.setattr(disk_room, "has_room", lambda folders: state["there"])
    monkeypatch.setattr(disk_room, "_HOLD_SECS", 0.01)
    return state


def _run(test: Callable[[DiskRoom, list[str]], object]) -> None:
    async def main() -> None:
        tasks = BackgroundTasks()
        changes: list[str] = []
        try:
            one = DiskRoom((Path("/"),), tasks, changed=lambda: changes.append("changed"))
            result = test(one, changes)
            if asyncio.iscoroutine(result):
                await result
        finally:
            await tasks.close()

    asyncio.run(main())


async def _until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.001)


def test_all_ports_are_offered_until_a_port_fails_three_times_in_a_row(
    room: dict[str, bool],
) -> None:
    async def test(disk: DiskRoom, changes: list[str]) -> None:
        for _ in range(2):
            disk.failed(6700, _no_space())
        disk.launched(6700)
        for _ in range(2):
            disk.failed(6700, _no_space())
        assert disk.offered(PORTS, idle=[6702]) == PORTS
        disk.failed(6700, _no_space())
        assert disk.offered(PORTS, idle=[6702]) == (6701,)
        assert changes == ["changed"]

    _run(test)


def test_errors_that_are_not_of_the_disk_withdraw_nothing(room: dict[str, bool]) -> None:
    async def test(disk: DiskRoom, changes: list[str]) -> None:
        for _ in range(9):
            disk.failed(6700, LocalizeError("Nimbus is away"))
            disk.failed(6701, OSError(errno.EAGAIN, "no more processes"))
        assert disk.offered(PORTS, idle=PORTS) == PORTS
        assert not changes

    _run(test)


def test_a_cause_further_down_counts(room: dict[str, bool]) -> None:
    async def test(disk: DiskRoom, changes: list[str]) -> None:
        error = LocalizeError("cannot be unpacked")
        error.__cause__ = _no_space()
        for _ in range(3):
            disk.failed(6700, error)
        assert disk.offered(PORTS, idle=[]) == (6701, 6702)

    _run(test)


def test_ports_are_offered_again_once_there_is_room(room: dict[str, bool]) -> None:
    async def test(disk: DiskRoom, changes: list[str]) -> None:
        for port in (6700, 6701):
            for _ in range(3):
                disk.failed(port, _no_space())
        assert disk.offered(PORTS, idle=[]) == (6702,)
        await asyncio.sleep(0.05)
        assert disk.offered(PORTS, idle=[]) == (6702,)
        room["there"] = True
        await _until(lambda: disk.offered(PORTS, idle=[]) == PORTS)
        assert len(changes) == 3

    _run(test)


def test_each_further_time_ports_stay_withdrawn_for_longer(
    room: dict[str, bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    room["there"] = True
    held: list[float] = []
    sleep = asyncio.sleep

    async def noted(secs: float) -> None:
        held.append(secs)
        await sleep(0)

    monkeypatch.setattr(asyncio, "sleep", noted)

    async def test(disk: DiskRoom, changes: list[str]) -> None:
        async def withdraw() -> None:
            for _ in range(3):
                disk.failed(6700, _no_space())
            async with asyncio.timeout(10):
                while disk.offered(PORTS, idle=[]) != PORTS:
                    await sleep(0.001)

        for _ in range(3):
            await withdraw()
        assert held == [5.0, 10.0, 20.0]
        disk.launched(6700)
        await withdraw()
        assert held[3:] == [5.0]

    monkeypatch.setattr(disk_room, "_HOLD_SECS", 5.0)
    _run(test)


def test_room_is_what_a_file_takes(tmp_path: Path) -> None:
    assert has_room([tmp_path, tmp_path / "not" / "made" / "yet"], 4096)
    assert not has_room([tmp_path], 1 << 60)
    assert list(tmp_path.iterdir()) == []
