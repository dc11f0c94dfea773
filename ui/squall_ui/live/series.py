"""Time series of one topology: the last ten minutes finely, the last day coarsely.

    series = Series()
    series.add(now, {"orders.rate": 200.0, "enrich.busy": 0.83})
    series.read("enrich.busy", secs=600)      # ([times], [values])

A series has a value every 2 s for 10 minutes and the mean of every 2 minutes for 24 hours: at most
1,020 numbers of 8 bytes, so 8 KiB a series. A topology has at most `SERIES_MAX` of them, 16 MiB;
series beyond that, of its last components by name, are not kept.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterable, Mapping

SERIES_MAX = 2_000
_FINE_SECS, _FINE_COUNT = 2, 300
_COARSE_SECS, _COARSE_COUNT = 120, 720


class _Ring:
    """Means by slot of time. NaN: nothing was seen."""

    def __init__(self, secs: int, count: int) -> None:
        self.secs, self.count = secs, count
        self._values = array("d", [math.nan]) * count
        self._seen = 0  # how many values the newest slot is the mean of
        self._newest = -1  # the number of the newest slot

    def add(self, now: float, value: float) -> None:
        slot = int(now // self.secs)
        if slot < self._newest:
            return  # the clock went back
        if slot > self._newest:
            for gone in range(max(self._newest + 1, slot - self.count + 1), slot + 1):
                self._values[gone % self.count] = math.nan
            self._newest, self._seen = slot, 0
        at = slot % self.count
        before = self._values[at] if self._seen else 0.0
        self._seen += 1
        self._values[at] = before + (value - before) / self._seen

    def read(self, secs: float) -> tuple[list[int], list[float | None]]:
        if self._newest < 0:
            return [], []
        first = max(self._newest - self.count + 1, self._newest - int(secs // self.secs) + 1, 0)
        slots = [
            slot
            for slot in range(first, self._newest + 1)
            if not math.isnan(self._values[slot % self.count])
        ]
        # Slots without a value are left out at the beginning, and are null in between.
        shown = range(slots[0], self._newest + 1) if slots else range(0)
        values = [self._values[slot % self.count] for slot in shown]
        return (
            [slot * self.secs for slot in shown],
            [None if math.isnan(value) else round(value, 4) for value in values],
        )

    def at(self, now: float) -> float | None:
        """The value at a time, if it is kept."""
        slot = int(now // self.secs)
        if not self._newest - self.count < slot <= self._newest or slot < 0:
            return None
        value = self._values[slot % self.count]
        return None if math.isnan(value) else value


class Series:
    """The series of one topology, by name. `now` is in seconds since 1970."""

    def __init__(self) -> None:
        self._rings: dict[str, tuple[_Ring, _Ring]] = {}

    def add(self, now: float, values: Mapping[str, float]) -> None:
        """Values at a time. A series that has no value any more stays until the topology ends."""
        for name, value in values.items():
            rings = self._rings.get(name)
            if rings is None:
                if len(self._rings) >= SERIES_MAX:
                    continue
                rings = (_Ring(_FINE_SECS, _FINE_COUNT), _Ring(_COARSE_SECS, _COARSE_COUNT))
                self._rings[name] = rings
            for ring in rings:
                ring.add(now, value)

    def read(self, name: str, secs: float) -> tuple[list[int], list[float | None]]:
        """Times and values of the last seconds; coarse ones if the fine ones do not reach back."""
        rings = self._rings.get(name)
        if rings is None:
            return [], []
        fine, coarse = rings
        return (fine if secs <= _FINE_SECS * _FINE_COUNT else coarse).read(secs)

    def before(self, name: str, now: float, secs: float) -> float | None:
        """The value some seconds ago, of the fine series."""
        rings = self._rings.get(name)
        if rings is None:
            return None
        for back in range(3):
            value = rings[0].at(now - secs - back * _FINE_SECS)
            if value is not None:
                return value
        return None

    def names(self) -> Iterable[str]:
        """Of all series."""
        return self._rings.keys()
