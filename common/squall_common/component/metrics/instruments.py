"""The metrics that a component makes with its context: a counter, meter, gauge, histogram or timer.

    class Split(Bolt):
        def prepare(self, conf, context):
            self.empty = context.counter("empty-lines")
            self.words = context.histogram("words")
            context.gauge("cached", lambda: len(self.cache))

        def execute(self, tup):
            words = tup["line"].split()
            self.empty.inc(not words)
            self.words.update(len(words))

Names are those of Storm's metrics v2 (`registerCounter` and so on). An instrument only counts up:
whoever reads it, a consumer or a reporter, remembers what it read last (`InstrumentReader`), so one
can be read at several intervals. Use one from the component's own thread; calls from others may get
lost.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from math import isfinite
from typing import Any, ClassVar, Protocol

NAME_CHARS_MAX = 200
INSTRUMENTS_MAX = 1_000  # of one task

_STEPS = 8  # buckets a doubling, as in `history.histogram`
_BUCKET_MAX = 1_024  # 2 ** 128
_RATE_SECS = {"m1_rate": 60.0, "m5_rate": 300.0, "m15_rate": 900.0}
_SHARES = {"p50": 0.5, "p95": 0.95, "p99": 0.99}


class Counter:
    """A number that goes up and down.
    `context.counter(name)` makes one.

        from squall.metrics import Counter

        empty = Counter()
        empty.inc()
        empty.inc(2)
        empty.dec()
        assert empty.count == 2
    """

    kind: ClassVar[str] = "counter"
    __slots__ = ("count",)

    def __init__(self) -> None:
        self.count = 0
        """The sum since the component began."""

    def inc(self, n: int = 1) -> None:
        """Add `n`."""
        self.count += n

    def dec(self, n: int = 1) -> None:
        """Subtract `n`."""
        self.count -= n


class Meter:
    """How often something happens: its number, and the rate within an interval.
    `context.meter(name)` makes one.

        from squall.metrics import Meter

        hits = Meter()
        hits.mark()
        hits.mark(4)
        assert hits.count == 5
    """

    kind: ClassVar[str] = "meter"
    __slots__ = ("count",)

    def __init__(self) -> None:
        self.count = 0

    def mark(self, n: int = 1) -> None:
        """It happened `n` times."""
        self.count += n


class Gauge:
    """A value that is asked for when it is reported, or that was set last.
    `context.gauge(name, read)` makes one.

        from squall.metrics import Gauge

        cache = {"a": 1}
        cached = Gauge(lambda: len(cache))
        assert cached.value == 1
        temperature = Gauge()
        temperature.set(21.5)
        assert temperature.value == 21.5
    """

    kind: ClassVar[str] = "gauge"
    __slots__ = ("_read", "_value")

    def __init__(self, read: Callable[[], float] | None = None) -> None:
        """`read` returns the value, on the loop or under the lock of a component's thread."""
        self._read = read
        self._value: float | None = None

    def set(self, value: float) -> None:
        """Report this value from now on, if there is no function that returns it."""
        self._value = value

    @property
    def value(self) -> float | None:
        """The value now; None if there is none yet. Raises what the function raises."""
        return self._value if self._read is None else self._read()


class Histogram:
    """How values are distributed: their number, sum and extremes are exact, percentiles within
    4.5 %. `context.histogram(name)` makes one.

        from squall.metrics import Histogram

        words = Histogram()
        for line in ["a b", "c"]:
            words.update(len(line.split()))
        assert (words.count, words.total, words.max) == (2, 3.0, 2)
    """

    kind: ClassVar[str] = "histogram"
    __slots__ = ("buckets", "count", "max", "min", "total")

    def __init__(self) -> None:
        self.count = 0
        self.total = 0.0
        self.min = math.inf
        self.max = -math.inf
        self.buckets: dict[int, int] = {}
        """Values by bucket: see `bucket_of`."""

    def update(self, value: float, n: int = 1) -> None:
        """Count a value, `n` times. One that is not finite is left out."""
        if not isfinite(value):
            return
        bucket = bucket_of(value)
        self.buckets[bucket] = self.buckets.get(bucket, 0) + n
        self.count += n
        self.total += value * n
        if value < self.min:
            self.min = value
        if value > self.max:
            self.max = value


