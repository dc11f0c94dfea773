"""Errors of a component that fails all the time."""

from __future__ import annotations

import pytest

from squall_common.config.options.typed import TopologyOptions
from squall_common.daemon.clock import ManualClock
from squall_engine.observe.error_log import ErrorLogThrottle


def test_the_log_gets_the_first_errors_of_an_interval_and_the_worker_all(
    caplog: pytest.LogCaptureFixture,
) -> None:
    clock = ManualClock()
    reported: list[str] = []
    options = TopologyOptions(
        topology_max_error_report_per_interval=2, topology_error_throttle_interval_secs=5.0
    )
    complaints = ErrorLogThrottle(clock.monotonic, lambda c, t, e: reported.append(str(e)), options)
    for _ in range(2):
        for n in range(4):
            complaints.report("split", 3, ValueError(f"bad line {n}"))
        clock.advance(5)
    assert len(reported) == 8
    logged = [record.getMessage().partition(" ")[0] for record in caplog.records]
    assert logged == 2 * ["component_error", "component_error", "component_errors_not_logged"]
