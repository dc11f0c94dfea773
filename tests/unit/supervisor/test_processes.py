"""Processes by identity."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from squall_supervisor.records import processes
from squall_supervisor.records.processes import ProcessIdentity, ProcessStat, parse_stat

# proc(5), with a name made to mislead a parser.
STAT = (
    b"4711 (a) R 1 (b) S 1 4700 4699 34816 4711 4194560 100 0 0 0 1 2 0 0 20 0 1 0 "
    b"987654 1000 100 18446744073709551615 1 1 0\n"
)


def test_status_fields_count_from_the_last_parenthesis() -> None:
    expected = ProcessStat(pid=4711, state="S", parent=1, session=4699, start_ticks=987654)
    assert parse_stat(STAT) == expected


@pytest.mark.parametrize("data", [b"", b"4711 (x", b"4711 (x) S 1 2", b"\0" * 50])
def test_what_is_no_status_is_refused(data: bytes) -> None:
    with pytest.raises(ValueError):
        parse_stat(data)


def test_this_process_is_itself_and_nobody_else() -> None:
    me = processes.identify(os.getpid())
    assert me is not None
    fd = processes.open_process(me)
    assert fd is not None
    os.close(fd)
    earlier = ProcessIdentity(me.pid, me.start_ticks - 1, me.boot_id)
    another_boot = ProcessIdentity(me.pid, me.start_ticks, "another")
    assert processes.open_process(earlier) is None
    assert processes.open_process(another_boot) is None


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
def test_a_session_that_nobody_watched_counts_only_with_the_workers_mark(
    tmp_path: Path, marked: bool
) -> None:
    """Its number can be somebody else's since: a daemon whose first process has ended."""
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
