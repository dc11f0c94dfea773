"""Files in the folders of a cluster that runs. What `Path.rglob` finds there may be gone before it
looks inside, and then it raises an error."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path


def found(folder: Path, pattern: str = "*") -> list[Path]:
    """Like `sorted(folder.rglob(pattern))`, without what goes meanwhile; nothing when there is no
    such folder."""
    return sorted(
        path
        for place, folders, files in os.walk(folder)
        for path in (Path(place, name) for name in (*folders, *files))
        if path.match(pattern)
    )


def texts(folder: Path, pattern: str) -> Iterator[str]:
    """What the files say that `found` finds, those that can still be read."""
    for path in found(folder, pattern):
        with contextlib.suppress(OSError):
            yield path.read_text(errors="replace")
