"""The version of this installation."""

import os
import subprocess
import sys
from importlib import metadata


def squall_version() -> str:
    """The version of the installed distribution; `unknown` when run from a bare source tree."""
    try:
        return metadata.version("squall")
    except metadata.PackageNotFoundError:
        return "unknown"


def core_name() -> str:
    """Which core a worker started here would run, `compiled` or `pure`, as the worker's package
    says; `unusable: ...` when it cannot be imported. It is asked in a process of its own: commands
    import no daemon."""
    program = "from squall_engine import core; print(core.NAME)"
    path = os.pathsep.join(part for part in sys.path if part)
    try:
        asked = subprocess.run(
            [sys.executable, "-P", "-c", program],
            env={**os.environ, "PYTHONPATH": path},
            capture_output=True,
            text=True,
            timeout=30,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"unusable: {error}"
    if asked.returncode != 0:
        return "unusable: " + (asked.stderr.strip().splitlines() or ["no message"])[-1]
    return asked.stdout.strip()
