"""Profiling without a cluster: names, what py-spy's words mean, which program is run."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

import pytest

from squall.cluster.values import ProfileAction, ProfileRequest
from squall.dump_request import DumpKind, ask, take
from squall.model import WorkerSlot
from squall_supervisor.profiling import file_name, prune
from squall_supervisor.pyspy import ProfileError, Sampling, find_py_spy, reason


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
def test_what_py_spy_says_becomes_a_message_for_a_person(said: str, meaning: str) -> None:
    assert meaning in str(reason(said, 1))


def test_a_missing_py_spy_is_named_with_what_to_do() -> None:
    with pytest.raises(ProfileError, match="is not installed on this node") as caught:
        find_py_spy("py-spy-that-nobody-has")
    assert "pip install py-spy" in str(caught.value)
    with pytest.raises(ProfileError, match="is no program"):
        find_py_spy("/nowhere/py-spy")
    assert find_py_spy(sys.executable) == sys.executable


def program(path: Path, body: str) -> str:
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o700)
    return str(path)


async def test_a_sampler_that_writes_nothing_raises_what_it_said(tmp_path: Path) -> None:
    fake = program(tmp_path / "spy", "echo 'Error: no such process' >&2; exit 1")
    with pytest.raises(ProfileError, match="no such process"):
        await Sampling(fake, 1, tmp_path / "out.svg").run(1)


async def test_a_program_that_cannot_be_started_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ProfileError, match="cannot be started"):
        await Sampling(str(tmp_path / "none"), 1, tmp_path / "out.svg").run(1)


async def test_a_cancelled_sampling_leaves_no_process(tmp_path: Path) -> None:
    fake = program(tmp_path / "spy", f"echo $$ > {tmp_path}/pid; exec sleep 600")
    task = asyncio.create_task(Sampling(fake, 1, tmp_path / "out.svg").run(1))
    while not (tmp_path / "pid").exists() or not (tmp_path / "pid").read_text().strip():  # noqa: ASYNC110
        await asyncio.sleep(0.01)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert not Path(f"/proc/{(tmp_path / 'pid').read_text().strip()}").exists()


def test_only_the_newest_files_of_ours_are_kept(tmp_path: Path) -> None:
    (tmp_path / "worker.log").write_text("stays")
    for number in range(60):
        path = tmp_path / f"stacks-{number}.txt"
        path.write_text("")
        os.utime(path, (number, number))
    prune(tmp_path)
    left = {path.name for path in tmp_path.iterdir()}
    assert left == {"worker.log", *(f"stacks-{number}.txt" for number in range(10, 60))}


def test_a_dump_is_asked_for_once_and_never_outside_the_folder(tmp_path: Path) -> None:
    assert take(tmp_path, DumpKind.STACKS) is None
    ask(tmp_path, DumpKind.STACKS, "stacks-1.txt")
    assert take(tmp_path, DumpKind.HEAP) is None
    assert take(tmp_path, DumpKind.STACKS) == "stacks-1.txt"
    assert take(tmp_path, DumpKind.STACKS) is None
    for name in ("../stacks", "/etc/passwd", "..", ""):
        ask(tmp_path, DumpKind.STACKS, name)
        assert take(tmp_path, DumpKind.STACKS) is None
