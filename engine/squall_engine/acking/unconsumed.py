"""Dead letters that no bolt consumes: one line of JSON each, in a file beside the worker's log.

    {"time": "2026-01-31T09:00:00.123+00:00", "spout": "orders", "task": 4, "message_id": 17,
     "stream": "default", "values": ["17", -3], "reason": "ValueError: negative", "component":
     "price", "task_failed": 2, "worker": "node1:6700", "replays": 5}

A value that JSON does not know, or that is long, is its `repr`, cut. At 10 MiB the file becomes
`dead-letters.jsonl.1`, and so on up to `.5`; what is older than that is deleted.
"""

from __future__ import annotations

import errno
import json
import math
import os
import threading
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from squall_common.daemon.logs import get_logger
from squall_common.errors import describe

log = get_logger(__name__)

FILE_NAME = "dead-letters.jsonl"
_FILE_BYTES_MAX = 10 * 1024 * 1024
_OLD_FILES_MAX = 5
_VALUE_CHARS_MAX = 10_000
_VALUES_MAX = 200
_LOGGED_CHARS_MAX = 1_000
_COMPLAIN_SECS = 60.0
_JSON_INT_MAX = 2**63


class UnconsumedLetters:
    """The dead letters of one worker's spouts that no bolt consumes. Call `record` from any
    thread."""

    def __init__(self, folder: Path | None) -> None:
        """`folder` None: they only go to the log."""
        self._file = None if folder is None else folder / FILE_NAME
        self._lock = threading.Lock()
        self._complained: float | None = None
        self.count = 0

    def record(self, spout: str, task: int, row: Sequence[Any]) -> bool:
        """Write a dead letter (its fields are DEAD_LETTER_FIELDS) to the file and the log. False if
        that fails: then the message must not end."""
        message_id, values, stream, reason, component, task_failed, worker, replays = row
        line = {
            "time": datetime.now(UTC).isoformat(timespec="milliseconds"),
            "spout": spout,
            "task": task,
            "message_id": _plain(message_id),
            "stream": stream,
            "values": [_plain(value) for value in values[:_VALUES_MAX]],
            "reason": reason,
            "component": component,
            "task_failed": task_failed,
            "worker": worker,
            "replays": replays,
        }
        if len(values) > _VALUES_MAX:
            line["values_left_out"] = len(values) - _VALUES_MAX
        with self._lock:
            try:
                if self._file is not None:
                    append(self._file, json.dumps(line).encode() + b"\n")
            except OSError as error:
                self._complain(error)
                return False
            self.count += 1
        log.warning(
            "dead_letter",
            spout=spout,
            message_id=shown(message_id, _LOGGED_CHARS_MAX),
            values=shown(values, _LOGGED_CHARS_MAX),
            reason=reason,
            component=component,
            task=task_failed,
            worker=worker,
            replays=replays,
            **({} if self._file is None else {"file": self._file}),
        )
        return True

    def _complain(self, error: OSError) -> None:
        now = time.monotonic()
        if self._complained is None or now - self._complained >= _COMPLAIN_SECS:
            self._complained = now
            log.error(
                "dead_letter_not_recorded",
                file=self._file,
                error=error,
                what_now="its message is replayed, and recorded when it fails again",
            )


def append(file: Path, line: bytes, bytes_max: int = _FILE_BYTES_MAX) -> None:
    """Append a line to a file of limited size, whole or not at all. Raises OSError."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
    if file.exists() and file.stat().st_size + len(line) > bytes_max:
        for number in range(_OLD_FILES_MAX, 1, -1):
            older = file.with_name(f"{file.name}.{number - 1}")
            if older.exists():
                older.replace(f"{file}.{number}")
        file.replace(f"{file}.1")
    fd = os.open(file, flags, 0o600)
    try:
        size = os.fstat(fd).st_size
        if os.write(fd, line) < len(line):  # the disk is full now
            os.ftruncate(fd, size)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(file))
    finally:
        os.close(fd)


def _plain(value: Any) -> Any:
    """A value as JSON has it, or its text."""
    match value:
        case None | bool():
            return value
        case int() if abs(value) < _JSON_INT_MAX:
            return value
        case float() if math.isfinite(value):
            return value
        case str() if len(value) <= _VALUE_CHARS_MAX:
            return value
        case list() | tuple() | dict():
            try:
                if len(json.dumps(value, allow_nan=False)) <= _VALUE_CHARS_MAX:
                    return value
            except (TypeError, ValueError, RecursionError):
                pass
    return shown(value, _VALUE_CHARS_MAX)


def shown(value: Any, chars_max: int) -> str:
    """The repr of a value, cut, and with its length then."""
    try:
        text = repr(value)
    except Exception as error:
        text = f"<{type(value).__name__}: its repr failed: {describe(error)}>"
    cut = "" if len(text) <= chars_max else f"... ({len(text)} characters)"
    return text[:chars_max].encode(errors="replace").decode() + cut
