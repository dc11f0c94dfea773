"""The entry point of the images as a process: what it refuses, runs and restarts."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

COMPOSE = Path(__file__).resolve().parents[3] / "deploy" / "compose"
ENTRYPOINT = COMPOSE / "entrypoint.py"


@pytest.mark.parametrize("text", ["- a\n", "a: [", "just words"])
def test_a_bad_environment_is_reported_in_one_message(tmp_path: Path, text: str) -> None:
    done = _run(tmp_path, "true", STORM_YAML=text)
    assert done.returncode == 2
    assert done.stderr.startswith("entrypoint: STORM_YAML is no")
    assert "Traceback" not in done.stderr


def test_an_unwritable_folder_is_reported_in_one_message(tmp_path: Path) -> None:
    (tmp_path / "conf").write_text("a file")
    done = _run(tmp_path, "true")
    assert done.returncode == 2
    assert done.stderr.startswith(f"entrypoint: {tmp_path}/conf/storm.yaml cannot be read")


def test_any_other_command_is_run_as_it_is(tmp_path: Path) -> None:
    assert _run(tmp_path, "sh", "-c", "exit 7").returncode == 7
    missing = _run(tmp_path, "no-such-program")
    assert missing.returncode == 2
    assert missing.stderr == "entrypoint: no-such-program: No such file or directory\n"


def _environment(folder: Path, **more: str) -> dict[str, str]:
    if not (folder / "conf").exists():
        (folder / "conf").mkdir()
    return {
        "PATH": f"{folder}:{os.environ['PATH']}",
        "STORM_CONF_DIR": str(folder / "conf"),
        "STORM_LOCAL_HOSTNAME": "here",
        **more,
    }


def _run(folder: Path, *command: str, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(ENTRYPOINT), *command],
        env=_environment(folder, **env),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.fixture
def supervised(tmp_path: Path) -> Iterator[Callable[[str], subprocess.Popen[str]]]:
    """Starts the entrypoint with a `storm` of the test's own, which notes how it is called."""
    started = []

    def start(script: str, **env: str) -> subprocess.Popen[str]:
        storm = tmp_path / "storm"
        storm.write_text(f'#!/bin/sh\necho "$$ $*" >> {tmp_path}/calls\n{script}\n')
        storm.chmod(0o755)
        process = subprocess.Popen(
            [sys.executable, str(ENTRYPOINT), "storm", "supervisor"],
            env=_environment(tmp_path, **env),
            stderr=subprocess.PIPE,
            text=True,
        )
        started.append(process)
        return process

    yield start
    for process in started:
        if process.poll() is None:
            process.terminate()
        process.communicate(timeout=30)


def _calls(folder: Path, count: int) -> list[str]:
    deadline = time.monotonic() + 60
    path = folder / "calls"
    while not path.exists() or len(path.read_text().splitlines()) < count:
        assert time.monotonic() < deadline, path.read_text() if path.exists() else "no calls"
        time.sleep(0.02)
    return path.read_text().splitlines()


def test_a_killed_supervisor_is_started_again_and_a_stop_ends_its_workers(
    tmp_path: Path, supervised: Callable[[str], subprocess.Popen[str]]
) -> None:
    process = supervised('[ "$1" = kill_workers ] || exec sleep 60')
    (first,) = _calls(tmp_path, 1)
    pid, arguments = first.split(" ", 1)
    assert arguments == "supervisor -c storm.local.hostname=here"
    os.kill(int(pid), signal.SIGKILL)
    second = _calls(tmp_path, 2)[1]
    assert second.split(" ", 1)[1] == arguments
    assert process.poll() is None
    process.terminate()
    assert process.wait(30) == 0
    last = _calls(tmp_path, 3)[2]
    assert last.split(" ", 1)[1] == "kill_workers -c storm.local.hostname=here"
    with pytest.raises(ProcessLookupError):
        os.kill(int(second.split()[0]), 0)


def test_a_logviewer_runs_beside_a_supervisor_and_both_end_with_it(
    tmp_path: Path, supervised: Callable[..., subprocess.Popen[str]]
) -> None:
    process = supervised('[ "$1" = kill_workers ] || exec sleep 60', STORM_LOGVIEWER="yes")
    pids = {line.split()[1]: int(line.split()[0]) for line in _calls(tmp_path, 2)}
    assert pids.keys() == {"supervisor", "logviewer"}
    os.kill(pids["logviewer"], signal.SIGKILL)
    again = _calls(tmp_path, 3)[2]
    assert again.split(" ", 1)[1] == "logviewer -c storm.local.hostname=here"
    process.terminate()
    assert process.wait(30) == 0
    assert [line.split()[1] for line in _calls(tmp_path, 4)[3:]] == ["kill_workers"]
    for pid in (pids["supervisor"], int(again.split()[0])):
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


def test_a_logviewer_that_ended_is_not_started_again_after_a_stop(
    tmp_path: Path, supervised: Callable[..., subprocess.Popen[str]]
) -> None:
    script = f"""
case $1 in
    supervisor) exec sleep 60 ;;
    logviewer) [ -e {tmp_path}/ended ] && exec sleep 60; touch {tmp_path}/ended; exit 3 ;;
esac
"""
    process = supervised(script, STORM_LOGVIEWER="yes")
    _calls(tmp_path, 2)
    assert process.stderr is not None
    assert process.stderr.readline() == "the logviewer exited with status 3; restarting it\n"
    process.terminate()  # during the pause before the restart
    try:
        assert process.wait(30) == 0
    finally:
        for line in _calls(tmp_path, 2):
            pid, name, *_ = line.split()
            if name == "logviewer":
                with contextlib.suppress(ProcessLookupError):
                    os.kill(int(pid), signal.SIGKILL)
    names = [line.split()[1] for line in _calls(tmp_path, 3)]
    assert sorted(names) == ["kill_workers", "logviewer", "supervisor"]


def test_a_wrong_command_line_is_not_retried(
    tmp_path: Path, supervised: Callable[[str], subprocess.Popen[str]]
) -> None:
    process = supervised("exit 2")
    assert process.wait(60) == 2
    assert len(_calls(tmp_path, 1)) == 1
