"""The watch over workers' memory, while workers come and go."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from squall_supervisor.confine.limits import NO_LIMITS
from squall_supervisor.settings import SupervisorSettings
from squall_supervisor.watch.memory import MemoryWatch


@pytest.mark.parametrize("ends", [False, True])
async def test_an_oom_kill_is_reported_once_even_if_the_worker_exits_meanwhile(
    tmp_path: Path, ends: bool
) -> None:
    """After the exit its slot reports it; one counted by the watch would never be forgotten."""
    reported: list[str] = []
    runner = SimpleNamespace(
        process=SimpleNamespace(worker_id="w1"),
        limits=NO_LIMITS,
        slot=SimpleNamespace(assignment=SimpleNamespace(topology_id="t-1")),
        report_oom_kills=lambda process, limits, topology_id, kills: reported.append(
            process.worker_id
        ),
    )

    def oom_kills(worker_id: str) -> int:
        if ends:
            runner.process = None
        return 1

    cgroups: Any = SimpleNamespace(oom_kills=oom_kills)
    settings = SupervisorSettings.from_conf({"storm.local.dir": str(tmp_path)})
    machine: Any = None
    runners: Any = {6700: runner}
    await MemoryWatch(runners, machine, settings, lambda *_: None, cgroups).look()
    assert reported == ([] if ends else ["w1"])
