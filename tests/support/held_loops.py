"""Log lines that say that a loop was held (`squall_common.daemon.loop.watched_loop`)."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from tests.support.live_files import found

# What daemons log from. It is CPU time of the loop's own thread: waiting for a processor does not
# count, on however busy a machine.
HELD_MS_MAX = 50
_LINE = re.compile(r"loop_held .*?\bms=(\d+)")


def held_loops(lines: Iterable[str], ms_max: int = HELD_MS_MAX) -> list[str]:
    """The lines that a test is to fail for."""
    return [
        line.rstrip()
        for line in lines
        if (there := _LINE.search(line)) is not None and int(there[1]) > ms_max
    ]


def held_loops_in(folder: Path) -> list[str]:
    """The same, of all daemons' logs in a folder, with the log's name."""
    return [
        f"{path.name}: {line}"
        for path in found(folder, "*.log*")
        if path.is_file()
        for line in held_loops(path.read_text(errors="replace").splitlines())
    ]
