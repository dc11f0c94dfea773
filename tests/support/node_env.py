"""node-storm (npm), a Storm library of others, kept in the user's cache."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

PACKAGE = "node-storm@0.0.1"


def node() -> str:
    """Node's command. Skips the test when this machine has none."""
    found = shutil.which("node")
    if found is None:
        pytest.skip("there is no `node` on this machine")
    return found


def node_storm_path() -> str:
    """A NODE_PATH that has node-storm. Skips the test, saying why, when it cannot be installed."""
    npm = shutil.which("npm")
    if npm is None:
        pytest.skip("there is no `npm` on this machine")
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    folder = cache / "squall-tests" / PACKAGE.replace("@", "-")
    if not (folder / "ready").exists():
        folder.mkdir(parents=True, exist_ok=True)
        command = [
            npm,
            "install",
            "--no-audit",
            "--no-fund",
            "--ignore-scripts",
            "--prefix",
            folder,
        ]
        try:
            subprocess.run(
                [*command, PACKAGE], check=True, capture_output=True, text=True, timeout=180
            )
        except (OSError, subprocess.SubprocessError) as error:
            said = getattr(error, "stderr", None) or str(error)
            pytest.skip(f"node-storm cannot be installed: {str(said)[-300:]}")
        (folder / "ready").touch()
    return str(folder / "node_modules")
