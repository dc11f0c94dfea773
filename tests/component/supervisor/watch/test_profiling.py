"""The sampler of a profile as a process: how it fails, and that it ends."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from squall_supervisor.watch.pyspy import ProfileError, Sampling


def program(path: Path, body: str) -> str:
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o700)
    return str(path)


async def test_a_sampler_that_writes_nothing_raises_its_message(tmp_path: Path) -> None:
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