class Timer(Histogram):
    """How long something takes, in seconds; reported in milliseconds. `context.timer(name)` makes
    one.

        from squall.metrics import Timer

        lookup = Timer()
        with lookup.time():
            found = {"a": 1}.get("a")
        assert lookup.count == 1
    """

    kind: ClassVar[str] = "timer"
    __slots__ = ("_now",)

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._now = now

    @contextmanager
    def time(self) -> Iterator[None]:
        """Time the block, whether or not it raises."""
        start = self._now()
        try:
            yield
        finally:
            self.update(self._now() - start)


class CounterLike(Protocol):
    """A counter of either core."""

    @property
    def count(self) -> int: ...
    def inc(self, n: int = 1) -> None: ...
    def dec(self, n: int = 1) -> None: ...


Instrument = Counter | Meter | Gauge | Histogram | Timer


def bucket_of(value: float) -> int:
    """The bucket of a finite value: an eighth of a doubling wide, mirrored for negative ones. 0 is
    zero; what is closer to it than 2 ** -64 is in bucket 1 or -1."""
    if value == 0:
        return 0
    size = abs(value)
    place = max(1, min(_BUCKET_MAX, math.floor(_STEPS * math.log2(size)) + 64 * _STEPS + 1))
    return place if value > 0 else -place


def value_of(bucket: int) -> float:
    """The value that stands for a bucket: the middle, in ratio, of its bounds."""
    if bucket == 0:
        return 0.0
    size = float(2.0 ** ((abs(bucket) - 0.5) / _STEPS - 64))
    return size if bucket > 0 else -size


def percentile(buckets: Mapping[int, int], share: float) -> float | None:
    """The value that `share` (0 to 1) of the values stay within; None without any."""
    total = sum(buckets.values())
    if total <= 0:
        return None
    rank = max(1, math.ceil(share * total))
    seen = 0
    for bucket in sorted(buckets):
        seen += buckets[bucket]
        if seen >= rank:
            return value_of(bucket)
    raise AssertionError("counts add up to their total")


class InstrumentReader:
    """Reads one instrument at the end of each interval."""

    def __init__(self, name: str, instrument: Any, now: float) -> None:
        self._name = name
        self._instrument = instrument
        self._read_at = self._began = now
        self._count = 0
        self._total = 0.0
        self._buckets: dict[int, int] = {}
        self._rates: dict[str, float] = {}

    def read(self, now: float) -> dict[str, float]:
        """The values of the interval that ends now, by name; nothing for a gauge without a value
        and for a histogram without values. Raises what a gauge's function raises.

        counter            name: what it gained
        meter              name.count: what it gained; name.rate, .m1_rate, .m5_rate, .m15_rate,
                           .mean_rate: a second
        gauge              name: the value
        histogram, timer   name.count, .min, .max (of the buckets), .mean, .p50, .p95, .p99
        """
        instrument, name = self._instrument, self._name
        if instrument.kind == "gauge":
            value = instrument.value
            return {} if value is None else {name: value}
        count = instrument.count
        gained, self._count = count - self._count, count
        if instrument.kind == "counter":
            return {name: gained}
        if instrument.kind == "meter":
            found = self._read_rates(gained, now)
        else:
            found = self._read_distribution(gained, 1000.0 if instrument.kind == "timer" else 1.0)
        return {f"{name}.{what}": value for what, value in found.items()}

    def _read_rates(self, gained: int, now: float) -> dict[str, float]:
        """Storm's rates are moving means over 1, 5 and 15 minutes."""
        secs, self._read_at = max(1e-3, now - self._read_at), now
        rate = gained / secs
        for what, window in _RATE_SECS.items():
            before = self._rates.get(what, rate)
            self._rates[what] = before + (1 - math.exp(-secs / window)) * (rate - before)
        mean = self._count / max(1e-3, now - self._began)
        return {"count": gained, "rate": rate, **self._rates, "mean_rate": mean}

    def _read_distribution(self, gained: int, unit: float) -> dict[str, float]:
        buckets, total = dict(self._instrument.buckets), self._instrument.total
        since = {
            bucket: new
            for bucket, n in buckets.items()
            if (new := n - self._buckets.get(bucket, 0))
        }
        sum_ = total - self._total
        self._buckets, self._total = buckets, total
        if not since:
            return {}
        found: dict[str, float] = {
            "count": gained,
            "min": unit * value_of(min(since)),
            "max": unit * value_of(max(since)),
            "mean": unit * sum_ / gained,
        }
        for what, share in _SHARES.items():
            found[what] = unit * (percentile(since, share) or 0.0)
        return found
