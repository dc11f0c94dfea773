"""Lines for people and programs that may not be there any more.

A daemon's standard output can be a closed pipe, a full disk or closed altogether. It keeps a log;
what it prints besides is a courtesy, and must not end it.
"""

from __future__ import annotations

import contextlib
import os
from typing import TextIO


def hold_standard_streams() -> None:
    """Put /dev/null where a standard stream is closed. Otherwise the next file that is opened gets
    its number, and whatever is printed goes into that file."""
    for fd in range(3):
        try:
            os.fstat(fd)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # the lowest number that is free: this one


def print_if_possible(text: str, stream: TextIO | None) -> bool:
    """Write a line; whether that worked. `stream` is None when Python found it closed."""
    if stream is None:
        return False
    try:
        stream.write(text + "\n")
        stream.flush()
    except (OSError, ValueError):
        drop_unwritten(stream)
        return False
    return True


def drop_unwritten(stream: TextIO | None) -> None:
    """Forget what a stream could not write. Otherwise it is tried again, and when that fails as the
    interpreter exits, the exit status is 120."""
    if stream is None:
        return
    with contextlib.suppress(OSError, ValueError):
        stream.flush()
        return
    with contextlib.suppress(OSError, ValueError):
        fd = stream.fileno()
        kept, nowhere = os.dup(fd), os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)
        try:
            os.dup2(nowhere, fd)
            stream.flush()
        finally:
            os.dup2(kept, fd)
            os.close(kept)
            os.close(nowhere)
