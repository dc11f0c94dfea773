"""Loads the compiled core from the path in SQUALL_TEST_CORE, and the memory of rings from the one
in SQUALL_TEST_RING. A plugin of pytest, and the first import of a program."""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
from pathlib import Path

from bench import variants

_RING = "squall_worker.transport.ring.memory"

if path := os.environ.get("SQUALL_TEST_CORE"):
    variants.load(Path(path))
if path := os.environ.get("SQUALL_TEST_RING"):
    spec = importlib.util.spec_from_file_location(_RING, path)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[_RING] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    # As an import does.
    importlib.import_module(_RING.rpartition(".")[0]).memory = module  # type: ignore[attr-defined]
