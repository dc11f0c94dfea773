"""The entries of `topology.metrics.reporters` and of `storm.daemon.metrics.reporters`. Their
options have the names that Storm gives them."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from squall_common.component.metrics.consumers import ConsumerContext
from squall_common.errors import SquallError, describe
from squall_common.reporters.base import MetricsFilter, MetricsReporter

_STORM = "org.apache.storm.metrics2."
_STORM_DAEMON = "org.apache.storm.daemon.metrics.reporters."
OF_TOPOLOGIES = "topology.metrics.reporters"
_ALIASES = {
    f"{_STORM}reporters.ConsoleStormReporter": "squall.metrics.ConsoleReporter",
    f"{_STORM}reporters.CsvStormReporter": "squall.metrics.CsvReporter",
    f"{_STORM}reporters.GraphiteStormReporter": "squall.metrics.GraphiteReporter",
    f"{_STORM}filters.RegexFilter": "squall.metrics.RegexFilter",
    f"{_STORM_DAEMON}ConsolePreparableReporter": "squall.metrics.ConsoleReporter",
    f"{_STORM_DAEMON}CsvPreparableReporter": "squall.metrics.CsvReporter",
}
# What every entry may have; `daemons` is of Storm 1.2, for storm.metrics.reporters.
_COMMON = ("class", "report.period", "report.period.units", "filter", "daemons")
# Storm's are those of Java's TimeUnit.
_UNITS = {
    "MILLISECONDS": 0.001,
    "SECONDS": 1.0,
    "MINUTES": 60.0,
    "HOURS": 3600.0,
    "DAYS": 86_400.0,
}
_PERIOD_SECS_MIN = 1.0
_PERIOD_SECS_MAX = 31 * 86_400.0


@dataclass(frozen=True, slots=True)
class Entry:
    """One reporter, as configured."""

    class_path: str
    secs: float
    options: Mapping[str, Any]
    filter: Mapping[str, Any] = field(default_factory=dict)  # empty: none
    key: str = OF_TOPOLOGIES  # where it is configured

    @classmethod
    def parse(
        cls, entry: Mapping[str, Any], *, key: str = OF_TOPOLOGIES, program: str = "worker"
    ) -> Entry | None:
        """None for one that is for other programs only. Raises SquallError for an entry that means
        nothing."""
        path = entry.get("class")
        where = f"{key}: {path!r}"
        if not isinstance(path, str) or "." not in path:
            raise SquallError(f"{where}: `class` must be MODULE.CLASS")
        if "jmx" in path.lower() and path.startswith((_STORM, _STORM_DAEMON)):
            raise SquallError(
                f"{where}: JMX needs a JVM, which Squall does not have",
                hint="Use squall.metrics.PrometheusReporter, or the supervisor's /metrics.",
            )
        path = _ALIASES.get(path, path)
        daemons = entry.get("daemons")
        if isinstance(daemons, list | tuple) and program not in daemons:
            return None
        period, unit = entry.get("report.period", 10), entry.get("report.period.units", "SECONDS")
        factor = _UNITS.get(unit.upper()) if isinstance(unit, str) else None
        if factor is None:
            known = ", ".join(_UNITS)
            raise SquallError(f"{where}: report.period.units: expected {known}, not {unit!r}")
        number = isinstance(period, int | float) and not isinstance(period, bool)
        secs = period * factor if number else 0.0
        if not _PERIOD_SECS_MIN <= secs <= _PERIOD_SECS_MAX:
            raise SquallError(
                f"{where}: report.period: expected from 1 second to 31 days, "
                f"not {period!r} {unit.lower()}"
            )
        chosen = entry.get("filter") or {}
        if not isinstance(chosen, Mapping):
            raise SquallError(f"{where}: filter: expected a map with `class`, not {chosen!r}")
        return cls(path, secs, entry, chosen, key)

    def make(self, context: ConsumerContext) -> tuple[MetricsReporter, MetricsFilter | None]:
        """Import and construct the reporter and its filter. Raises SquallError."""
        reporter = _make(self.class_path, MetricsReporter, "metrics reporter")
        reporter.context = context
        unknown = sorted(set(self.options) - set(_COMMON) - set(reporter.options))
        if unknown:
            known = ", ".join([*reporter.options, *_COMMON[1:4]])
            raise SquallError(
                f"{self.key}: {self.class_path}: unknown option {unknown[0]!r}",
                hint=f"It knows {known}.",
            )
        if not self.filter:
            return reporter, None
        path = self.filter.get("class")
        if not isinstance(path, str) or "." not in path:
            raise SquallError(f"{self.class_path}: filter: `class` must be MODULE.CLASS")
        chosen = _make(_ALIASES.get(path, path), MetricsFilter, "filter of metrics")
        try:
            chosen.prepare(self.filter)
        except Exception as error:
            raise SquallError(f"{self.class_path}: filter: {describe(error)}") from error
        return reporter, chosen


def _make(path: str, base: type[Any], what: str) -> Any:
    module, _, name = path.rpartition(".")
    try:
        made = getattr(importlib.import_module(module), name)()
    except Exception as error:
        raise SquallError(f"{what} {path} cannot be created: {describe(error)}") from error
    if not isinstance(made, base):
        raise SquallError(f"{path} is not a squall.metrics.{base.__name__}")
    return made
