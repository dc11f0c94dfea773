"""A child process that cannot be watched."""

from __future__ import annotations

import errno
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from squall_engine.multilang.process import ChildProcess


async def test_a_child_that_cannot_be_watched_is_ended(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """It was left behind, one more at each attempt to start it again."""
    made: list[subprocess.Popen[bytes]] = []

    class Popen(subprocess.Popen[bytes]):
        def __init__(self, *args: Any, **keys: Any) -> None:
            super().__init__(*args, **keys)
            made.append(self)

    def refuse(pid: int, flags: int = 0) -> int:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    def nothing(*_: Any) -> None:
        pass

    monkeypatch.setattr(subprocess, "Popen", Popen)
    monkeypatch.setattr(os, "pidfd_open", refuse)
    fds = len(os.listdir("/proc/self/fd"))
    try:
        with pytest.raises(OSError, match="Too many open files"):
            ChildProcess(
                ["sleep", "60"], cwd=tmp_path, env=dict(os.environ), dies_with_us=False,
                on_output=nothing, on_writable=nothing, on_error_line=nothing, on_exit=nothing,
            )  # fmt: skip
        assert [child.poll() for child in made] == [-9]
        assert len(os.listdir("/proc/self/fd")) == fds
    finally:
        for child in made:
            child.kill()
            child.wait()
