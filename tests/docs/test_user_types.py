"""Type checkers accept what users write correctly, and find their mistakes."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tests.support.devcluster import ROOT, environment
from tests.support.thirdparty import pyright_program

TYPED = Path(__file__).parent / "typed"
GOOD, BAD = TYPED / "good.py", TYPED / "bad.py"


def mypy(folder: Path) -> set[tuple[str, int]]:
    """Where mypy finds an error, as file name and line."""
    config = folder / "mypy.ini"
    config.write_text("[mypy]\nstrict = true\n")
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "mypy",
            "--config-file",
            str(config),
            GOOD.name,
            BAD.name,
            "--cache-dir",
            str(folder / "cache"),
            "--explicit-package-bases",
            "--follow-imports",
            "silent",
        ],
        cwd=TYPED,
        env={**os.environ, "MYPYPATH": environment()["PYTHONPATH"]},
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert done.returncode in (0, 1), done.stdout + done.stderr
    found = re.findall(r"^(\w+\.py):(\d+): error", done.stdout, re.M)
    return {(name, int(line)) for name, line in found}


def pyright(folder: Path) -> set[tuple[str, int]]:
    for file in (GOOD, BAD):  # it looks only below its configuration
        shutil.copy(file, folder)
    config = folder / "pyrightconfig.json"
    paths = environment()["PYTHONPATH"].split(os.pathsep)
    config.write_text(
        json.dumps({"include": ["."], "extraPaths": paths, "typeCheckingMode": "standard"})
    )
    done = subprocess.run(
        [pyright_program(), "--outputjson", "--pythonpath", sys.executable, "-p", str(config)],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert done.returncode in (0, 1), done.stdout + done.stderr
    found = json.loads(done.stdout)["generalDiagnostics"]
    return {
        (Path(one["file"]).name, one["range"]["start"]["line"] + 1)
        for one in found
        if one["severity"] == "error"
    }


@pytest.mark.timeout(420)
@pytest.mark.parametrize("checker", [mypy, pyright])
def test_mistakes_are_found_and_nothing_else(checker: object, tmp_path: Path) -> None:
    lines = BAD.read_text().splitlines()
    wrong = {("bad.py", n) for n, line in enumerate(lines, 1) if line.endswith("# wrong")}
    found = checker(tmp_path)  # type: ignore[operator]
    assert found == wrong


def test_the_package_says_that_it_is_typed() -> None:
    for package in ("api/squall", "drpc/squall_drpc", "pipeline/squall_spark"):
        assert (ROOT / package / "py.typed").exists(), package
