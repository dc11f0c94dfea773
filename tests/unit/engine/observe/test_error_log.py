"""Errors of components on their way to the log and to the worker."""

from __future__ import annotations

import pytest

from squall_common.config.options.typed import TopologyOptions
from squall_common.daemon.clock import ManualClock
from squall_engine.observe import garbage
from squall_engine.observe.error_log import ErrorLog


def test_the_log_gets_the_first_errors_of_an_interval_and_the_worker_all(
    caplog: pytest.LogCaptureFixture,
) -> None:
    clock = ManualClock()
    reported: list[str] = []
    options = TopologyOptions(
        topology_max_error_report_per_interval=2, topology_error_throttle_interval_secs=5.0
    )
    complaints = ErrorLog(clock.monotonic, lambda c, t, e: reported.append(str(e)), options)
    for _ in range(2):
        for n in range(4):
            complaints.report("split", 3, ValueError(f"bad line {n}"))
        clock.advance(5)
    assert len(reported) == 8
    logged = [record.getMessage().partition(" ")[0] for record in caplog.records]
    assert logged == 2 * ["component_error", "component_error", "component_errors_not_logged"]


def test_the_log_says_where_the_errors_are_that_it_leaves_out(
    caplog: pytest.LogCaptureFixture,
) -> None:
    clock = ManualClock()
    complaints = ErrorLog(clock.monotonic, None, TopologyOptions())
    for n in range(9):
        complaints.report("split", 3, ValueError(f"bad line {n}"))
    clock.advance(10)
    complaints.report("split", 3, ValueError("the next"))
    *_, left_out, after = [record.getMessage() for record in caplog.records]
    assert (
        'hint="the first 5 errors of 10 s are logged; all are counted: '
        'storm get-errors TOPOLOGY, or the last lines of storm local"'
    ) in left_out
    assert "not_logged_before=4 " in after


def error_of_import(module: str) -> ModuleNotFoundError:
    with pytest.raises(ModuleNotFoundError) as raised:
        __import__(module)
    return raised.value


def test_a_missing_package_says_how_to_ship_it() -> None:
    reported: list[BaseException] = []
    throttle = ErrorLog(
        lambda: 0.0, lambda component, task, error: reported.append(error), TopologyOptions()
    )
    error = error_of_import("not_installed_anywhere")
    for _ in range(2):
        throttle.report("split", 3, error)
    assert reported == [error, error]
    assert error.__notes__ == [
        "ModuleNotFoundError: 'not_installed_anywhere' is neither in the package nor among its "
        "dependencies: ship it with --requirements FILE"
    ]


def test_a_cause_that_is_a_missing_package_is_found_and_other_errors_stay() -> None:
    throttle = ErrorLog(lambda: 0.0, None, TopologyOptions())
    outer, other = RuntimeError("no model"), ImportError("cannot import name 'x'")
    outer.__cause__ = error_of_import("not_installed_anywhere.sub")
    for error in (outer, other):
        throttle.report("split", 3, error)
    assert "not_installed_anywhere" in outer.__notes__[0]
    assert not hasattr(other, "__notes__")


def test_a_circle_of_causes_is_looked_at_once() -> None:
    one, other = ValueError("one"), ValueError("other")
    one.__cause__, other.__cause__ = other, one
    reported: list[str] = []
    log = ErrorLog(lambda: 0.0, lambda c, t, error: reported.append(str(error)), TopologyOptions())
    log.report("split", 3, one)
    assert reported == ["one"]


def test_what_holds_the_loop_is_named_once_a_minute(caplog: pytest.LogCaptureFixture) -> None:
    clock = ManualClock()
    log = ErrorLog(clock.monotonic, None, TopologyOptions())
    for _ in range(3):
        log.held_loop("gps", "3 tuple(s)", 0.5)
        clock.advance(30)
    messages = [record.getMessage() for record in caplog.records]
    assert len(messages) == 2
    assert messages[0].startswith("component_holds_loop component=gps ")
    assert "async def execute" in messages[0]


def test_a_component_is_not_blamed_for_a_garbage_collection(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level("INFO")
    monkeypatch.setattr(garbage, "secs_of_last", lambda secs: 0.075)
    log = ErrorLog(lambda: 100.0, None, TopologyOptions())
    log.held_loop("files", "400 tuple(s)", 0.12)
    log.held_loop("db", "400 tuple(s)", 0.12)
    (message,) = [record.getMessage() for record in caplog.records]
    assert message.startswith("garbage_collection_holds_loop ms=75 ")
    log.held_loop("db", "400 tuple(s)", 0.13)
    assert caplog.records[-1].getMessage().startswith("component_holds_loop component=db ")
