"""Workers of this machine, found as `ps` would: for commands that may fetch what a worker wrote."""

from __future__ import annotations

import os
from pathlib import Path


def artifacts_dir(topology_id: str, supervisor_id: str, port: int) -> Path | None:
    """The log folder of a worker that runs on this machine and whose files we may read; None when
    there is none. Workers are started as
    `python -m squall_worker TOPOLOGY_ID SUPERVISOR_ID PORT WORKER_ID LAUNCH_FILE`."""
    wanted = [topology_id, supervisor_id, str(port)]
    for name in filter(str.isdecimal, os.listdir("/proc")):
        try:
            words = Path(f"/proc/{name}/cmdline").read_text("utf-8", "replace").split("\0")[:-1]
        except OSError:  # it has ended
            continue
        if "squall_worker" not in words:
            continue
        arguments = words[words.index("squall_worker") + 1 :]
        if len(arguments) == 5 and arguments[:3] == wanted:
            try:
                folder = (Path(arguments[4]).parent / "artifacts").resolve(strict=True)
                next(folder.iterdir(), None)
            except OSError:
                continue
            return folder
    return None
