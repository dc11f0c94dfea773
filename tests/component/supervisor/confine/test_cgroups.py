"""The limits of cgroups that the kernel enforces on real processes."""

from __future__ import annotations

import os
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from squall_common.errors import ConfigError
from squall_supervisor.confine import cgroups as module
from squall_supervisor.confine.cgroups import Cgroups, hierarchies_of_machine
from squall_supervisor.confine.confinement import Confinement, start_confined
from squall_supervisor.confine.limits import WorkerLimits

# The kernel's.


@pytest.fixture
def real(monkeypatch: pytest.MonkeyPatch) -> Iterator[Cgroups]:
    try:
        cgroups = Cgroups(
            hierarchies_of_machine(None),
            rootdir=f"squall-test-{uuid.uuid4()}",
            local_dir=Path("/data"),
            controllers=("cpu", "memory"),
            margin_mb=16.0,
        )
        cgroups.prepare()
    except ConfigError as error:
        pytest.skip(f"no cgroups may be made here: {error}")
    yield cgroups
    monkeypatch.setattr(module, "_REMOVE_SECS", 20.0)
    cgroups.sweep(())
    for home in set(cgroups._homes.values()):
        home.rmdir()
        home.parent.rmdir()


def run_in(
    cgroups: Cgroups, worker_id: str, code: str, limits: WorkerLimits, folder: Path
) -> subprocess.Popen[bytes]:
    return start_confined(
        [sys.executable, "-I", "-S", "-c", code],
        {},
        Confinement(cgroups=cgroups.make(worker_id, limits)),
        cwd=folder,
        out=folder / "out",
        err=folder / "err",
        launch_file=Path("/dev/null"),
        marks={},
    )


FORKS_AND_EATS = """
import os, time
if os.fork() == 0:
    os.setsid()
    eaten = bytearray(b"x" * (200 << 20))
time.sleep(600)
"""


def test_the_kernel_kills_processes_over_the_limit_and_their_children(
    real: Cgroups, tmp_path: Path
) -> None:
    child = run_in(real, "w1", FORKS_AND_EATS, WorkerLimits(48.0), tmp_path)
    try:
        deadline = time.monotonic() + 60
        while not real.oom_kills("w1"):
            assert time.monotonic() < deadline
            time.sleep(0.05)
    finally:
        child.kill()
        child.wait()
    real.remove("w1")
    assert not real.limits_memory("w1")
    assert real.oom_kills("w1") == 0


def test_removing_a_cgroup_kills_the_processes_in_it(real: Cgroups, tmp_path: Path) -> None:
    code = "import os, time; os.fork() or os.setsid(); os.fork(); time.sleep(600)"
    child = run_in(real, "w1", code, WorkerLimits(), tmp_path)
    below = real._homes["memory"] / "w1" / "made-by-the-worker"
    below.mkdir()
    (below / "cgroup.procs").write_text(str(child.pid))
    assert real.sweep(()) == ["w1"]
    assert child.wait(timeout=30) == -9
    assert not real.limits_memory("w1")


def test_the_kernel_has_the_limits(real: Cgroups) -> None:
    real.make("w1", WorkerLimits(48.0, "", 50.0))
    memory, cpu = real._homes["memory"] / "w1", real._homes["cpu"] / "w1"
    if real.version == 2:
        assert (memory / "memory.max").read_text().strip() == str(64 << 20)
        assert (cpu / "cpu.max").read_text().split() == ["50000", "100000"]
    else:
        assert (memory / "memory.limit_in_bytes").read_text().strip() == str(64 << 20)
        assert (cpu / "cpu.cfs_quota_us").read_text().strip() == "50000"
    real.make("w2", WorkerLimits(1e15, "", 1e9))  # a huge value is not an error
    assert os.path.isdir(real._homes["memory"] / "w2")
