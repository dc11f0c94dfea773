"""Metrics that components record themselves, by the interval.

    class Split(Bolt):
        def prepare(self, conf, context):
            self.empty = context.register_metric("empty-lines", CountMetric(), 10)

        def execute(self, tup):
            if not tup["line"]:
                self.empty.incr()

The names are those of Storm's metrics API (`org.apache.storm.metric.api`), spelled as Python's.
"""

from __future__ import annotations

from typing import Any, Protocol


class Metric(Protocol):
    """A metric, whose value is read at the end of each interval. All calls come from the worker's
    loop; a metric of a `blocking` component is read while the component's thread runs."""

    def get_value_and_reset(self) -> Any:
        """Return the value for the interval that ends, and start a new one. None: no value."""


class CountMetric:
    """Counts how often something happened.

    class Parse(Bolt):
        def prepare(self, conf, context):
            self.broken = context.register_metric("broken", CountMetric())

        def execute(self, tup):
            self.broken.incr()
    """

    def __init__(self) -> None:
        self._value = 0

    def incr(self, by: int = 1) -> None:
        """Count `by` more."""
        self._value += by

    def get_value_and_reset(self) -> int:
        """The count of the interval that ends."""
        value, self._value = self._value, 0
        return value


class MultiCountMetric:
    """Counts by name.

        errors = MultiCountMetric()
        errors.scope("timeouts").incr()
        assert errors.get_value_and_reset() == {"timeouts": 1}

    A name that was counted once is reported from then on, with 0 if nothing happened.
    """

    def __init__(self) -> None:
        self._counts: dict[str, CountMetric] = {}

    def scope(self, key: str) -> CountMetric:
        """The count of this name, which begins at 0."""
        return self._counts.setdefault(key, CountMetric())

    def get_value_and_reset(self) -> dict[str, int]:
        """The counts of the interval that ends, by name."""
        return {key: count.get_value_and_reset() for key, count in list(self._counts.items())}


class AssignableMetric:
    """A value that is reported as it was last set.

        waiting = AssignableMetric(0)
        waiting.set(12)
        assert waiting.get_value_and_reset() == 12

    It is not reset: the value stays until it is set again.
    """

    def __init__(self, value: Any = None) -> None:
        self.value = value

    def set(self, value: Any) -> None:
        """Set the value, which stays until it is set again."""
        self.value = value

    def get_value_and_reset(self) -> Any:
        """The value as it is now. It is not reset."""
        return self.value


class MeanMetric:
    """The mean of the values passed to `update` in the interval; no value if there were none
    (Storm's ReducedMetric of a MeanReducer).

        millis = MeanMetric()
        millis.update(10)
        millis.update(20)
        assert millis.get_value_and_reset() == 15.0
        assert millis.get_value_and_reset() is None
    """

    def __init__(self) -> None:
        self._sum, self._count = 0.0, 0

    def update(self, value: float) -> None:
        """Add a value to the interval."""
        self._sum += value
        self._count += 1

    def get_value_and_reset(self) -> float | None:
        """The mean of the interval that ends, or None."""
        total, count = self._sum, self._count
        self._sum, self._count = 0.0, 0
        return total / count if count else None
