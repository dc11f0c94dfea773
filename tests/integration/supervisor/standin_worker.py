"""Stands in for a worker: `standin_worker.py LAUNCH_FILE BEHAVIOUR_FILE`.

It beats as a worker does, and misbehaves as BEHAVIOUR_FILE (JSON, read at the start) says:
crash (seconds until it exits with status 3), silent (never beats), starting (its tasks never run),
stubborn (ignores SIGTERM), child (starts a process that ignores SIGTERM and notes its pid).
"""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from squall_common.worker_files.heartbeat_file import Beat, HeartbeatWriter, Phase
from squall_common.worker_files.launch_spec import LaunchSpec

BEAT_SECS = 0.05


def main() -> None:
    spec = LaunchSpec.read(Path(sys.argv[1]))
    behaviour = json.loads(Path(sys.argv[2]).read_text())
    if behaviour.get("stubborn"):
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    print(f"environment {json.dumps(dict(os.environ))}")
    if behaviour.get("child"):
        code = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(600)"
        detached = behaviour["child"] == "detached"
        child = subprocess.Popen([sys.executable, "-c", code], start_new_session=detached)
        (spec.pid_dir / str(child.pid)).touch()
    phase = Phase.STARTING if behaviour.get("starting") else Phase.RUNNING
    started = time.monotonic()
    writer = None if behaviour.get("silent") else HeartbeatWriter(spec.heartbeat_file)
    while True:
        if "crash" in behaviour and time.monotonic() - started >= behaviour["crash"]:
            print("about to crash \x1b[31m", file=sys.stderr, flush=True)
            os._exit(3)
        if writer is not None:
            writer.write(Beat(time.monotonic_ns(), 0, os.getpid(), phase))
        time.sleep(BEAT_SECS)


main()
