"""Real processes, recognized by their start, their session and their mark."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from squall_supervisor.records import processes
from squall_supervisor.records.processes import ProcessIdentity


def test_a_zombie_has_ended() -> None:
    child = subprocess.Popen([sys.executable, "-S", "-c", ""])
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    assert processes.identify(child.pid) is None
    child.wait()


def test_leftovers_of_a_recycled_leader_are_left_alone() -> None:
    """The session's number belongs to another process by now: nothing of it is ours."""
    stranger = subprocess.Popen(["sleep", "60"], start_new_session=True)
    try:
        me = processes.identify(stranger.pid)
        assert me is not None
        before = ProcessIdentity(me.pid, me.start_ticks - 5, me.boot_id)
        assert processes.kill_leftovers(before, [stranger.pid], "SQUALL_WORKER_ID=w1") == 0
        assert stranger.poll() is None
    finally:
        stranger.send_signal(signal.SIGKILL)
        stranger.wait()


@pytest.mark.parametrize("marked", [True, False])
def test_in_an_unwatched_session_only_processes_with_the_workers_mark_are_killed(
    tmp_path: Path, marked: bool
) -> None:
    """Its number may have been reused since: by a daemon whose first process has ended."""
    code = f"sleep 60 & echo $! > {tmp_path}/part && mv {tmp_path}/part {tmp_path}/pid; read _"
    mark = {"SQUALL_WORKER_ID": "w1"} if marked else {}
    leader = subprocess.Popen(
        ["sh", "-c", code], start_new_session=True, env={**os.environ, **mark},
        stdin=subprocess.PIPE,
    )  # fmt: skip
    try:
        identity = processes.identify(leader.pid)
        assert identity is not None
        deadline = time.monotonic() + 30
        while not (tmp_path / "pid").exists():
            assert time.monotonic() < deadline
            time.sleep(0.01)
        leader.communicate(b"\n", timeout=30)
        left = processes.identify(int((tmp_path / "pid").read_text()))
        assert left is not None
        fd = processes.open_process(left)
        assert fd is not None
        try:
            killed = processes.kill_leftovers(identity, [], "SQUALL_WORKER_ID=w1", long_ended=True)
            assert (killed > 0) is marked  # it is signalled until it is gone
        finally:
            processes.send_signal(fd, signal.SIGKILL)
            os.close(fd)
    finally:
        leader.kill()
        leader.wait()
