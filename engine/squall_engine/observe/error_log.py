"""Logs the errors of components, and components that hold the loop."""

from __future__ import annotations

from collections.abc import Callable

from squall_common.config.options.typed import TopologyOptions
from squall_common.daemon.logs import get_logger
from squall_common.errors import missing_package
from squall_common.topology.error_throttle import ErrorThrottle

log = get_logger("squall_engine")

_HOLD_WARNING_SECS = 60.0


def _hint(what: str) -> str:
    """How a call that waits stops holding the loop."""
    thread = "blocking = True gives it a thread"
    if what.endswith("tuple(s)"):
        return f"{thread}, async def execute lets it wait"
    return f"{thread}, async def next_tuple lets it wait" if "next_tuple" in what else thread


class ErrorLog:
    """Errors go to the worker process, all of them, and to the log, the first few of an interval.
    May be used from any thread."""

    def __init__(
        self,
        now: Callable[[], float],
        report_error: Callable[[str, int, BaseException], None] | None,
        options: TopologyOptions,
        source_of: Callable[[BaseException], str] = lambda error: "",
    ) -> None:
        """`source_of(error)`: what a component was given when it raised, for the log."""
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
        """Warn, at most once a minute, that a component kept the loop for too long."""
        now = self._now()
        if now - self._held.get(component, -_HOLD_WARNING_SECS) >= _HOLD_WARNING_SECS:
            self._held[component] = now
            log.warning(
                "component_holds_loop",
                component=component,
                work=what,
                ms=round(1000 * secs),
                hint=_hint(what),
            )
