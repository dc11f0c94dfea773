"""The heartbeat thread: alive as long as the process is, whatever `execute` does.

It writes the local file for the supervisor (with the age of the run loop's current turn, so that a
stuck loop can be distinguished from a dead process) and, once tasks run, calls `report` for Nimbus.
All workers of a machine report at the same moments, multiples of the period on the clock that they
share, so that their supervisor can send the reports together.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from pathlib import Path

from squall_common.daemon.logs import get_logger
from squall_common.worker_files.heartbeat_file import Beat, HeartbeatWriter, Phase

log = get_logger(__name__)


class HeartbeatThread:
    """Start it first and stop it last. `turn_age_secs`, `report` and `look`, which is called after
    each beat, run on the thread; `report` and `look` may return the number of seconds until they
    want to be called again."""

    def __init__(
        self,
        path: Path,
        *,
        beat_secs: float,
        report_secs: float,
        turn_age_secs: Callable[[], float],
        report: Callable[[], float | None],
        look: Callable[[], float | None] = lambda: None,
    ) -> None:
        self._path = path
        self._writer: HeartbeatWriter | None = None  # not None from start to stop
        self._beat_secs = beat_secs
        self._report_secs = report_secs
        self._turn_age_secs = turn_age_secs
        self._report = report
        self._look = look
        self._phase = Phase.STARTING
        self._wake = threading.Event()
        self._stopped = False
        self._report_due = False  # at once
        self._thread = threading.Thread(target=self._run, name="heartbeats", daemon=True)

    def start(self) -> None:
        """Make the file and begin to beat. Raises OSError if the disk has no room for it."""
        self._writer = HeartbeatWriter(self._path)
        self._thread.start()

    @property
    def phase(self) -> Phase:
        return self._phase

    def enter(self, phase: Phase) -> None:
        """Move on to a phase, and beat at once."""
        self._phase = phase
        self._wake.set()

    def report_soon(self) -> None:
        """Call `report` now, not only when it is due."""
        self._report_due = True
        self._wake.set()

    def stop(self) -> None:
        """End the thread and close the file; fine when it never started."""
        if self._writer is None:
            return
        self._stopped = True
        self._wake.set()
        self._thread.join()
        self._writer.close()
        self._writer = None

    def _run(self) -> None:
        next_report = 0.0
        while not self._stopped:
            self._wake.clear()
            self._beat()
            now = time.monotonic()
            if self._phase is not Phase.STARTING and (self._report_due or now >= next_report):
                self._report_due = False
                next_report = (now // self._report_secs + 1) * self._report_secs
                try:
                    secs = self._report()
                    if secs is not None:
                        next_report = min(now + secs, next_report)
                except Exception as error:
                    log.error("heartbeat_report_failed", error=error, exc_info=error)
            again = None
            try:
                again = self._look()
            except Exception as error:  # the worker would be taken for dead without this thread
                log.error("heartbeat_look_failed", error=error, exc_info=error)
            wait_secs = self._beat_secs if again is None else min(again, self._beat_secs)
            if self._phase is not Phase.STARTING:
                wait_secs = min(wait_secs, max(0.0, next_report - time.monotonic()))
            self._wake.wait(wait_secs)

    def _beat(self) -> None:
        assert self._writer is not None, "the thread runs from start to stop"
        age_ms = int(self._turn_age_secs() * 1000)
        beat = Beat(time.monotonic_ns(), max(0, age_ms), os.getpid(), self._phase)
        try:
            self._writer.write(beat)
        except OSError as error:
            log.error("heartbeat_write_failed", error=error)
