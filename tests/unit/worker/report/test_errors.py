"""Errors of components: throttled, bounded, never in the way."""

from __future__ import annotations

import asyncio

import pytest

from squall_common.cluster.values import ErrorInfo
from squall_common.config.options.typed import TopologyOptions
from squall_common.daemon.clock import ManualClock
from squall_common.errors import SquallError
from squall_worker.report.errors import ErrorReporter, report_text


def test_the_text_is_bounded_and_keeps_the_message() -> None:
    def deep(n: int) -> None:
        if n == 0:
            raise ValueError("the reason " + "x" * 30_000 + " at the end")
        deep(n - 1)

    with pytest.raises(ValueError) as caught:
        deep(50)
    text = report_text(caught.value)
    assert len(text) < 16_100
    assert text.startswith("Traceback")
    assert text.endswith("at the end")


async def test_reports_carry_host_port_and_time_and_are_throttled() -> None:
    sent: list[tuple[str, ErrorInfo]] = []

    async def send(component: str, info: ErrorInfo) -> None:
        sent.append((component, info))

    clock = ManualClock(time=1234.5)
    reporter = ErrorReporter(host="node-1", port=6700, clock=clock, send=send)
    reporter.throttle_by(
        TopologyOptions.read(
            {
                "topology.max.error.report.per.interval": 2,
                "topology.error.throttle.interval.secs": 5,
            }
        )
    )
    for i in range(4):
        reporter.report("split", 3, ValueError(f"bad line {i}"))
    clock.advance(5)
    reporter.report("split", 3, ValueError("bad line 5"))
    await reporter.close(5)
    assert [(component, info.error.splitlines()[-1]) for component, info in sent] == [
        ("split", "ValueError: bad line 0"),
        ("split", "ValueError: bad line 1"),
        ("split", "ValueError: bad line 5"),
    ]
    assert [info.count for _, info in sent] == [1, 1, 3]  # with the two that were held back
    assert (sent[0][1].host, sent[0][1].port, sent[0][1].time_secs) == ("node-1", 6700, 1234)


async def test_a_store_that_never_answers_does_not_hold_up_the_end() -> None:
    async def send(component: str, info: ErrorInfo) -> None:
        await asyncio.Event().wait()

    reporter = ErrorReporter(host="h", port=1, clock=ManualClock(), send=send)
    reporter.report("split", 3, ValueError("bad"))
    await asyncio.wait_for(reporter.close(0.01), 5)


async def test_a_store_that_fails_is_logged_only(caplog: pytest.LogCaptureFixture) -> None:
    async def send(component: str, info: ErrorInfo) -> None:
        raise OSError("away")

    reporter = ErrorReporter(host="h", port=1, clock=ManualClock(), send=send)
    reporter.report("split", 3, ValueError("bad"))
    await reporter.close(5)
    assert "error_report_failed component=split" in caplog.text


async def test_errors_come_from_any_thread() -> None:
    """Blocking components run on threads of their own."""
    sent: list[str] = []

    async def send(component: str, info: ErrorInfo) -> None:
        sent.append(component)

    reporter = ErrorReporter(host="h", port=1, clock=ManualClock(), send=send)
    await asyncio.to_thread(reporter.report, "split", 3, ValueError("bad"))
    await reporter.close(5)
    assert sent == ["split"]


def test_a_report_has_the_notes_of_an_error() -> None:
    """They say which task and which function it was."""
    expected = SquallError("no such topic", hint="make it")
    for error in (expected, OSError("no such topic")):
        error.add_note("in seek() of 'words' (task 3)")
        assert "no such topic" in report_text(error)
        assert "in seek() of 'words' (task 3)" in report_text(error)


async def test_a_report_begins_with_what_the_component_was_given() -> None:
    sent: list[str] = []
    asked: list[str] = []

    async def send(component: str, info: ErrorInfo) -> None:
        sent.append(info.error)

    def source_of(error: BaseException) -> str:
        asked.append(str(error))
        return "a tuple of words (task 3), stream default, message id 17"

    reporter = ErrorReporter(host="h", port=1, clock=ManualClock(), send=send)
    reporter.throttle_by(TopologyOptions(topology_max_error_report_per_interval=1))
    reporter.source_of = source_of
    for n in range(2):
        reporter.report("split", 3, ValueError(f"bad line {n}"))
    await reporter.close(5)
    assert sent == [
        "On a tuple of words (task 3), stream default, message id 17:\nValueError: bad line 0"
    ]
    assert asked == ["bad line 0"]  # not for those that are held back


async def test_a_password_in_an_error_is_hidden() -> None:
    """Errors go to ZooKeeper, to whoever may look at the topology, and into its history."""
    sent: list[ErrorInfo] = []
    noted: list[str] = []

    async def send(component: str, info: ErrorInfo) -> None:
        sent.append(info)

    reporter = ErrorReporter(host="node-1", port=6700, clock=ManualClock(time=1.0), send=send)
    reporter.note = lambda component, task, text, count: noted.append(text)
    secret = "canary"
    reporter.report("db", 1, ValueError(f"no login at postgres://app:{secret}@db, pwd={secret}"))
    await reporter.close(5)
    assert len(sent) == len(noted) == 1
    for text in (sent[0].error, *noted):
        assert secret not in text.splitlines()[-1]
        assert text.endswith("no login at postgres://app:*****@db, pwd=*****")
