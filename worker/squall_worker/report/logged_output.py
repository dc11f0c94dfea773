"""What components print goes to the worker's log, line by line, with the component's name."""

from __future__ import annotations

import io
import logging
import threading
from typing import Any, TextIO

_LINE_CHARS_MAX = 16_384


class LoggedOutput(io.TextIOBase):
    """Takes the place of `sys.stdout`. Whatever writes to the file below (`fileno`, `buffer`: C
    code, child processes) goes to worker.log.out, as before."""

    def __init__(self, below: TextIO, logger: logging.Logger) -> None:
        self._below = below
        self._logger = logger
        self._rest = threading.local()  # of a line that has not ended

    def write(self, text: str) -> int:
        rest = getattr(self._rest, "text", "") + text
        *lines, rest = rest.split("\n")
        while len(rest) > _LINE_CHARS_MAX:
            lines.append(rest[:_LINE_CHARS_MAX])
            rest = rest[_LINE_CHARS_MAX:]
        self._rest.text = rest
        for line in lines:
            if line:
                self._logger.info("%s", line)
        return len(text)

    def flush(self) -> None:
        """Nothing: a line is logged when it ends."""

    def fileno(self) -> int:
        return self._below.fileno()

    def writable(self) -> bool:
        return True

    @property
    def buffer(self) -> Any:
        return self._below.buffer

    @property
    def encoding(self) -> str:  # type: ignore[override]
        return self._below.encoding
