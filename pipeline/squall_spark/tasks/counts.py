"""What tasks count, added up in the driver.

Each count stands under its task: a task that Spark runs again, or twice at the same time, replaces
its counts instead of adding to them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark import SparkContext

_Key = tuple[str, str, int]  # what is counted, of which component, by which task


@dataclass(frozen=True, slots=True)
class Counts:
    """Counts by component. In a Python worker only `add` works, in the driver all but it."""

    accumulator: Any

    @classmethod
    def make(cls, context: SparkContext) -> Counts:
        """New counts, in the driver."""
        from pyspark.accumulators import AccumulatorParam

        class Replacing(AccumulatorParam[dict[_Key, int]]):
            def zero(self, value: dict[_Key, int]) -> dict[_Key, int]:
                return {}

            def addInPlace(
                self, value1: dict[_Key, int], value2: dict[_Key, int]
            ) -> dict[_Key, int]:
                value1.update(value2)
                return value1

        return cls(context.accumulator({}, Replacing()))

    def add(self, what: str, component: str, task: int, count: int) -> None:
        """Set what a task has counted."""
        self.accumulator.add({(what, component, task): count})

    def total(self, what: str, component: str) -> int:
        """The sum over the tasks that have ended."""
        return sum(
            count
            for (kind, of, _), count in list(self.accumulator.value.items())
            if (kind, of) == (what, component)
        )
