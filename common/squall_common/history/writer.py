"""Writes rows of the history to files, on a thread of its own.

The caller never waits: rows are put into a queue that is bounded in bytes. Rows that do not fit
are dropped and counted, and the next file says so. The thread writes what has gathered every
`rotation_secs` (or `rotation_bytes`); a file is written whole, under a name that no other writer
has. Where the folder cannot be written the rows stay in the queue and are tried again.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from itertools import count

from squall_common.daemon.clock import Clock
from squall_common.daemon.folders import Folder
from squall_common.daemon.logs import get_logger
from squall_common.history.schema import SUFFIX, Row, to_parquet
from squall_common.history.settings import check_available
from squall_common.names import encode_znode

log = get_logger(__name__)

WAITING_BYTES_MAX = 16 * 1024 * 1024
_LOG_SECS = 60.0
_IMPORT_AFTER_SECS = 2.0
_RETRY_SECS_MAX = 60.0

QUEUE_FULL = "queue full"
NOT_WRITTEN = "not written"


def file_name(epoch_ms: int, writer: str, number: int) -> str:
    """Sorts by time; `writer` is unique in the cluster, forever."""
    return f"{epoch_ms:015d}-{encode_znode(writer)}-{number:06d}{SUFFIX}"


def written_at_ms(name: str) -> int | None:
    """When a file was written, by its name; None when it is none of ours. Also of the temporary
    file that a killed writer left."""
    digits = name.lstrip(".").partition("-")[0]
    return int(digits) if len(digits) == 15 and digits.isdecimal() and SUFFIX in name else None


class HistoryWriter:
    """`start`, then `add` from any thread, then `close`."""

    def __init__(
        self,
        folder: Folder,
        *,
        worker: str,
        incarnation: str,
        clock: Clock,
        rotation_secs: float = 5.0,
        rotation_bytes: int = 4 * 1024 * 1024,
        on_trouble: Callable[[Exception], None] = lambda error: None,
        waiting_bytes_max: int = WAITING_BYTES_MAX,
    ) -> None:
        """`worker` (host:port) and `incarnation` together name this writer. `on_trouble` is
        called with the reason why nothing can be written, on the thread, at most once a minute."""
        self._folder = folder
        self._worker = worker
        self._incarnation = incarnation
        self._clock = clock
        self._rotation_secs = rotation_secs
        # Rows that fill the queue are written long before it is full, whatever is asked for.
        self._rotation_bytes = min(rotation_bytes, waiting_bytes_max // 2)
        self._on_trouble = on_trouble
        self._waiting_bytes_max = waiting_bytes_max
        self._numbers = count(1)
        self._changed = threading.Condition()
        # All of these under `_changed`.
        self._rows: dict[str, list[Row]] = {}  # by topology id
        self._bytes = 0
        self._lost: dict[tuple[str, str], int] = {}  # (topology id, why) -> rows
        self._first_at: float | None = None  # when the oldest waiting row came
        self._closing = False
        self._off = False  # it can never write
        self._logged_at = float("-inf")
        self.rows_written = 0
        self.rows_lost = 0
        self._thread = threading.Thread(target=self._run, name="history", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def add(self, topology_id: str, rows: Sequence[Row]) -> None:
        """Take rows; never waits, never raises."""
        size = sum(row.size() for row in rows)
        with self._changed:
            if self._off or self._closing or not rows:
                return
            if self._bytes + size > self._waiting_bytes_max:
                self._lose(topology_id, len(rows), QUEUE_FULL)
                return
            self._rows.setdefault(topology_id, []).extend(rows)
            self._bytes += size
            if self._first_at is None:
                self._first_at = time.monotonic()
                self._changed.notify()
            elif self._bytes >= self._rotation_bytes:
                self._changed.notify()

    def close(self, secs: float) -> bool:
        """Write what there is, within `secs`; False when that was not enough. It dies with the
        process then."""
        with self._changed:
            self._closing = True
            self._changed.notify()
        if self._thread.is_alive():
            self._thread.join(secs)
        return not self._thread.is_alive()

    # ---- on the thread (but `_lose`) ----

    def _run(self) -> None:
        try:
            check_available(self._folder.url)
            # Not while its process starts, and not at its end either, when there is no time.
            with self._changed:
                self._changed.wait_for(lambda: self._closing, timeout=_IMPORT_AFTER_SECS)
            import pyarrow.parquet as _  # noqa: F401
        except Exception as error:  # what a package that does not fit raises at its import
            with self._changed:
                self._off = True
                self._rows.clear()
            self._say(error)
            return
        failures = 0
        while True:
            closing = self._wait(failures)
            rows, lost = self._take()
            failed = False
            for topology_id in sorted({*rows, *(of for of, _ in lost)}):
                reported = {why: n for (of, why), n in lost.items() if of == topology_id}
                failed |= not self._write(topology_id, rows.get(topology_id, []), reported)
            if closing:
                return
            failures = failures + 1 if failed else 0

    def _wait(self, failures: int) -> bool:
        """Until there is something to do; True when it is the last."""
        retry = min(_RETRY_SECS_MAX, 2.0 ** min(failures, 10)) if failures else 0.0
        at = time.monotonic() + retry
        with self._changed:
            while not self._closing:
                now = time.monotonic()
                due = None
                if self._first_at is not None:
                    full = self._bytes >= self._rotation_bytes
                    due = now if full else self._first_at + self._rotation_secs
                    due = max(due, at)
                    if due <= now:
                        break
                self._changed.wait(None if due is None else due - now)
            return self._closing

    def _take(self) -> tuple[dict[str, list[Row]], dict[tuple[str, str], int]]:
        with self._changed:
            rows, self._rows = self._rows, {}
            lost, self._lost = self._lost, {}
            self._first_at = None
            return rows, lost

    def _write(self, topology_id: str, rows: list[Row], lost: dict[str, int]) -> bool:
        """Write one topology's rows. What cannot be written goes back into the queue."""
        now_ms = int(self._clock.time() * 1000)
        size = sum(row.size() for row in rows)
        reported = [Row(now_ms, "lost", why, n=n) for why, n in lost.items()]
        try:
            data = to_parquet(
                [*rows, *reported], worker=self._worker, incarnation=self._incarnation
            )
        except Exception as error:  # an invalid row: it would fail forever
            self._say(error)
            with self._changed:
                self._bytes -= size
                self._lose(topology_id, len(rows), NOT_WRITTEN)
            return True
        writer = f"{self._worker}-{self._incarnation}"
        try:
            place = self._folder / encode_znode(topology_id)
            place.write(file_name(now_ms, writer, next(self._numbers)), data)
        except Exception as error:
            self._say(error)
            with self._changed:
                self._rows[topology_id] = rows + self._rows.get(topology_id, [])
                for why, n in lost.items():
                    key = (topology_id, why)
                    self._lost[key] = self._lost.get(key, 0) + n
                if self._first_at is None:
                    self._first_at = time.monotonic()
            return False
        with self._changed:
            self._bytes -= size
            self.rows_written += len(rows)
        return True

    def _lose(self, topology_id: str, rows: int, why: str) -> None:
        key = (topology_id, why)
        self._lost[key] = self._lost.get(key, 0) + rows
        self.rows_lost += rows

    def _say(self, error: Exception) -> None:
        now = time.monotonic()
        if now - self._logged_at < _LOG_SECS:
            return
        self._logged_at = now
        log.warning("history_not_written", folder=self._folder.url, error=error, off=self._off)
        self._on_trouble(error)


def expire(folder: Folder, before_epoch_secs: float) -> int:
    """Delete the files of all topologies that were written before a time; how many. What cannot be
    deleted, a topology's folder that is another user's, does not spare the rest: the first error
    is raised at the end. Raises OSError and what the folder's file system raises."""
    deleted = 0
    failed: Exception | None = None
    for name in folder.names():
        place = folder / name
        try:
            names = place.names()
            old = [
                one
                for one in names
                if (at := written_at_ms(one)) is not None and at < before_epoch_secs * 1000
            ]
            for one in old:
                place.delete(one)
                deleted += 1
            if names and len(old) == len(names):
                place.remove_empty()
        except Exception as error:  # of a URL's file system: anything
            failed = failed or error
    if failed is not None:
        raise failed
    return deleted
