"""A kept process is started again when it dies, and ends when told to."""

from __future__ import annotations

import asyncio
import errno
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from squall_cli.dev.process import (
    KeptProcess,
)


class Watched:
    """A kept process with the pids that it has had."""

    def __init__(self, tmp_path: Path, program: str) -> None:
        self.pids: list[int] = []
        self.ends = 0
        self.changed = asyncio.Event()
        self.process = KeptProcess(
            "child",
            [sys.executable, "-c", program],
            environment=dict(os.environ),
            output=tmp_path / "child.out",
            on_change=self._on_change,
        )
        self.process.start()

    def _on_change(self, process: KeptProcess) -> None:
        if process.pid is None:
            self.ends += 1
        else:
            self.pids.append(process.pid)
        self.changed.set()

    async def wait_change(self) -> None:
        await asyncio.wait_for(self.changed.wait(), 20)
        self.changed.clear()


SLEEPS = "import signal; signal.pause()"


async def test_a_killed_process_is_started_again(tmp_path: Path) -> None:
    watched = Watched(tmp_path, SLEEPS)
    watched.changed.clear()
    os.kill(watched.pids[0], signal.SIGKILL)
    while len(watched.pids) < 2:
        await watched.wait_change()
    assert watched.process.restarts == 1
    assert watched.process.last_status == -signal.SIGKILL
    await watched.process.stop(10)
    assert watched.process.pid is None


async def test_a_stopped_process_stays_away(tmp_path: Path) -> None:
    watched = Watched(tmp_path, SLEEPS)
    await watched.process.stop(10)
    assert watched.process.pid is None
    assert watched.ends == 0, "an end that was asked for is no accident to be told of"


async def test_one_that_ignores_sigterm_is_killed_with_its_group(tmp_path: Path) -> None:
    ready = tmp_path / "ready"
    program = (
        "import pathlib, signal, subprocess, sys\n"
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        f"child = subprocess.Popen([sys.executable, '-c', {SLEEPS!r}])\n"
        f"pathlib.Path({str(ready)!r}).write_text(str(child.pid))\n"
        "signal.pause()\n"
    )
    watched = Watched(tmp_path, program)
    await _until(lambda: ready.exists() and bool(ready.read_text()))
    grandchild = int(ready.read_text())
    await watched.process.stop(0.1)
    await _until(lambda: not _runs(grandchild))


async def test_stop_while_it_waits_for_its_restart(tmp_path: Path) -> None:
    watched = Watched(tmp_path, "raise SystemExit(3)")
    watched.changed.clear()
    await watched.wait_change()
    assert watched.process.last_status == 3
    await watched.process.stop(10)
    assert len(watched.pids) == 1


async def test_output_is_kept_over_restarts(tmp_path: Path) -> None:
    watched = Watched(tmp_path, "print('hello', flush=True)")
    while watched.ends < 2:
        await watched.wait_change()
    await watched.process.stop(10)
    assert (tmp_path / "child.out").read_text().count("hello") >= 2


def test_children_end_when_the_keeper_is_killed(tmp_path: Path) -> None:
    program = (
        "import asyncio, os, sys, pathlib\n"
        "from squall_cli.dev.process import KeptProcess\n"
        "async def main():\n"
        f"    kept = KeptProcess('c', [sys.executable, '-c', {SLEEPS!r}],\n"
        f"        environment=dict(os.environ), output=pathlib.Path({str(tmp_path / 'o')!r}),\n"
        "        on_change=lambda p: print(p.pid, flush=True))\n"
        "    kept.start()\n"
        "    await asyncio.get_running_loop().create_future()\n"
        "asyncio.run(main())\n"
    )
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE) as keeper:
        assert keeper.stdout is not None
        child = int(keeper.stdout.readline())
        keeper.kill()
    deadline = time.monotonic() + 20
    while _runs(child):
        assert time.monotonic() < deadline
        time.sleep(0.02)


async def _until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(20):
        while True:
            if holds():
                return
            await asyncio.sleep(0.02)


def _runs(pid: int) -> bool:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return stat.rpartition(")")[2].split()[0] not in "ZX"


async def test_a_process_whose_output_cannot_be_kept_is_started_anyway(
    tmp_path: Path,
) -> None:
    logs = tmp_path / "logs"
    logs.mkdir()
    watched = Watched(logs, SLEEPS)
    (logs / "child.out").unlink()
    logs.rmdir()
    os.kill(watched.pids[0], signal.SIGKILL)
    while len(watched.pids) < 2:
        await watched.wait_change()
    assert watched.process.restarts == 1
    await watched.process.stop(5)


async def test_a_process_that_cannot_be_started_again_now_is_started_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = _children()
    watched = Watched(tmp_path, SLEEPS)
    with monkeypatch.context() as patch:
        patch.setattr(os, "pidfd_open", _no_descriptors)
        os.kill(watched.pids[0], signal.SIGKILL)
        await _until(lambda: watched.process.restarts == 2)
    while len(watched.pids) < 2:
        await watched.wait_change()
    await watched.process.stop(5)
    assert _children() == before, "what could not be watched was ended"


def _no_descriptors(pid: int) -> int:
    raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))


def _children() -> list[int]:
    """The processes that this one has started."""
    parent = os.getpid()
    return [int(p) for p in Path(f"/proc/{parent}/task/{parent}/children").read_text().split()]


async def test_an_exception_of_the_callback_is_not_a_failed_start(tmp_path: Path) -> None:
    """Its message may have gone to a pipe that nobody reads."""
    before = _children()
    reported: list[dict[str, object]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: reported.append(context))

    def fail(process: KeptProcess) -> None:
        raise BrokenPipeError

    kept = KeptProcess(
        "child",
        [sys.executable, "-c", SLEEPS],
        environment=dict(os.environ),
        output=tmp_path / "child.out",
        on_change=fail,
    )
    kept.start()
    for restarts in (1, 2):
        assert kept.pid is not None
        os.kill(kept.pid, signal.SIGKILL)
        await _until(lambda n=restarts: kept.restarts == n and kept.pid is not None)
        assert len(_children()) == len(before) + 1
    await kept.stop(5)
    assert _children() == before
    assert len(reported) == 5  # three starts, two ends
