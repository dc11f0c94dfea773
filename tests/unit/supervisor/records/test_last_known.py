"""What a supervisor keeps for workers that start without ZooKeeper, and for how long it counts."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from squall_common.cluster.values import Assignment, StormBase, TopologyStatus
from squall_common.daemon.loop.background import BackgroundTasks
from squall_common.topology.model import Executor, WorkerSlot
from squall_common.worker_files.last_known import LastKnown
from squall_supervisor.records.assignments import UNREADABLE
from squall_supervisor.records.last_known import LastKnownTopologies

ID = "words-1-17"
HERE, THERE = WorkerSlot("here", 6700), WorkerSlot("there", 6700)
BASE = StormBase("words", TopologyStatus.ACTIVE, num_workers=2)


def assignment(*slots: WorkerSlot) -> Assignment:
    return Assignment(
        "/code",
        node_host={slot.node: f"{slot.node}.example" for slot in slots},
        executor_slot={Executor(n, n): slot for n, slot in enumerate(slots, 1)},
    )


@pytest.fixture
async def tasks() -> AsyncIterator[BackgroundTasks]:
    group = BackgroundTasks()
    yield group
    await group.close()


def known(
    folder: Path, tasks: BackgroundTasks, at: float, boot_id: str = "b"
) -> LastKnownTopologies:
    made = LastKnownTopologies(folder / "last-known", tasks, boot_id=boot_id, away_secs_max=20.0)
    made.live(at)
    return made


def parsed(data: bytes | None) -> LastKnown | None:
    return None if data is None else LastKnown.parse(data)


def test_a_topology_survives_the_round_trip() -> None:
    for base in (BASE, None):
        one = LastKnown(assignment(HERE, THERE), base)
        assert LastKnown.parse(one.serialize()) == one


@pytest.mark.parametrize("data", [b"", b"{}", b"[1]", b'{"assignment": "%%", "storm": null}'])
def test_anything_else_is_refused(data: bytes) -> None:
    with pytest.raises(ValueError):
        LastKnown.parse(data)


async def test_topologies_with_work_here_are_kept_and_others_are_not(
    tmp_path: Path, tasks: BackgroundTasks
) -> None:
    topologies = known(tmp_path, tasks, 0.0)
    both, elsewhere = assignment(HERE, THERE), assignment(THERE)
    topologies.take("here", {ID: (both, 7), "other-2-18": (elsewhere, 8)}, {ID: BASE})
    assert parsed(topologies.of(ID)) == LastKnown(both, BASE)
    assert topologies.of("other-2-18") is None
    # An unreadable topology stays as it was; one that moved away is forgotten, even on disk.
    topologies.take("here", {ID: UNREADABLE}, {})
    assert parsed(topologies.of(ID)) == LastKnown(both, BASE)
    await topologies.close()
    assert [path.name for path in (tmp_path / "last-known").iterdir()] == [ID]
    topologies.take("here", {ID: (elsewhere, 9)}, {})
    await topologies.close()
    assert topologies.of(ID) is None
    assert list((tmp_path / "last-known").iterdir()) == []


async def test_the_next_supervisor_knows_unless_the_gap_was_a_session_timeout(
    tmp_path: Path, tasks: BackgroundTasks
) -> None:
    first = known(tmp_path, tasks, 100.0)
    first.take("here", {ID: (assignment(HERE), 7)}, {ID: BASE})
    await first.close()
    soon = known(tmp_path, tasks, 119.0)
    assert parsed(soon.of(ID)) == LastKnown(assignment(HERE), BASE)
    assert known(tmp_path, tasks, 139.0).of(ID) is None
    assert known(tmp_path, tasks, 140.0, boot_id="another").of(ID) is None


async def test_a_supervisor_that_was_stopped_for_long_must_read_again(
    tmp_path: Path, tasks: BackgroundTasks
) -> None:
    topologies = known(tmp_path, tasks, 100.0)
    read = ({ID: (assignment(HERE), 7)}, {ID: BASE})
    topologies.take("here", *read)
    topologies.live(119.0)
    assert topologies.of(ID) is not None
    topologies.live(139.0)
    assert topologies.of(ID) is None
    topologies.take("here", *read)
    assert topologies.of(ID) is not None
    await topologies.close()


async def test_a_spoiled_file_is_ignored(tmp_path: Path, tasks: BackgroundTasks) -> None:
    first = known(tmp_path, tasks, 100.0)
    first.take("here", {ID: (assignment(HERE), 7)}, {ID: BASE})
    await first.close()
    (tmp_path / "last-known" / ID).write_bytes(b"\x00" * 100)
    assert known(tmp_path, tasks, 101.0).of(ID) is None
