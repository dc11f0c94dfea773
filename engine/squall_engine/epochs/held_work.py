"""Whether a complete epoch holds all that a worker has done."""

from __future__ import annotations

from typing import Protocol


class Driver(Protocol):
    """What is asked of an `EpochDriver`."""

    @property
    def begun(self) -> int: ...

    @property
    def confirmed(self) -> int: ...

    @property
    def has_unconfirmed(self) -> bool: ...


class HeldWork:
    """To be asked again and again while nothing is in flight."""

    def __init__(self) -> None:
        self._seen: tuple[Driver, int] | None = None  # the last work, and whose it was
        self._begun = 0  # the last epoch when it was seen first

    def is_held(self, driver: Driver, work: int) -> bool:
        """Whether an epoch has begun since this much `work` was seen first, is complete, and sinks
        have written its rows. What was done since the last question is in no epoch that had begun
        then."""
        if self._seen is None or self._seen[0] is not driver or self._seen[1] != work:
            self._seen, self._begun = (driver, work), driver.begun
        return driver.confirmed > self._begun and not driver.has_unconfirmed
