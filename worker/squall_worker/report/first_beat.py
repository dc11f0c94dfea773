"""Heartbeats from the first moment of a worker's life until its `HeartbeatThread` takes over.

Once a worker has beaten, its supervisor ends it after the worker timeout; until then it waits for
the start timeout, which is much longer. So a worker beats before its large imports, which take a
quarter of a second on a quiet machine: one that hangs there is replaced soon. For that reason this
module imports nothing of ours, not even the package that defines the record
(`squall_common.worker_files.heartbeat_file`); a test keeps the two in step.
"""

import os
import struct
import threading
import time
import zlib

_RECORD = struct.Struct("<QQQQ")  # monotonic_ns, turn_age_ms, pid, phase
_HEAD = struct.Struct("<4sI")
_MAGIC = b"SQHB"
_STARTING = 0

# The worker's own frequency is in a file that has not been read yet.
_BEAT_SECS = 0.5


class FirstBeats:
    """Beats at once and then on a thread, until `stop`. If the heartbeat file cannot be written,
    `HeartbeatThread` reports that later."""

    def __init__(self, path: str, beat_secs: float = _BEAT_SECS) -> None:
        self._path = path
        self._beat_secs = beat_secs
        self._stopped = threading.Event()
        self._beat()
        self._thread = threading.Thread(target=self._run, name="first beats", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Leave the file to another writer."""
        self._stopped.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stopped.wait(self._beat_secs):
            self._beat()

    def _beat(self) -> None:
        body = _RECORD.pack(time.monotonic_ns(), 0, os.getpid(), _STARTING)
        data = _HEAD.pack(_MAGIC, zlib.crc32(body)) + body
        try:
            fd = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o644)
            try:
                os.pwrite(fd, data, 0)
            finally:
                os.close(fd)
        except OSError:
            pass
