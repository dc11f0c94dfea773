"""Requests by which a supervisor asks a worker to write down what it is doing.

The supervisor leaves a file in the worker's folder, the worker's heartbeat thread takes it (so it
answers also while its run loop is stuck) and writes the dump among the worker's logs. A file
rather than a signal: a signal's handler in Python waits for the very thread that is stuck.
"""

from __future__ import annotations

import enum
from pathlib import Path

from squall_common.daemon.files import write_atomic


class DumpKind(enum.Enum):
    """The things that can be asked for; the value names the request's file."""

    STACKS = "dump-stacks"  # threads, asyncio tasks, executors
    HEAP = "dump-heap"  # which objects fill the memory
    SAMPLES = "dump-samples"  # stacks by task, sampled until the time in the file's name


def ask(worker_dir: Path, kind: DumpKind, name: str) -> None:
    """Ask for a dump in a file `name` of the worker's artifacts folder. Raises OSError."""
    write_atomic(worker_dir / kind.value, name.encode(), mode=0o600)


def take(worker_dir: Path, kind: DumpKind) -> str | None:
    """The name that was asked for, once; None when nothing was asked. Raises OSError."""
    path = worker_dir / kind.value
    try:
        name = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return None
    path.unlink(missing_ok=True)
    # Only ever a plain file of that folder, whoever wrote the request.
    return name if name and name == Path(name).name and name not in (".", "..") else None
