"""What a run of pytest writes for tests/run_all.py, an event a line, at once: a process that dies
or hangs has written what it was doing.

    {"rootdir": ...}                         what the ids below are relative to
    {"collected": [id, ...]}                 of one process; with xdist there is no such line
    {"broken": id}                           what could not be collected
    {"started": id}
    {"id": ..., "outcome": ..., "cause": ..., "final": ..., "ended": ...}    of the setup, the call,
                                             the end
    {"finished": exit status}

`final` says why a test that failed may not be run again. What Hypothesis drew was found by chance:
other examples would be drawn. (Not so with `derandomize`, which Hypothesis sets itself where CI is
in the environment: the same examples come again, and what fails only once is a matter of time.) And
tuples that were lost or invented (`TuplesLost`) are what Squall promises not to do.

Loaded with `-p tests.support.journal`; `SQUALL_TEST_JOURNAL` names the file.
"""

from __future__ import annotations

import json
import os
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import pytest

_ROOT = Path(__file__).resolve().parent.parent.parent
_SIMULATION = _ROOT / "tests" / "simulation"
_FINAL = "may not be run again"


def pytest_configure(config: pytest.Config) -> None:
    """Write the journal where the reports of all processes arrive."""
    path = os.environ.get("SQUALL_TEST_JOURNAL")
    if path is not None and not hasattr(config, "workerinput"):
        config.pluginmanager.register(_Journal(Path(path), config.rootpath))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Say of a failure whether it may be one of chance, in the process that knows the test."""
    report = yield
    if report.failed and (why := _final(item, call)) is not None:
        report.user_properties.append((_FINAL, why))
    return report


def _final(item: pytest.Item, call: pytest.CallInfo[None]) -> str | None:
    if _is_drawn(getattr(item, "obj", None)):
        return "Hypothesis drew the examples"
    if _SIMULATION in item.path.parents:
        return "a seed decides everything"
    errors = () if call.excinfo is None else _all_errors(call.excinfo.value)
    names = {kind.__name__ for error in errors for kind in type(error).__mro__}
    return "tuples were lost or invented" if "TuplesLost" in names else None


def _is_drawn(function: object) -> bool:
    """Whether Hypothesis draws other examples each time."""
    if not getattr(function, "is_hypothesis_test", False):
        return False
    # A function has its settings, and a state machine those of its class.
    of_class = getattr(getattr(function, "__self__", None), "settings", None)
    found = getattr(function, "_hypothesis_internal_use_settings", None) or of_class
    return not getattr(found, "derandomize", False)


def _all_errors(error: BaseException) -> Iterator[BaseException]:
    """An error with its causes, what it was raised in the handling of, and those in its group."""
    todo: list[BaseException | None] = [error]
    seen: set[int] = set()
    while todo:
        one = todo.pop()
        if one is not None and id(one) not in seen:
            seen.add(id(one))
            yield one
            todo += [one.__cause__, one.__context__]
            todo += one.exceptions if isinstance(one, BaseExceptionGroup) else ()


class _Journal:
    """The hooks of the process that gets all reports."""

    def __init__(self, path: Path, rootdir: Path) -> None:
        self._path = path
        self._write(rootdir=str(rootdir))

    def _write(self, **event: Any) -> None:  # Any: JSON
        with self._path.open("a", encoding="utf-8") as file:
            file.write(f"{json.dumps(event)}\n")

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        self._write(collected=[item.nodeid for item in session.items])

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self._write(broken=report.nodeid)

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self._write(started=nodeid)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        # "???": xdist's report of a test whose process died.
        ended = report.when in ("teardown", "???")
        event = {"id": report.nodeid, "outcome": report.outcome, "ended": ended}
        if report.failed:
            event["cause"] = cause(report)
            if (why := dict(report.user_properties).get(_FINAL)) is not None:
                event["final"] = str(why)
        elif report.skipped:
            event["cause"] = getattr(report, "wasxfail", None) or reason(report)
        self._write(**event)

    def pytest_sessionfinish(self, exitstatus: int) -> None:
        self._write(finished=int(exitstatus))


def reason(report: pytest.TestReport) -> str:
    """Why a test was skipped."""
    why = report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longreprtext
    return why.removeprefix("Skipped: ")


def cause(report: pytest.TestReport) -> str:
    """Where and why a test failed, in a line, with the servers that had ended by themselves."""
    ended = "".join(f"; {title}" for title, _ in report.sections if "ended with" in title)
    crash = getattr(report.longrepr, "reprcrash", None)
    if crash is None:
        lines = report.longreprtext.strip().splitlines()
        return f"{report.when}: {lines[-1] if lines else 'no reason given'}{ended}"
    message = next((line for line in crash.message.splitlines() if line), "")
    return f"{message} ({os.path.relpath(crash.path, _ROOT)}:{crash.lineno}){ended}"
