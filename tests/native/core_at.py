"""Loads the compiled core from the path in SQUALL_TEST_CORE. A plugin of pytest, and the first
import of a program."""

from __future__ import annotations

import os
from pathlib import Path

from bench import variants

if path := os.environ.get("SQUALL_TEST_CORE"):
    variants.load(Path(path))
