"""The keys that the worker process reads."""

import pytest

from squall_common.errors import ConfigError
from squall_worker.settings import Settings


def test_defaults_are_storms() -> None:
    settings = Settings.of({})
    assert (settings.bind_host, settings.beat_secs, settings.report_secs) == ("127.0.0.1", 1, 3)
    assert (settings.refresh_secs, settings.stop_secs) == (10, 2.5)
    assert Settings.backlog_bytes_max({"topology.worker.buffer.bytes": 1000}) == 8000


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.5", "node-1"])
def test_other_listeners_than_loopback_need_the_insecure_switch(host: str) -> None:
    with pytest.raises(ConfigError, match=r"storm\.security\.insecure"):
        Settings.of({"storm.bind.host": host})
    conf = {"storm.bind.host": host, "storm.security.insecure": True}
    assert Settings.of(conf).bind_host == host


@pytest.mark.parametrize("host", ["127.0.0.1", "127.0.0.2", "::1", "localhost"])
def test_loopback_needs_none(host: str) -> None:
    assert Settings.of({"storm.bind.host": host}).bind_host == host


def test_a_stop_ends_before_the_supervisor_kills() -> None:
    assert Settings.of({"supervisor.worker.shutdown.sleep.secs": 10}).stop_secs == 9.5
    assert Settings.of({"supervisor.worker.shutdown.sleep.secs": 0}).stop_secs == 0.5
