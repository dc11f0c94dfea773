"""An interpreter that has pystorm, in a virtual environment of its own (it is no dependency of
squall's): made once, then kept in the user's cache."""

from __future__ import annotations

import os
import subprocess
import sys
import venv
from pathlib import Path

import pytest

PACKAGES = ("pystorm==3.1.4", "msgpack>=1.0")


def pystorm_python() -> Path:
    """The interpreter. Skips the test, saying why, when pystorm cannot be installed."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    folder = cache / "squall-tests" / f"pystorm-3.1.4-py{sys.version_info[0]}{sys.version_info[1]}"
    python = folder / "bin" / "python"
    if not (folder / "ready").exists():
        try:
            venv.create(folder, with_pip=True, clear=True)
            subprocess.run(
                [python, "-m", "pip", "install", "-q", "--disable-pip-version-check", *PACKAGES],
                check=True,
                capture_output=True,
                text=True,
                timeout=180,
            )
        except (OSError, subprocess.SubprocessError) as error:
            said = getattr(error, "stderr", None) or str(error)
            pytest.skip(f"pystorm cannot be installed: {str(said)[-300:]}")
        (folder / "ready").touch()
    return python
