"""Limits how many errors of a component are passed on: a few in an interval, not thousands a
second."""

from __future__ import annotations

from squall_common.config.options.typed import TopologyOptions


class ErrorThrottle:
    """At most `limit` errors of each component in an interval of `secs`; those held back are
    counted. Pure, and safe to call from any thread (a race may let one more through).

        throttle = ErrorThrottle.of(options)
        if throttle.passes("split", now):
            missed = throttle.take_missed("split")
    """

    def __init__(self, limit: int, secs: float) -> None:
        self.limit = limit
        self.secs = secs
        self._intervals: dict[str, tuple[float, int]] = {}  # began, how many have passed
        self._missed: dict[str, int] = {}

    @classmethod
    def of(cls, options: TopologyOptions) -> ErrorThrottle:
        """The throttle that a topology's configuration asks for."""
        return cls(
            options.topology_max_error_report_per_interval,
            options.topology_error_throttle_interval_secs,
        )

    def passes(self, component: str, now: float) -> bool:
        """Whether an error at `now` (seconds, monotonic) passes; either way it is counted."""
        began, count = self._intervals.get(component, (now, 0))
        if now - began >= self.secs:
            began, count = now, 0
        if count >= self.limit:
            self._missed[component] = self._missed.get(component, 0) + 1
            return False
        self._intervals[component] = (began, count + 1)
        return True

    def missed(self, component: str) -> int:
        """How many errors did not pass since `take_missed`."""
        return self._missed.get(component, 0)

    def take_missed(self, component: str) -> int:
        """The same, and start counting from 0 again."""
        return self._missed.pop(component, 0)

    def components_missed(self) -> list[str]:
        """The components with errors that did not pass."""
        return list(self._missed)
