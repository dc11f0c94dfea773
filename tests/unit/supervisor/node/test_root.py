"""A supervisor that would run workers as root says so, or does not start."""

from __future__ import annotations

from typing import Any

import pytest

from squall_common.errors import ConfigError
from squall_supervisor.confine.users import ENABLED
from squall_supervisor.node.root import root_warning
from squall_supervisor.settings import SupervisorSettings


def warning(uid: int = 0, **conf: Any) -> str | None:
    return root_warning(SupervisorSettings.from_conf(conf), uid)


def test_no_warning_unless_workers_run_as_root():
    assert warning(1000, **{"storm.bind.host": "0.0.0.0"}) is None
    assert warning(**{ENABLED: True, "supervisor.run.worker.as.user.default": "nobody"}) is None


def test_on_loopback_it_warns():
    assert "runs every worker as root" in (warning() or "")


@pytest.mark.parametrize("key", ["storm.bind.host", "storm.local.hostname"])
def test_off_loopback_it_is_refused_unless_the_network_is_trusted(key: str) -> None:
    with pytest.raises(ConfigError, match=f"{key} is 10.0.0.1") as caught:
        warning(**{key: "10.0.0.1"})
    assert ENABLED in str(caught.value)
    trusted = warning(**{key: "10.0.0.1", "storm.security.insecure": True})
    assert "runs every worker as root" in (trusted or "")
