"""Where there is no Docker engine the tests in containers are skipped, and say why."""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path

import pytest
from tests.support import docker_engine
from tests.support.devcluster import is_alive, wait_for


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """PATH, with whatever the test puts there; no commands of the machine's."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))
    monkeypatch.setattr(os, "getuid", lambda: 0)
    return folder


def program(folder: Path, name: str, script: str) -> None:
    (folder / name).write_text(f"#!/bin/sh\n{script}\n")
    (folder / name).chmod(0o755)


def test_commands_that_are_missing_are_named_with_their_packages(programs: Path) -> None:
    program(programs, "docker", "exit 1")
    with pytest.raises(pytest.skip.Exception, match=r"no dockerd, .* apt-get install docker\.io"):
        docker_engine.engine().__enter__()


def test_without_root_nothing_is_tried(programs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "getuid", lambda: 1000)
    with pytest.raises(pytest.skip.Exception, match="only root can start one"):
        docker_engine.engine().__enter__()


def test_an_engine_that_does_not_start_is_quoted_and_leaves_nothing(
    programs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    forward = tmp_path / "ip_forward"
    forward.write_text("0\n")
    monkeypatch.setattr(docker_engine, "_IP_FORWARD", forward)
    monkeypatch.setattr(docker_engine, "_LOCK", tmp_path / "lock")
    monkeypatch.setattr(docker_engine.tempfile, "tempdir", str(tmp_path))
    program(programs, "docker", "exit 1")
    program(programs, "dockerd", "echo starting; echo no permission for cgroups >&2; exit 1")
    program(programs, "iptables-save", f"echo saved > {tmp_path}/rules; echo '*filter'")
    program(programs, "iptables-restore", f"/bin/cat > {tmp_path}/restored")
    for name in ("docker-init", "mmdebstrap"):
        program(programs, name, "exit 1")
    with pytest.raises(pytest.skip.Exception, match=r"does not start here: .* no permission for"):
        docker_engine.engine().__enter__()
    assert (tmp_path / "restored").read_text().startswith("*filter")
    assert not list(tmp_path.glob("squall-engine-*"))


def test_a_command_that_hangs_is_ended_with_its_children(tmp_path: Path) -> None:
    pid_file = tmp_path / "pid"
    # The child keeps the pipes of its parent open.
    script = f"sleep 300 & echo $! > {pid_file}; wait"
    start = time.monotonic()
    with pytest.raises(subprocess.TimeoutExpired):
        docker_engine._bounded(["sh", "-c", script], timeout_secs=1)
    assert time.monotonic() - start < 60
    wait_for("the child to end", lambda: not is_alive(int(pid_file.read_text())))
