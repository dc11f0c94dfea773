"""`storm --version` as a process: it starts fast."""

from __future__ import annotations

import subprocess
import sys

import pytest


@pytest.fixture(autouse=True)
def _eighty_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")


def test_version_imports_only_what_it_needs() -> None:
    """`storm --version` must answer at once: no Thrift, no YAML, no rich."""
    program = (
        "import sys\n"
        "from squall_cli.main import run\n"
        "status = run(['--version'])\n"
        "heavy = {'rich', 'yaml', 'thriftpy2', 'kazoo', 'asyncio', 'squall'} & set(sys.modules)\n"
        "sys.exit(f'imported {heavy}' if heavy or status else 0)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("Squall ")
