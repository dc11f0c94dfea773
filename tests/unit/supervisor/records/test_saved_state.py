"""Launch numbers while the local state cannot be written."""

from __future__ import annotations

import asyncio
import errno
from pathlib import Path

import pytest

from squall_common.daemon.loop.background import BackgroundTasks
from squall_supervisor.records.saved_state import SavedState
from squall_supervisor.records.state_file import LAUNCHES_RESERVED, LocalState, LocalStateFile


class _Disk(LocalStateFile):
    full = False

    def save(self, state: LocalState) -> None:
        if self.full:
            raise OSError(errno.ENOSPC, "No space left on device")
        super().save(state)


def _kept(disk: _Disk) -> int:
    state = disk.load()
    assert state is not None
    return state.launches_reserved


@pytest.fixture
def disk(tmp_path: Path) -> _Disk:
    return _Disk(tmp_path / "state")


def test_no_number_is_given_out_that_is_not_reserved_in_the_file(disk: _Disk) -> None:
    async def main() -> None:
        saved = SavedState(disk, LocalState("id"), BackgroundTasks())
        saved.save_now()
        disk.full = True
        given = [saved.next() for _ in range(LAUNCHES_RESERVED)]
        assert given == list(range(1, LAUNCHES_RESERVED + 1))
        assert given[-1] == _kept(disk)
        await saved.close()
        with pytest.raises(OSError, match="No space left") as caught:
            saved.next()
        assert caught.value.errno == errno.ENOSPC
        disk.full = False
        await saved.close()
        while _kept(disk) == LAUNCHES_RESERVED:
            saved.save()
            await saved.close()
        assert saved.next() == LAUNCHES_RESERVED + 1

    asyncio.run(main())


def test_a_supervisor_that_never_wrote_gives_out_nothing(disk: _Disk) -> None:
    async def main() -> None:
        disk.save(LocalState("id", 300))
        disk.full = True
        loaded = disk.load()
        assert loaded is not None
        saved = SavedState(disk, loaded, BackgroundTasks())
        with pytest.raises(OSError, match="No space left"):
            saved.save_now()
        with pytest.raises(OSError, match="No space left"):
            saved.next()
        await saved.close()
        disk.full = False
        saved.save()
        await saved.close()
        assert saved.next() == 301

    asyncio.run(main())
