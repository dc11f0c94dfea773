"""A reporter that pushes to a Pushgateway, for sites whose Prometheus cannot reach the nodes. All
others have the page of the supervisor (`supervisor.metrics.port`)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from squall_common.component.metrics.consumers import ConsumerContext
from squall_common.names import topology_name_of
from squall_common.reporters.base import MetricsReporter, MetricValue, text_option

_TIMEOUT_SECS = 5.0
_NOT_A_NAME = re.compile(r"[^a-zA-Z0-9_]")
_LABELS = ("component", "task", "stream")


class PrometheusReporter(MetricsReporter):
    """Pushes to `prometheus.endpoint` (localhost:9091) under the job `prometheus.job` (storm),
    grouped by topology and worker (host:port); at the end of the worker its group is deleted.
    Families are called `squall_` and the metric's name, with the labels component, task and
    stream.

        conf = {
            "topology.metrics.reporters": [
                {
                    "class": "squall.metrics.PrometheusReporter",
                    "prometheus.endpoint": "gateway.example:9091",
                }
            ]
        }
    """

    options = ("prometheus.endpoint", "prometheus.job")

    def prepare(self, options: Mapping[str, Any], context: ConsumerContext) -> None:
        self._endpoint = text_option(options, "prometheus.endpoint", "localhost:9091")
        self._job = text_option(options, "prometheus.job", "storm")
        self._group = {
            "topology": topology_name_of(context.topology_id),
            "instance": f"{context.worker_host}:{context.worker_port}",
        }

    def report(self, values: Sequence[MetricValue]) -> None:
        # Large, and for this reporter alone.
        from prometheus_client import CollectorRegistry, push_to_gateway
        from prometheus_client.registry import Collector

        class Values(Collector):
            def collect(self) -> Iterable[Any]:
                return families(values)

        registry = CollectorRegistry()
        registry.register(Values())
        push_to_gateway(self._endpoint, self._job, registry, self._group, _TIMEOUT_SECS)

    def close(self) -> None:
        from prometheus_client import delete_from_gateway

        delete_from_gateway(self._endpoint, self._job, self._group, _TIMEOUT_SECS)


def families(values: Iterable[MetricValue]) -> Iterable[Any]:
    """The values as families of prometheus_client: one for each name and kind."""
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

    found: dict[tuple[str, str], Any] = {}
    kinds: dict[str, str] = {}
    for one in values:
        name = "squall_" + _NOT_A_NAME.sub("_", one.name.strip("_"))
        if kinds.setdefault(name, one.kind) != one.kind:
            name = f"{name}_{one.kind}"  # one family has one kind
        family = found.get((name, one.kind))
        if family is None:
            make = CounterMetricFamily if one.kind == "counter" else GaugeMetricFamily
            family = found[name, one.kind] = make(name, f"{one.name} of Squall.", labels=_LABELS)
        family.add_metric((one.component, str(one.task), one.stream), one.value)
    return found.values()
