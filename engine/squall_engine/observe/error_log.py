"""Logs the errors of components, and components that hold the loop."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from squall_common.config.options.typed import TopologyOptions
from squall_common.daemon.logs import get_logger
from squall_common.errors import missing_package
from squall_common.topology.error_throttle import ErrorThrottle
from squall_engine.observe import garbage
from squall_engine.observe.loop_advice import advice
from squall_engine.tasks.base import HOLD_SECS

log = get_logger("squall_engine")

_HOLD_WARNING_SECS = 60.0
_COLLECTED = ""  # among components


class ErrorLog:
    """Errors go to the worker process, all of them, and to the log, the first few of an interval.
    May be used from any thread."""

    def __init__(
        self,
        now: Callable[[], float],
        report_error: Callable[[str, int, BaseException], None] | None,
        options: TopologyOptions,
        source_of: Callable[[BaseException], str] = lambda error: "",
        user_of: Callable[[str], Any] = lambda component: None,
    ) -> None:
        """`source_of(error)`: what a component was given when it raised, for the log;
        `user_of(component)`: its object, or None."""
        garbage.watch()
        self._user_of = user_of
        self._now = now
        self._source_of = source_of
        # A component that fails with every tuple must not fill the disk.
        self._throttle = ErrorThrottle.of(options)
        self._report_error = report_error
        self._held: dict[str, float] = {}  # component -> when it was last named

    def report(self, component: str, task: int, error: BaseException) -> None:
        """Report an error of a component."""
        missing = missing_package(error)
        if missing is not None and not hasattr(error, "__notes__"):
            # The last line of its traceback, which commands show.
            error.add_note(f"ModuleNotFoundError: {missing}")
        throttle = self._throttle
        if throttle.passes(component, self._now()):
            missed = throttle.take_missed(component)
            left_out = {"not_logged_before": missed} if missed else {}
            given = {"given": source} if (source := self._source_of(error)) else {}
            log.error(
                "component_error",
                component=component,
                task=task,
                **given,
                **left_out,
                error=error,
                exc_info=error,
            )
        elif throttle.missed(component) == 1:
            log.error(
                "component_errors_not_logged",
                component=component,
                secs=throttle.secs,
                hint=f"the first {throttle.limit} errors of {throttle.secs:g} s are logged; "
                "all are counted: storm get-errors TOPOLOGY, or the last lines of storm local",
            )
        if self._report_error is not None:
            self._report_error(component, task, error)

    def held_loop(self, component: str, what: str, secs: float) -> None:
        """Warn, at most once a minute, that a component kept the loop for too long. It is not at
        fault if a garbage collection did: that is said instead."""
        collected = garbage.secs_of_last(secs)
        if secs - collected > HOLD_SECS:
            if self._is_due(component):
                log.warning(
                    "component_holds_loop",
                    component=component,
                    work=what,
                    ms=round(1000 * secs),
                    hint=advice(self._user_of(component), what),
                )
        elif self._is_due(_COLLECTED):
            log.info(
                "garbage_collection_holds_loop",
                ms=round(1000 * collected),
                hint="Python looks at all objects: more workers, or less that waits for a window "
                "or a checkpoint, make it shorter",
            )

    def _is_due(self, component: str) -> bool:
        now = self._now()
        if now - self._held.get(component, -_HOLD_WARNING_SECS) < _HOLD_WARNING_SECS:
            return False
        self._held[component] = now
        return True
