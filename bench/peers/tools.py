"""Runs the programs that peers come with: what installs them, and what measures them."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path


class UnavailableError(RuntimeError):
    """It cannot run here; the message says why."""


def run_tool(command: Sequence[str], what: str, timeout_secs: float) -> None:
    """Run a program that installs something; `what` begins the error. Raises UnavailableError."""
    result = _run(command, what, timeout_secs)
    if result.returncode != 0:
        lines = [line for line in (result.stdout + result.stderr).splitlines() if line.strip()]
        wrong = [line for line in lines if "ERROR" in line or "error" in line] or lines
        raise UnavailableError(f"{what}: {wrong[0] if wrong else result.returncode}")


def run_script(
    command: Sequence[str],
    what: str,
    timeout_secs: float,
    folder: Path,
    environment: Mapping[str, str] | None = None,
) -> None:
    """Run a program that measures something, in a folder; `what` begins the error. Raises
    UnavailableError."""
    result = _run(command, what, timeout_secs, folder, environment)
    if result.returncode != 0:
        tail = " ".join(result.stderr.strip().splitlines()[-2:])
        raise UnavailableError(f"{what}: it ended with status {result.returncode}: {tail}")


def _run(
    command: Sequence[str],
    what: str,
    timeout_secs: float,
    folder: Path | None = None,
    environment: Mapping[str, str] | None = None,
) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(
            command,
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=timeout_secs,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise UnavailableError(f"{what}: it took more than {timeout_secs:.0f} s") from error
    except OSError as error:
        raise UnavailableError(f"{what}: {error}") from error
