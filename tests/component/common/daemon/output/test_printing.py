"""What is printed may fail in any way without consequence."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from squall_common.daemon.output.printing import print_if_possible

PROGRAM = """
import sys
from squall_common.daemon.output.printing import hold_standard_streams, print_if_possible

hold_standard_streams()
for _ in range(3):
    print_if_possible("text", sys.stderr)
with open({note!r}, "w") as note:
    note.write("went on")
"""


@pytest.mark.parametrize("how", ["closed pipe", "full disk", "closed"])
def test_a_line_that_cannot_be_printed_is_dropped(tmp_path: Path, how: str) -> None:
    """The exit status too is as if it had been printed."""
    note = tmp_path / "note"
    reader, writer = os.pipe()
    os.close(reader)
    if how == "full disk":
        full = os.open("/dev/full", os.O_WRONLY)
        os.dup2(full, writer)
        os.close(full)
    result = subprocess.run(
        ["sh", "-c", 'exec "$@" 2>&-' if how == "closed" else 'exec "$@"', "sh",
         sys.executable, "-c", PROGRAM.format(note=str(note))],
        stderr=writer,
        check=False,
    )  # fmt: skip
    os.close(writer)
    assert result.returncode == 0
    assert note.read_text() == "went on", "nothing was printed into a file that got the number 2"


def test_printing_says_whether_it_worked(capsys: pytest.CaptureFixture[str]) -> None:
    assert print_if_possible("there", sys.stdout)
    assert capsys.readouterr().out == "there\n"
    assert not print_if_possible("nowhere", None)
    with open("/dev/full", "w") as full:
        assert not print_if_possible("nowhere", full)
