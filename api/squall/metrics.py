"""Metrics that components record themselves, and consumers that receive all metrics.

This is the public name of the modules of `squall_common.component.metrics`, which describe them.
`context.counter(name)` and its like make the classes of `instruments`.
"""

from __future__ import annotations

from squall_common.component.metrics.consumers import (
    ConsumerContext,
    DataPoint,
    LoggingMetricsConsumer,
    MetricsConsumer,
    TaskInfo,
)
from squall_common.component.metrics.instruments import Counter, Gauge, Histogram, Meter, Timer
from squall_common.component.metrics.registered import (
    AssignableMetric,
    CountMetric,
    MeanMetric,
    Metric,
    MultiCountMetric,
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
