"""Ends what a killed keeper could not: the workers, which outlive their supervisors by design.

The keeper holds the other end of this process' standard input. It closes it after writing
"done\\n" when it has ended everything itself; when it dies (kill -9, out of memory), the pipe ends
without that word, and the guardian ends each supervisor's workers. The daemons get SIGTERM from the
kernel at that moment (`process.KeptProcess`); those that have not gone after a grace are killed.

    python -m squall_cli.dev.guardian DATA_DIR

Only the standard library is imported: this process waits in every development cluster.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

DONE = b"done\n"
_GRACE_SECS = 8.0
_POLL_SECS = 0.05


def belongs_to(pid: int, data_dir: Path) -> bool:
    """Whether this process (still) is a daemon of the cluster: its number may have been reused."""
    needle = os.fsencode(str(data_dir))
    for name in ("environ", "cmdline"):
        try:
            if needle in Path(f"/proc/{pid}/{name}").read_bytes():
                return True
        except OSError:
            continue
    return False


def end_daemons(pids: list[int], data_dir: Path) -> None:
    """Wait for the daemons to end; kill those that do not."""
    deadline = time.monotonic() + _GRACE_SECS
    left = [pid for pid in pids if belongs_to(pid, data_dir)]
    while left and time.monotonic() < deadline:
        time.sleep(_POLL_SECS)
        left = [pid for pid in left if belongs_to(pid, data_dir)]
    for pid in left:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue


def main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    data_dir = Path(sys.argv[1])
    if sys.stdin.buffer.read() == DONE:
        return
    state = json.loads((data_dir / "cluster.json").read_bytes())
    daemons = [state["nimbus"], state["zookeeper"], *state["supervisors"]]
    end_daemons([daemon["pid"] for daemon in daemons if daemon["pid"]], data_dir)
    for number in range(1, len(state["supervisors"]) + 1):
        conf = data_dir / f"supervisor-{number}" / "daemon-conf.json"
        subprocess.run(
            [sys.executable, "-P", "-m", "squall_supervisor", "--kill-workers"],
            env={**os.environ, "SQUALL_DAEMON_CONF": str(conf)},
            check=False,
        )


if __name__ == "__main__":
    main()
