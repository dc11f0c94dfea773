"""The metrics that shell components report with the protocol's `metrics` command."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(slots=True)
class ShellMetric:
    """One metric of one task. Which of the three values is meant depends on the component, as in
    Storm, where one of several kinds of metric is registered under the name."""

    last: Any = None  # as reported (AssignableShellMetric)
    total: float = 0.0  # of the numbers reported; null counts as 1 (CountShellMetric)
    updates: int = 0

    def update(self, value: Any) -> None:
        """Record a value that the component reported: any JSON."""
        self.updates += 1
        self.last = value
        if value is None:
            self.total += 1
        elif isinstance(value, int | float) and not isinstance(value, bool):
            self.total += value
