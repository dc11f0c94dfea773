"""Which core a process runs."""

import importlib
import subprocess
import sys

try:
    compiled = importlib.import_module("squall_engine.core.compiled")
except ImportError:
    compiled = None


def imported(choice):
    return subprocess.run(
        [sys.executable, "-c", "from squall_engine import core; print(core.NAME)"],
        env={"SQUALL_CORE": choice, "PYTHONPATH": ":".join(sys.path)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_the_environment_chooses_the_core():
    assert imported("pure").stdout.strip() == "pure"
    assert imported("").stdout.strip() == ("pure" if compiled is None else "compiled")
    assert "SQUALL_CORE=fast" in imported("fast").stderr
