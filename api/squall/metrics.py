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
from squall_common.reporters.base import MetricsFilter, MetricsReporter, MetricValue, RegexFilter
from squall_common.reporters.files import ConsoleReporter, CsvReporter
from squall_common.reporters.network import GraphiteReporter, StatsdReporter
from squall_common.reporters.prometheus import PrometheusReporter

__all__ = [
    "AssignableMetric",
    "ConsoleReporter",
    "ConsumerContext",
    "CountMetric",
    "Counter",
    "CsvReporter",
    "DataPoint",
    "Gauge",
    "GraphiteReporter",
    "Histogram",
    "LoggingMetricsConsumer",
    "MeanMetric",
    "Meter",
    "Metric",
    "MetricValue",
    "MetricsConsumer",
    "MetricsFilter",
    "MetricsReporter",
    "MultiCountMetric",
    "PrometheusReporter",
    "RegexFilter",
    "StatsdReporter",
    "TaskInfo",
    "Timer",
]
