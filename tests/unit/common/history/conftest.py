"""Without PyArrow, which the `history` extra brings, no history is written."""

from __future__ import annotations

import importlib.util
import os

# CI has it; `make quick` and `make check` do without.
if importlib.util.find_spec("pyarrow") is None and not os.environ.get("CI"):
    collect_ignore_glob = ["test_*writer.py"]
