"""Reporters: they send the metrics of a worker somewhere, at a period of their own.

    class ToInflux(MetricsReporter):
        options = ("influx.url",)

        def prepare(self, options, context):
            self.url = options["influx.url"]

        def report(self, values):
            post(self.url, [f"{self.name(one)} {one.value}" for one in values])

    topology.metrics.reporters:
      - class: mypackage.ToInflux
        influx.url: http://influx.example
        report.period: 30

A metrics consumer (`squall.metrics.MetricsConsumer`) gets what happened in an interval, a reporter
the counts since the worker's start, as most servers of time series want them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from squall_common.component.metrics.consumers import ConsumerContext

_DOT_OR_SPACE = re.compile(r"[.\s]")


@dataclass(frozen=True, slots=True)
class MetricValue:
    """A value of one task, or of the worker itself (component `__system`, task -1).

        value = MetricValue("split", 4, "__emit-count", 17, "counter", "default")
        assert value.full_name == "__emit-count-default"

    A `counter` is the count since the worker began and never falls; a `gauge` is anything else.
    `stream` is that of a built-in count, for a bolt's inputs `component:stream`; else "".
    """

    component: str
    task: int
    name: str
    value: float
    kind: Literal["counter", "gauge"] = "gauge"
    stream: str = ""

    @property
    def full_name(self) -> str:
        """`name-stream`, as Storm names it, or the name alone without a stream."""
        return f"{self.name}-{self.stream}" if self.stream else self.name


class MetricsReporter:
    """Base of reporters. All methods are called on one thread, which belongs to the reporter, so
    they may block. What they raise is reported as an error of `__system`, and the next report is
    made all the same.

        class ToFile(MetricsReporter):
            options = ("file",)

            def prepare(self, options, context):
                self.path = options["file"]

            def report(self, values):
                with open(self.path, "a") as file:
                    file.writelines(f"{self.name(one)} {one.value}\\n" for one in values)
    """

    options: Sequence[str] = ()
    """The options that the reporter knows, beside those of all reporters: others in its entry are
    reported as an error."""

    context: ConsumerContext
    """The worker: topology id, host, port and the folder of its logs. Set before `prepare`."""

    def prepare(self, options: Mapping[str, Any], context: ConsumerContext) -> None:
        """Called once, with the reporter's entry of `topology.metrics.reporters`."""

    def report(self, values: Sequence[MetricValue]) -> None:
        """Called at the end of each period, with all values that pass the filter."""
        raise NotImplementedError

    def close(self) -> None:
        """Called when the worker ends, after the last report."""

    def name(self, value: MetricValue) -> str:
        """The name that a server without labels gets, as in Storm:
        `storm.topology.TOPOLOGY_ID.HOST.COMPONENT.TASK.PORT-NAME`. Dots and spaces in the parts
        become `_`. In a daemon it is `storm.daemon.DAEMON.HOST.PORT-NAME`."""
        at = self.context
        if at.is_daemon:
            host = _DOT_OR_SPACE.sub("_", at.worker_host)
            return f"storm.daemon.{at.topology_id}.{host}.{at.worker_port}-{value.full_name}"
        parts = (at.topology_id, at.worker_host, value.component, str(value.task))
        place = ".".join(_DOT_OR_SPACE.sub("_", part) for part in parts)
        return f"storm.topology.{place}.{at.worker_port}-{value.full_name}"


class MetricsFilter:
    """Base of filters, named by `filter: {class: mypackage.MyFilter, ...}` of a reporter.

    class OfComponent(MetricsFilter):
        def prepare(self, options):
            self.part = f".{options['component']}."

        def matches(self, name):
            return self.part in name
    """

    def prepare(self, options: Mapping[str, Any]) -> None:
        """Called once, with the `filter` section."""

    def matches(self, name: str) -> bool:
        """Whether the metric of this full name (see `MetricsReporter.name`) is reported."""
        raise NotImplementedError


class RegexFilter(MetricsFilter):
    """`expression` must match the whole name.

        only_counts = RegexFilter()
        only_counts.prepare({"expression": ".*-count-.*"})
        assert only_counts.matches("storm.topology.t-1-0.host.split.4.6700-__emit-count-default")

    `prepare` raises ValueError for what is not a regular expression.
    """

    def prepare(self, options: Mapping[str, Any]) -> None:
        expression = options.get("expression")
        if not isinstance(expression, str):
            raise ValueError("RegexFilter: `expression` must be a regular expression")
        try:
            self._pattern = re.compile(expression)
        except re.error as error:
            raise ValueError(f"RegexFilter: {expression!r}: {error}") from error

    def matches(self, name: str) -> bool:
        return self._pattern.fullmatch(name) is not None


def text_option(options: Mapping[str, Any], key: str, default: str | None = None) -> str:
    """An option that is text. Raises ValueError if it is something else, or is missing and has no
    default."""
    value = options.get(key, default)
    if not isinstance(value, str) or not value:
        raise ValueError(f"{key}: expected text, not {value!r}")
    return value


def port_option(options: Mapping[str, Any], key: str, default: int | None = None) -> int:
    """An option that is a port. Raises ValueError as `text_option` does."""
    value = options.get(key, default)
    if isinstance(value, bool) or not isinstance(value, int) or not 0 < value < 65_536:
        raise ValueError(f"{key}: expected a port (1 to 65535), not {value!r}")
    return value
