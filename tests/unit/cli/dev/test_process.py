"""How long a process that died waits before it is started again, and statuses in words."""

from __future__ import annotations

from squall_cli.dev.process import (
    BACKOFF_MAX_SECS,
    describe_status,
    restart_delay_secs,
)


def test_back_off_doubles_up_to_its_bound() -> None:
    assert [restart_delay_secs(n) for n in (1, 2, 3)] == [0.2, 0.4, 0.8]
    assert restart_delay_secs(50) == BACKOFF_MAX_SECS


def test_statuses_in_words() -> None:
    assert describe_status(1) == "exited with status 1"
    assert describe_status(-9) == "was killed by SIGKILL"
