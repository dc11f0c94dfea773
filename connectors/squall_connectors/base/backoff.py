"""How long to wait before the next attempt."""

from __future__ import annotations

import random
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Backoff:
    """Waits that double from `first_secs` to `max_secs`. Each is drawn from the upper half of its
    range, so that many tasks that lost the same server do not come back at the same moment."""

    first_secs: float = 0.1
    max_secs: float = 10.0

    def __post_init__(self) -> None:
        if not 0 < self.first_secs <= self.max_secs:
            raise ValueError(
                f"Backoff({self.first_secs}, {self.max_secs}): the first wait must be positive and "
                "not above the longest"
            )

    def secs(self, attempt: int, random_number: float | None = None) -> float:
        """The wait after the attempt with this number, from 1. `random_number` is from [0, 1)."""
        if random_number is None:
            random_number = random.random()
        # 2 ** 1000 overflows a float; long before, the bound holds.
        longest: float = min(self.max_secs, self.first_secs * 2 ** min(attempt - 1, 60))
        return longest * (0.5 + random_number / 2)
