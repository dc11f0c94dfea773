"""A reporter on its thread."""

from __future__ import annotations

from squall_common.component.metrics.consumers import ConsumerContext
from squall_common.reporters.base import MetricValue
from squall_common.reporters.entries import Entry
from squall_common.reporters.thread import ReporterThread


def test_only_the_names_of_the_last_report_are_kept() -> None:
    entry = Entry(
        "squall.metrics.ConsoleReporter",
        10.0,
        {},
        {"class": "squall.metrics.RegexFilter", "expression": ".*-kept.*"},
    )
    errors: list[BaseException] = []
    context = ConsumerContext("nimbus", "node1", 6627, None, is_daemon=True)
    thread = ReporterThread(entry, context, errors.append)
    try:
        for number in range(100):
            names = [f"kept-{number}", f"dropped-{number}"]
            values = [MetricValue("nimbus", -1, name, 1.0) for name in names]
            assert thread._chosen(values) == values[:1]
        assert len(thread._passes) == 2
    finally:
        thread.stop()
        thread.join(5.0)
    assert not errors
