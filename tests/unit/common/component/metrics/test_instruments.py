"""The metrics that components make with their contexts."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as some

from squall import Bolt
from squall.testing import BoltTest
from squall_common.component.metrics.instruments import (
    INSTRUMENTS_MAX,
    Counter,
    Gauge,
    Histogram,
    InstrumentReader,
    Meter,
    Timer,
    bucket_of,
    percentile,
    value_of,
)
from squall_engine import core

VALUES = some.floats(min_value=2.0**-60, max_value=2.0**60)


@given(VALUES, some.booleans())
def test_a_bucket_stands_for_its_values_to_within_five_percent(size: float, below: bool) -> None:
    value = -size if below else size
    assert abs(value_of(bucket_of(value)) / value - 1) < 0.05


@pytest.mark.parametrize("value", [0, 0.0, -0.0, 1e308, -1e308, 5e-324])
def test_every_finite_number_has_a_bucket(value: float) -> None:
    histogram = Histogram()
    histogram.update(value)
    for other in (math.nan, math.inf, -math.inf):
        histogram.update(other)
    assert histogram.count == 1
    assert math.isfinite(value_of(bucket_of(value)))


@given(some.lists(some.one_of(VALUES, VALUES.map(lambda v: -v)), min_size=1), some.floats(0, 1))
def test_a_percentile_is_near_the_exact_one(values: list[float], share: float) -> None:
    histogram = Histogram()
    for value in values:
        histogram.update(value)
    exact = sorted(values)[max(1, math.ceil(share * len(values))) - 1]
    found = percentile(histogram.buckets, share)
    assert found is not None
    assert abs(found / exact - 1) < 0.05
    assert (histogram.min, histogram.max) == (min(values), max(values))


@pytest.mark.parametrize("make", [Counter, core.Counter])
def test_a_counter_reports_what_it_gained(make: type[Counter]) -> None:
    counter = make()
    reader, other = InstrumentReader("n", counter, 0.0), InstrumentReader("n", counter, 0.0)
    counter.inc()
    counter.inc(4)
    counter.dec(2)
    assert reader.read(1.0) == {"n": 3}
    counter.inc(True)
    assert reader.read(2.0) == {"n": 1}
    assert other.read(2.0) == {"n": 4}  # one reader takes nothing from another
    assert (counter.count, counter.kind) == (4, "counter")


def test_a_meter_reports_rates_of_storms_windows() -> None:
    meter = Meter()
    reader = InstrumentReader("m", meter, 0.0)
    meter.mark(600)
    first = reader.read(60.0)
    assert (first["m.count"], first["m.rate"], first["m.m1_rate"]) == (600, 10.0, 10.0)
    second = reader.read(120.0)
    assert second["m.rate"] == 0
    assert second["m.m1_rate"] == pytest.approx(10 / math.e)
    assert second["m.m1_rate"] < second["m.m5_rate"] < second["m.m15_rate"]
    assert second["m.mean_rate"] == 5.0


def test_a_gauge_reports_what_it_shows() -> None:
    gauge = Gauge()
    assert InstrumentReader("g", gauge, 0.0).read(1.0) == {}
    gauge.set(7)
    assert InstrumentReader("g", gauge, 0.0).read(1.0) == {"g": 7}
    assert InstrumentReader("g", Gauge(lambda: 8), 0.0).read(1.0) == {"g": 8}


def test_a_histogram_reports_the_values_of_the_interval() -> None:
    histogram = Histogram()
    reader = InstrumentReader("h", histogram, 0.0)
    histogram.update(1000)
    reader.read(1.0)
    assert reader.read(2.0) == {}
    histogram.update(1, 3)
    histogram.update(5)
    found = reader.read(3.0)
    assert (found["h.count"], found["h.mean"]) == (4, 2.0)
    assert found["h.p50"] == pytest.approx(1, rel=0.05)
    assert found["h.max"] == found["h.p99"] == pytest.approx(5, rel=0.05)


def test_a_timer_reports_milliseconds_even_if_the_block_raises() -> None:
    now = iter([10.0, 10.5])
    timer = Timer(lambda: next(now))
    with pytest.raises(KeyError), timer.time():
        raise KeyError
    found = InstrumentReader("t", timer, 0.0).read(1.0)
    assert found["t.mean"] == 500.0


class Measured(Bolt):
    outputs = ()

    def prepare(self, conf, context):
        self.context = context
        self.empty = context.counter("empty")
        assert context.counter("empty") is self.empty
        for wrong in ("", "a\nb", "x" * 201, None):
            with pytest.raises(ValueError, match="printable text"):
                context.counter(wrong)
        with pytest.raises(ValueError, match="already has a counter 'empty'"):
            context.timer("empty")
        with pytest.raises(ValueError, match="already has a metric 'empty'"):
            context.register_metric("empty", object())

    def execute(self, tup):
        self.empty.inc(not tup["line"])
        self.context.meter("lines").mark()  # at any time
        self.context.gauge("last").set(len(tup["line"]))
        with self.context.timer("wait").time():
            self.context.histogram("chars").update(len(tup["line"]))


def test_the_test_kit_shows_what_a_component_recorded() -> None:
    with BoltTest(Measured(), {"lines": ["line"]}) as bolt:
        for line in ("a b", "", "c"):
            assert not bolt.execute([line]).errors
        expected = {"empty": 1, "lines": 3, "last": 1, "wait": 3, "chars": 3}
        assert bolt.metrics() == expected
        assert bolt.metrics("other") == {}


class Greedy(Bolt):
    outputs = ()

    def execute(self, tup):
        for n in range(INSTRUMENTS_MAX + 1):
            self.context.counter(f"user-{n}")

    def prepare(self, conf, context):
        self.context = context


def test_metrics_of_a_task_are_limited_in_number() -> None:
    with BoltTest(Greedy(), {"lines": ["line"]}) as bolt:
        (error,) = bolt.execute(["x"]).errors
        assert "already has 1000 metrics" in str(error)
