"""topology.multilang.log.handler: who is given what shell components log."""

from __future__ import annotations

import logging
import sys

import pytest
from tests.support import shell_log_handlers
from tests.support.shells import running

from squall import ShellBolt
from squall_common.errors import SquallError

pytestmark = pytest.mark.integration
HANDLERS = "tests.support.shell_log_handlers"
KEY = "topology.multilang.log.handler"


def bolt() -> ShellBolt:
    return ShellBolt(sys.executable, "logging_bolt.py", outputs=["n"])


def test_a_class_of_the_topology_gets_every_message_with_its_level() -> None:
    shell_log_handlers.LOGGED.clear()
    with running(bolt(), count=5, conf={KEY: f"{HANDLERS}:Collects"}) as run:
        run.wait_all_acked()
        assert not run.errors()
    levels = [logging.DEBUG, logging.DEBUG, logging.INFO, logging.WARNING, logging.ERROR]
    assert sorted(shell_log_handlers.LOGGED, key=lambda entry: entry[2]) == [
        ("shell", level, f"number {n}") for n, level in enumerate(levels)
    ]


def test_a_handler_that_raises_causes_an_error_but_fails_no_tuple() -> None:
    with running(bolt(), count=50, conf={KEY: f"{HANDLERS}:Raises"}) as run:
        run.wait_all_acked()
        assert run.account.seen == dict.fromkeys(range(50), 1)
        assert any("the disk of the logs is full" in error for error in run.errors())


def test_the_name_of_a_java_class_is_the_default(caplog: pytest.LogCaptureFixture) -> None:
    conf = {KEY: "org.apache.storm.utils.DefaultShellLogHandler"}
    with caplog.at_level(logging.INFO), running(bolt(), count=5, conf=conf) as run:
        run.wait_all_acked()
    assert "number 2" in caplog.messages


@pytest.mark.parametrize("path", [f"{HANDLERS}:Lacks", f"{HANDLERS}:NoSuch", "no_such_module:X"])
def test_an_unusable_class_is_reported_at_the_start(path: str) -> None:
    with pytest.raises(SquallError, match=r"topology\.multilang\.log\.handler"):  # noqa: SIM117
        with running(bolt(), count=5, conf={KEY: path}):
            pass
