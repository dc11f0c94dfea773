"""What a worker prints is cut while it and its children print on."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

PROGRAM = """
import os, subprocess, sys, time
from pathlib import Path
from squall_worker.report import printed

printed.PRINTED_BYTES_MAX, printed._EVERY_SECS = 1_000_000, 0.01
printed.turn_over.__defaults__ = (1_000_000,)
printed.bound_printed(Path(sys.argv[1]))
older = Path(sys.argv[1], "worker.log.out.1")
child = "print('of a child ' * 100_000, flush=True)"
while not older.exists():
    subprocess.run([sys.executable, "-c", child], check=True)
# A line that is printed between the copy and the cut is lost.
while os.fstat(1).st_size > 1_000_000:
    time.sleep(0.01)
print("the end", flush=True)
"""


def test_a_process_that_prints_on_and_its_children(tmp_path: Path) -> None:
    out = tmp_path / "worker.log.out"
    with out.open("ab") as file:
        subprocess.run(
            [sys.executable, "-c", PROGRAM, tmp_path], stdout=file, check=True, timeout=60
        )
    older = tmp_path / "worker.log.out.1"
    assert out.read_bytes().endswith(b"the end\n")
    assert older.stat().st_size <= 1_000_000
    assert out.stat().st_size <= 1_000_000 + len("the end\n")
