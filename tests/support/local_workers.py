"""Topologies of tests whose components real worker processes import (`squall._workers`)."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from textwrap import dedent

import pytest

from squall._workers import LocalWorkers


def code_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, module: str, text: str
) -> Iterator[Path]:
    """For a fixture: a folder of code with one module, which this process can import, too."""
    code = tmp_path / "code"
    code.mkdir()
    (code / f"{module}.py").write_text(dedent(text))
    monkeypatch.syspath_prepend(str(code))
    yield code
    sys.modules.pop(module, None)


def wait_until(cluster: LocalWorkers, what: str, condition: Callable[[], bool]) -> None:
    """Wait for a condition while the workers run; `what` is named if it does not come true."""
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline, what
        cluster.wait(0.1)
