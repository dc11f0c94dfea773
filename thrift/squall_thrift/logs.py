"""Log lines with an event's name and its keys.

This package does not know the daemons' logs, so the keys travel in an attribute of the record,
`event_keys`; the formatter (`squall_common.daemon.logs`) writes and quotes them like any others.
"""

from __future__ import annotations

import logging
from typing import Any


class EventLogger:
    """The events of one module.

    log = EventLogger(__name__)
    log.info("thrift_server_started", service="Nimbus", port=6627)
    """

    def __init__(self, name: str) -> None:
        self._logger = logging.getLogger(name)

    def info(self, event: str, /, **keys: object) -> None:
        self._logger.info(event, extra={"event_keys": keys})

    def warning(self, event: str, /, **keys: object) -> None:
        self._logger.warning(event, extra={"event_keys": keys})

    def error(self, event: str, /, *, exc_info: Any = None, **keys: object) -> None:
        self._logger.error(event, exc_info=exc_info, extra={"event_keys": keys})
