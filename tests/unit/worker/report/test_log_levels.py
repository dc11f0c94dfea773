"""Levels of loggers that are set while a topology runs."""

from __future__ import annotations

import logging
from collections.abc import Callable

from squall_common.cluster.values import LogConfig, LogLevel, LogLevelAction
from squall_common.daemon.clock import ManualClock
from squall_worker.report.log_levels import LogLevels, TimedLogLevels


def of(**levels: LogLevel) -> LogConfig:
    return LogConfig(levels)


def level(target: str, reset_ms: int | None = None, reset: str | None = None) -> LogLevel:
    return LogLevel(LogLevelAction.UNCHANGED, target, None, reset_ms, reset)


class Loggers:
    def __init__(self) -> None:
        self.made = {None: logging.Logger("root", logging.INFO), "mine": logging.Logger("mine")}

    def __call__(self, name: str | None) -> logging.Logger:
        return self.made.setdefault(name, logging.Logger(str(name)))


def test_a_level_holds_until_its_time_is_up() -> None:
    loggers = Loggers()
    levels = LogLevels(loggers)
    config = of(ROOT=level("DEBUG", 5_000), mine=level("error"))
    assert levels.apply(config, 1_000) == 4.0
    assert loggers(None).level == logging.DEBUG
    assert loggers("mine").level == logging.ERROR
    assert levels.apply(config, 2_000) == 3.0
    assert levels.apply(config, 5_000) is None
    assert loggers(None).level == logging.INFO
    assert loggers("mine").level == logging.ERROR
    assert levels.apply(None, 6_000) is None
    assert loggers("mine").level == logging.NOTSET


def test_a_level_that_was_chosen_for_afterwards_follows() -> None:
    loggers = Loggers()
    levels = LogLevels(loggers)
    config = of(mine=level("TRACE", 5_000, "WARN"))
    levels.apply(config, 1_000)
    assert loggers("mine").level == 5
    levels.apply(config, 9_000)
    assert loggers("mine").level == logging.WARNING
    levels.apply(of(), 9_000)
    assert loggers("mine").level == logging.NOTSET


def test_levels_that_mean_nothing_are_ignored() -> None:
    loggers = Loggers()
    removed = LogLevel(LogLevelAction.REMOVE, "DEBUG")
    LogLevels(loggers).apply(of(a=level("LOUD"), b=removed, c=level("")), 0)
    assert set(loggers.made) == {None, "mine"}


class Timers:
    """The part of a loop that is used, on a clock that is set."""

    def __init__(self, clock: ManualClock) -> None:
        self._clock = clock
        self.due: list[tuple[float, Callable[[], None]]] = []

    def call_later(self, secs: float, call: Callable[[], None]) -> Timers:
        self.due.append((secs, call))
        return self

    def cancel(self) -> None:
        self.due.clear()

    def pass_to_next(self) -> None:
        ((secs, call),) = self.due
        self.due.clear()
        self._clock.advance(secs)
        call()


def test_levels_are_reset_in_time_without_another_reading() -> None:
    loggers, clock = Loggers(), ManualClock()
    timers = Timers(clock)
    levels = TimedLogLevels(timers, clock, LogLevels(loggers))  # type: ignore[arg-type]
    now_ms = int(clock.time() * 1000)
    levels.follow(of(ROOT=level("DEBUG", now_ms + 9_000), mine=level("ERROR", now_ms + 4_000)))
    assert loggers(None).level == logging.DEBUG
    timers.pass_to_next()
    assert (loggers(None).level, loggers("mine").level) == (logging.DEBUG, logging.NOTSET)
    timers.pass_to_next()
    assert loggers(None).level == logging.INFO
    assert timers.due == []


def test_another_configuration_takes_the_place_of_the_one_before() -> None:
    loggers, clock = Loggers(), ManualClock()
    timers = Timers(clock)
    levels = TimedLogLevels(timers, clock, LogLevels(loggers))  # type: ignore[arg-type]
    now_ms = int(clock.time() * 1000)
    levels.follow(of(mine=level("DEBUG", now_ms + 9_000)))
    levels.follow(of(mine=level("ERROR", now_ms + 5_000)))
    assert [secs for secs, _ in timers.due] == [5.0]
    levels.follow(None)
    assert timers.due == []
    assert loggers("mine").level == logging.NOTSET
