"""Ctrl-C while `storm local` waits for the process that runs the topology."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading

import pytest

from squall_cli.programs import entry

DEAF = "import signal, time; signal.signal(signal.SIGINT, signal.SIG_IGN); time.sleep(10)"


@pytest.fixture
def child():
    process = subprocess.Popen([sys.executable, "-c", DEAF])
    yield process
    process.kill()
    process.wait()


@pytest.fixture(autouse=True)
def _quick(monkeypatch):
    monkeypatch.setattr(entry, "_SAY_SECS", 0.05)
    monkeypatch.setattr(entry, "_KILL_SECS", 0.05)


def interrupt(count: int, then=lambda: None) -> None:
    """Send this process Ctrl-C so often, soon, and do something afterwards."""

    def send() -> None:
        if not left:
            then()
            return
        left.pop()
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
        threading.Timer(0.2, send).start()

    left = [0] * count
    threading.Timer(0.2, send).start()


def test_a_second_interrupt_ends_a_process_that_does_not_react(child, capfd):
    interrupt(2)
    assert entry.wait_for_child(child, ends_at_second=True) == -signal.SIGKILL
    assert "Ctrl-C again ends it at once" in capfd.readouterr().err


def test_one_interrupt_leaves_the_process_time(child):
    interrupt(1, then=child.terminate)
    assert entry.wait_for_child(child, ends_at_second=True) == -signal.SIGTERM


def test_other_programs_are_not_killed(child):
    interrupt(2, then=child.terminate)
    assert entry.wait_for_child(child) == -signal.SIGTERM
