"""Metrics that components record themselves, and consumers that receive all metrics.

This is the public name of `squall_common.component.metrics`, which describes both.
"""

from __future__ import annotations

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
    "DataPoint",
    "LoggingMetricsConsumer",
    "MeanMetric",
    "Metric",
    "MetricsConsumer",
    "MultiCountMetric",
    "TaskInfo",
]
