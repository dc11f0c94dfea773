"""A worker that only lives: it takes a worker's arguments, beats, and ends on SIGTERM."""

import os
import sys
import time
from pathlib import Path

from squall_common.worker_files.heartbeat_file import Beat, HeartbeatWriter, Phase
from squall_common.worker_files.launch_spec import LaunchSpec

topology_id, supervisor_id, port, worker_id, launch_file = sys.argv[1:]
spec = LaunchSpec.read(Path(launch_file))
assert (spec.topology_id, spec.supervisor_id) == (topology_id, supervisor_id)
assert (str(spec.port), spec.worker_id) == (port, worker_id)
writer = HeartbeatWriter(spec.heartbeat_file)
while True:
    writer.write(Beat(time.monotonic_ns(), 0, os.getpid(), Phase.RUNNING))
    time.sleep(0.05)
