"""A process does not run a core that was compiled of another source."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from squall_engine import core

PYX = Path(core.__file__).with_name("compiled.pyx")


@pytest.mark.skipif(not core.COMPILED, reason="no compiled core runs here")
@pytest.mark.parametrize("choice", ["", "compiled"])
def test_a_stale_one_is_not_run(choice: str, tmp_path: Path) -> None:
    """The real module, beside another source."""
    from squall_engine.core import compiled

    program = (
        "import importlib.machinery, importlib.util, sys\n"
        f"name, path = 'squall_engine.core.compiled', {str(tmp_path / 'compiled.so')!r}\n"
        "class Finder:\n"
        "    def find_spec(self, wanted, *_):\n"
        "        if wanted == name:\n"
        "            loader = importlib.machinery.ExtensionFileLoader(name, path)\n"
        "            return importlib.util.spec_from_file_location(name, path, loader=loader)\n"
        "sys.meta_path.insert(0, Finder())\n"
        "from squall_engine import core\n"
        "print(core.NAME)\n"
    )
    (tmp_path / "compiled.so").write_bytes(Path(compiled.__file__).read_bytes())
    (tmp_path / "compiled.pyx").write_bytes(PYX.read_bytes() + b"# changed\n")
    shutil.copy(PYX.with_name("wire_format.py"), tmp_path)
    shutil.copytree(PYX.with_name("cython"), tmp_path / "cython")
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "SQUALL_CORE": choice, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    if choice == "compiled":
        assert done.returncode != 0
        assert "is older than its source" in done.stderr
    else:
        assert done.stdout.split()[-1] == "pure"
        assert "compiled_core_is_stale" in done.stderr + done.stdout
