"""Requests for dumps, as the heartbeat thread looks for them."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import pytest

from squall_common.worker_files.dump_request import DumpKind, ask
from squall_worker.report.dumps import Dumps


async def test_samples_that_no_thread_can_take_do_not_end_the_heartbeats(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    dumps = Dumps(
        tmp_path,
        tmp_path,
        about=str,
        loop=asyncio.get_running_loop(),
        executors=list,
        samples=lambda until: "samples",
    )
    ask(tmp_path, DumpKind.SAMPLES, "samples-0.txt")
    monkeypatch.setattr(threading.Thread, "start", refuse)
    dumps.look()
    assert "can't start new thread" in caplog.text
