"""Metrics: what components count themselves, and consumers of all that is counted.

The public name of `squall_common.component.metrics`, which describes both.
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
