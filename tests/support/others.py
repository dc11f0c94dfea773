"""Programs of other users, for tests of root's: which Python they can run, where they can be."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NoReturn

import pytest

from squall_supervisor.confine.users import first_closed


def python_for_others() -> str | None:
    """An interpreter of this version that every user of the machine can run: this one, else the
    system's; None without one."""
    system = shutil.which("python3", path="/usr/bin:/usr/local/bin")
    for candidate in (sys.executable, system):
        if candidate is not None and first_closed(Path(candidate)) is None:
            code = "import sys; print(sys.version_info[:2])"
            said = subprocess.run(
                [candidate, "-I", "-S", "-c", code], capture_output=True, text=True, check=False
            )
            if said.stdout.strip() == str(sys.version_info[:2]):
                return candidate
    return None


def missing(reason: str) -> NoReturn:
    """What a test of other users needs is not there: it is skipped, but for CI as root, which has
    to have it."""
    if os.environ.get("CI") and os.geteuid() == 0:
        pytest.fail(f"{reason}; CI needs it")
    pytest.skip(reason)


@contextmanager
def folder_for_others() -> Iterator[Path]:
    """A folder that every user can walk to, as those of pytest are not: it closes them again with
    each new run of any pytest on the machine. What is made while the block runs is open, too,
    whatever the umask was."""
    umask = os.umask(0o022)
    try:
        yield from _folder()
    finally:
        os.umask(umask)


def _folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="squall-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        folder.chmod(0o755)
        closed = first_closed(folder)
        if closed is not None:
            missing(f"other users cannot reach {folder}: they may not enter {closed}")
        yield folder
