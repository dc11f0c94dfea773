"""Faults that are put into the product from outside, to show that a chaos test finds them.

Python imports `sitecustomize` of this folder by itself in a process that is started with
`bug_environment(NAME)`. What it can do stands there.
"""

from __future__ import annotations

import os
from pathlib import Path

FOLDER = Path(__file__).resolve().parent


def bug_environment(bug: str, pythonpath: str = "") -> dict[str, str]:
    """Variables for the process, or for `topology.environment`. A bug replaces methods, which
    nothing calls in modules that are compiled."""
    path = [part for part in (pythonpath, str(FOLDER)) if part]
    return {
        "SQUALL_TEST_BUG": bug,
        "SQUALL_MODULES": "python",
        "PYTHONPATH": os.pathsep.join(path),
    }
