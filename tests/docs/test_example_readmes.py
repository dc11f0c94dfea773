"""The commands in the READMEs of the examples, typed as they stand there, all at once: mostly they
wait."""

from __future__ import annotations

import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from tests.support.devcluster import STORM, environment
from tests.support.pages import ROOT, Block, blocks, pages

HERE = str(Path(__file__).relative_to(ROOT))
BLOCKS = [block for page in pages() for block in blocks(page) if block.run_by == HERE]


def typed(block: Block, folder: Path) -> subprocess.CompletedProcess[str]:
    """`examples` is a copy, and so is /tmp."""
    shutil.copytree(ROOT / "examples", folder / "examples")
    (folder / "bin").mkdir()
    for name, program in (("storm", STORM), ("python", [sys.executable])):
        script = folder / "bin" / name
        script.write_text(f'#!/bin/sh\nexec {" ".join(program)} "$@"\n')
        script.chmod(0o755)
    (folder / "tmp").mkdir()
    env = environment()
    env["PATH"] = f"{folder / 'bin'}:{env['PATH']}"
    return subprocess.run(
        ["sh", "-ec", block.text.replace("/tmp/", f"{folder / 'tmp'}/")],
        cwd=folder, env=env, capture_output=True, text=True, timeout=250, check=False,
    )  # fmt: skip


@pytest.mark.timeout(400)
def test_each_example_does_what_its_readme_says(tmp_path: Path) -> None:
    assert len(BLOCKS) == 7
    folders = [tmp_path / str(number) for number in range(len(BLOCKS))]
    for folder in folders:
        folder.mkdir()
    with ThreadPoolExecutor(len(BLOCKS)) as threads:
        results = list(threads.map(typed, BLOCKS, folders))
    for block, result in zip(BLOCKS, results, strict=True):
        said = f"{block.where}:\n{result.stdout[-3000:]}\n{result.stderr[-3000:]}"
        assert result.returncode == 0, said
        # The last command shows what came out.
        assert result.stdout.strip(), said
