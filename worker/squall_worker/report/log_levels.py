"""Sets the levels of loggers that Nimbus' setLogConfig asks for, and resets them in time."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from squall_common.cluster.values import LogConfig, LogLevelAction
from squall_common.daemon.clock import Clock
from squall_common.daemon.logs import LEVELS, get_logger

log = get_logger(__name__)

_ROOT = "ROOT"


class LogLevels:
    """What was set, and the levels before. `logger_of` is `logging.getLogger` but in tests."""

    def __init__(
        self, logger_of: Callable[[str | None], logging.Logger] = logging.getLogger
    ) -> None:
        self._logger_of = logger_of
        self._before: dict[str, int] = {}

    def apply(self, config: LogConfig | None, now_ms: int) -> float | None:
        """Make the levels what a configuration says now; those that it does not name, or no longer
        does, are what they were before. Returns after how many seconds to call it again, because a
        level is reset then; None: never."""
        wanted: dict[str, int] = {}
        resets = []
        for name, level in (config or LogConfig()).levels.items():
            text = level.target_level
            if level.reset_epoch_ms is not None:
                if level.reset_epoch_ms <= now_ms:
                    text = level.reset_level  # None: what it was before
                else:
                    resets.append(level.reset_epoch_ms - now_ms)
            number = LEVELS.get((text or "").upper())
            if number is not None and level.action is not LogLevelAction.REMOVE:
                wanted[name] = number
        for name in self._before.keys() - wanted.keys():
            self._set(name, self._before.pop(name), "log_level_reset")
        for name, number in wanted.items():
            self._before.setdefault(name, self._logger(name).level)
            self._set(name, number, "log_level_set")
        return min(resets) / 1000 if resets else None

    def _set(self, name: str, number: int, event: str) -> None:
        logger = self._logger(name)
        if logger.level != number:
            logger.setLevel(number)
            level = logging.getLevelName(number) if number else "that of the logger above"
            log.warning(event, logger=name, level=level)

    def _logger(self, name: str) -> logging.Logger:
        return self._logger_of(None if name.upper() == _ROOT else name)


class TimedLogLevels:
    """Log levels that are reset in time, also while ZooKeeper cannot be read."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, clock: Clock, levels: LogLevels | None = None
    ) -> None:
        self._loop = loop
        self._clock = clock
        self._levels = levels or LogLevels()
        self._config: LogConfig | None = None
        self._reset: asyncio.TimerHandle | None = None

    def follow(self, config: LogConfig | None) -> None:
        """Set what was asked for."""
        self._config = config
        self._apply()

    def _apply(self) -> None:
        if self._reset is not None:
            self._reset.cancel()
            self._reset = None
        secs = self._levels.apply(self._config, int(self._clock.time() * 1000))
        if secs is not None:
            self._reset = self._loop.call_later(secs, self._apply)
