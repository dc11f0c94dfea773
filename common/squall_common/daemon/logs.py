"""Logs: an event's name and its keys, one line each, safe to print; as text or as JSON.

    log = get_logger(__name__)
    log.info("worker_started", topology_id=tid, port=6700, pid=4711)

gives `2026-11-21 09:12:00.123 INFO  squall_supervisor.slots.slot worker_started
topology_id=wc-1-17 ...`. Control characters in values are escaped, so that a topology's name or a
tuple can neither forge a line nor reach a terminal. Secrets that can be recognized are hidden.

In a worker, a line that a component writes, or prints, ends with `component=... task=...`
(`set_place`). As JSON (`storm.log.format`) a line is an object: `time`, `level`, `logger`,
`message` (of our own lines the name of the event), the keys, `component` and `task`, and
`exception`.
"""

import json
import logging
import logging.handlers
import re
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from squall_common.daemon.output.redaction import HIDDEN, SECRET_WORDS, redact_text

# A log is turned over at this size, and so many older ones are kept, as in Storm's log4j2 files.
_FILE_BYTES_MAX = 100 * 1024 * 1024
_OLD_FILES_MAX = 9

# Names of levels, Storm's too, and their numbers.
LEVELS = {
    "ALL": 1,
    "TRACE": 5,
    "DEBUG": logging.DEBUG,
    "INFO": logging.INFO,
    "WARN": logging.WARNING,
    "WARNING": logging.WARNING,
    "ERROR": logging.ERROR,
    "FATAL": logging.CRITICAL,
    "CRITICAL": logging.CRITICAL,
    "OFF": logging.CRITICAL + 10,
}

# The component and task whose code writes a line, asked on its thread.
Place = Callable[[], tuple[str, int] | None]
_place: Place = lambda: None  # noqa: E731

_SECRET = re.compile(SECRET_WORDS, re.IGNORECASE)
_NEEDS_QUOTES = frozenset(" \"='")


def _show(value: object) -> str:
    text = value if isinstance(value, str) else str(value)
    if isinstance(value, BaseException):
        text = f"{type(value).__name__}: {value}"
    if not text.isprintable():
        text = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
    if not text or any(c in _NEEDS_QUOTES for c in text):
        return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
    return text


def _keys(keys: Mapping[str, object]) -> str:
    return "".join(f" {key}={_show(value)}" for key, value in keys.items())


class Logger:
    """A logger of events with keys."""

    def __init__(self, logger: logging.Logger) -> None:
        self._logger = logger

    def _log(self, level: int, event: str, exc_info: Any, keys: dict[str, object]) -> None:
        if self._logger.isEnabledFor(level):
            extra = {"squall_event": event, "squall_keys": keys}
            self._logger.log(level, "%s", event + _keys(keys), exc_info=exc_info, extra=extra)

    def debug(self, event: str, /, *, exc_info: Any = None, **keys: object) -> None:
        self._log(logging.DEBUG, event, exc_info, keys)

    def info(self, event: str, /, *, exc_info: Any = None, **keys: object) -> None:
        self._log(logging.INFO, event, exc_info, keys)

    def warning(self, event: str, /, *, exc_info: Any = None, **keys: object) -> None:
        self._log(logging.WARNING, event, exc_info, keys)

    def error(self, event: str, /, *, exc_info: Any = None, **keys: object) -> None:
        self._log(logging.ERROR, event, exc_info, keys)


def get_logger(name: str) -> Logger:
    """The logger of a module."""
    return Logger(logging.getLogger(name))


def set_place(place: Place) -> None:
    """Ask `place` for the component of each line from now on."""
    global _place
    _place = place


def _place_of(record: logging.LogRecord) -> dict[str, object]:
    """The component and task of a line, unless it names a component itself."""
    if "component" in getattr(record, "squall_keys", ()):
        return {}
    found = _place()
    return {} if found is None else {"component": found[0], "task": found[1]}


class _JsonFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        keys = getattr(record, "squall_keys", None) or getattr(record, "event_keys", {})
        event = getattr(record, "squall_event", None)
        stamp = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        line: dict[str, object] = {
            **{key: _plain(key, value) for key, value in keys.items()},
            **_place_of(record),
            "time": f"{stamp}.{int(record.msecs):03d}Z",
            "level": record.levelname,
            "logger": record.name,
            "message": redact_text(record.getMessage()) if event is None else event,
        }
        if record.exc_info:
            line["exception"] = redact_text(self.formatException(record.exc_info))
        return json.dumps(line, default=str)  # escapes all that is not ASCII


def _plain(key: str, value: object) -> object:
    if _SECRET.search(key):
        return HIDDEN
    if value is None or isinstance(value, bool | int | float):
        return value
    text = f"{type(value).__name__}: {value}" if isinstance(value, BaseException) else str(value)
    return redact_text(text)


class _Formatter(logging.Formatter):
    def __init__(self, prefix: str) -> None:
        super().__init__()
        self._prefix = prefix

    def format(self, record: logging.LogRecord) -> str:
        stamp = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(record.created))
        # (Those of squall_thrift, which cannot use `Logger`, come as an attribute.)
        message = record.getMessage() + _keys(getattr(record, "event_keys", {}))
        message = redact_text(message + _keys(_place_of(record)))
        if not message.isprintable():
            message = "".join(
                c if c.isprintable() else c.encode("unicode_escape").decode() for c in message
            )
        stamp = f"{self._prefix}{stamp}.{int(record.msecs):03d}"
        line = f"{stamp} {record.levelname:<5} {record.name} {message}"
        if record.exc_info:
            line += "\n" + redact_text(self.formatException(record.exc_info))
        return line


def set_up_logging(
    file: Path | None = None,
    *,
    level: int = logging.INFO,
    as_json: bool = False,
    prefix: str = "",
) -> None:
    """Send all log lines, as JSON or each with `prefix` before it, to `file` (appended, its folder
    made; turned over at 100 MiB, to `file.1` ... `file.9`), or to stderr when None."""
    handler: logging.Handler
    if file is None:
        handler = logging.StreamHandler(sys.stderr)
    else:
        file.parent.mkdir(parents=True, exist_ok=True)
        handler = logging.handlers.RotatingFileHandler(
            file, encoding="utf-8", maxBytes=_FILE_BYTES_MAX, backupCount=_OLD_FILES_MAX
        )
    handler.setFormatter(_JsonFormatter() if as_json else _Formatter(prefix))
    root = logging.getLogger()
    for old in root.handlers[:]:
        root.removeHandler(old)
        old.close()
    root.addHandler(handler)
    root.setLevel(level)
    logging.getLogger("kazoo").setLevel(max(level, logging.WARNING))
