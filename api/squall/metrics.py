"""Metrics that components record themselves, and consumers that receive all metrics.

This is the public name of `squall_common.component.metrics`, which describes both, and of the
classes of `squall_common.component.instruments`: `context.counter(name)` and its like make those.
"""

from __future__ import annotations

from squall_common.component.instruments import Counter, Gauge, Histogram, Meter, Timer
from squall_common.component.metrics import (
    AssignableMetric,
    ConsumerContext,
    CountMetric,
    DataPoint,
    LoggingMetricsConsumer,
    MeanMetric,
    Metric,
    MetricsConsumer,
    MultiCountMetric,
    TaskInfo,
)

__all__ = [
    "AssignableMetric",
    "ConsumerContext",
    "CountMetric",
    "Counter",
    "DataPoint",
    "Gauge",
    "Histogram",
    "LoggingMetricsConsumer",
    "MeanMetric",
    "Meter",
    "Metric",
    "MetricsConsumer",
    "MultiCountMetric",
    "TaskInfo",
    "Timer",
]
