"""Profiling without a cluster: names, the meaning of py-spy's output, the program to run."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.support.nimbus_service import eventually

from squall_common.cluster import paths
from squall_common.cluster.state import ClusterState
from squall_common.cluster.stores.memory import MemoryEnsemble, MemoryStore
from squall_common.cluster.values import ProfileAction, ProfileRequest
from squall_common.daemon.clock import SystemClock
from squall_common.daemon.loop.background import BackgroundTasks
from squall_common.topology.model import WorkerSlot
from squall_common.worker_files.dump_request import DumpKind, ask, take
from squall_supervisor.node.topology_errors import TopologyErrors
from squall_supervisor.settings import SupervisorSettings
from squall_supervisor.slots.table import State
from squall_supervisor.watch.profiling import Profiling, file_name, prune
from squall_supervisor.watch.pyspy import ProfileError, find_py_spy, reason


@pytest.mark.parametrize(
    ("action", "name"),
    [
        (ProfileAction.JPROFILE_START, "flamegraph-17.svg"),
        (ProfileAction.JPROFILE_STOP, "flamegraph-17.svg"),
        (ProfileAction.JPROFILE_DUMP, "flamegraph-17.svg"),
        (ProfileAction.JSTACK_DUMP, "stacks-17.txt"),
        (ProfileAction.JMAP_DUMP, "heap-17.txt"),
        (ProfileAction.JVM_RESTART, "restart-17"),
    ],
)
def test_the_file_is_named_by_the_request(action: ProfileAction, name: str) -> None:
    assert file_name(ProfileRequest(WorkerSlot("n", 1), action, 17)) == name


@pytest.mark.parametrize(
    ("said", "meaning"),
    [
        ("Permission Denied: Try running again with elevated permissions", "CAP_SYS_PTRACE"),
        ("Error: Operation not permitted (os error 1)", "CAP_SYS_PTRACE"),
        ("py-spy> Sampling ...\nError: No stack counts found", "idle"),
        ("noise\nError: Failed to find a python interpreter\nmore", "Failed to find a python"),
        ("", "no message"),
    ],
)
def test_output_of_py_spy_becomes_a_message_for_people(said: str, meaning: str) -> None:
    assert meaning in str(reason(said, 1))


def test_a_missing_py_spy_is_named_with_what_to_do() -> None:
    with pytest.raises(ProfileError, match="is not installed on this node") as caught:
        find_py_spy("py-spy-that-nobody-has")
    assert "pip install py-spy" in str(caught.value)
    with pytest.raises(ProfileError, match="/nowhere/py-spy, which is not a program"):
        find_py_spy("/nowhere/py-spy")
    assert find_py_spy(sys.executable) == sys.executable


def test_only_the_newest_files_of_ours_are_kept(tmp_path: Path) -> None:
    (tmp_path / "worker.log").write_text("stays")
    for number in range(60):
        path = tmp_path / f"stacks-{number}.txt"
        path.write_text("")
        os.utime(path, (number, number))
    prune(tmp_path)
    left = {path.name for path in tmp_path.iterdir()}
    assert left == {"worker.log", *(f"stacks-{number}.txt" for number in range(10, 60))}


def test_a_dump_is_requested_once_and_never_outside_the_folder(tmp_path: Path) -> None:
    assert take(tmp_path, DumpKind.STACKS) is None
    ask(tmp_path, DumpKind.STACKS, "stacks-1.txt")
    assert take(tmp_path, DumpKind.HEAP) is None
    assert take(tmp_path, DumpKind.STACKS) == "stacks-1.txt"
    assert take(tmp_path, DumpKind.STACKS) is None
    for name in ("../stacks", "/etc/passwd", "..", ""):
        ask(tmp_path, DumpKind.STACKS, name)
        assert take(tmp_path, DumpKind.STACKS) is None


class Restarted:
    """A slot that runs `topology_id`, and counts the requests."""

    def __init__(self, topology_id: str) -> None:
        assignment = SimpleNamespace(topology_id=topology_id)
        self.slot = SimpleNamespace(state=State.RUNNING, assignment=assignment)
        self.process = SimpleNamespace(worker_id="w1", pid=1)
        self.port = 6700
        self.restarts = 0

    def restart(self) -> bool:
        self.restarts += 1
        return True


async def restart_one(tmp_path: Path, *, damaged: str | None = None) -> tuple[list[str], int]:
    """Ask for a restart of t-1's only worker, with a damaged request among those of a topology that
    comes first or its own; what was told of it as errors, and how often it was restarted."""
    state = ClusterState(MemoryStore(MemoryEnsemble()))
    await state.start()
    await state.setup_heartbeats("t-1")
    request = ProfileRequest(WorkerSlot("s", 6700), ProfileAction.JVM_RESTART, 17)
    if damaged is not None:
        await state.store.create(paths.profilerconfigs(damaged), b"")
        await state.store.create(f"{paths.profilerconfigs(damaged)}/torn", b"\x00torn")
    await state.put_profile_request("t-1", request)
    crashes: list[BaseException] = []
    tasks = BackgroundTasks(lambda name, error: crashes.append(error))
    first, ours = Restarted("a-0"), Restarted("t-1")
    runners: Any = {6699: first, 6700: ours}
    settings = SupervisorSettings.from_conf({"storm.local.dir": str(tmp_path / "local")})
    clock = SystemClock()
    errors = TopologyErrors(state, settings.hostname, clock, tasks)
    profiling = Profiling(
        state, runners, settings, errors, supervisor_id="s", clock=clock, tasks=tasks
    )
    tasks.start("profile requests", profiling.run())

    async def over() -> bool:
        names = await state.store.children(paths.profilerconfigs("t-1"))
        return bool(crashes) or not [name for name in names if name != "torn"]

    try:
        await eventually(over, "the request is taken away")
        assert crashes == []
        return [one.error for one in await state.errors("t-1", "__system")], ours.restarts
    finally:
        await tasks.close()
        await state.close()


@pytest.mark.parametrize("damaged", [None, "a-0"])
async def test_an_unreadable_request_does_not_block_other_topologies(
    tmp_path: Path, damaged: str | None
) -> None:
    assert await restart_one(tmp_path, damaged=damaged) == ([], 1)


async def test_a_restart_does_not_depend_on_the_content_of_the_workers_logs(
    tmp_path: Path,
) -> None:
    """That folder can be another user's: nothing is looked for, and nothing removed, there."""
    folder = tmp_path / "local" / "logs" / "workers-artifacts" / "t-1" / "6700"
    folder.mkdir(parents=True)
    (folder / "heap-1.txt").symlink_to("nowhere")
    assert await restart_one(tmp_path) == ([], 1)
