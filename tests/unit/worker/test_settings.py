"""The keys that the worker process reads."""

from typing import Any

import pytest

from squall_common.config.options.typed import TopologyOptions, WorkerOptions
from squall_common.errors import ConfigError
from squall_worker.settings import WorkerSettings


def settings(conf: dict[str, Any]) -> WorkerSettings:
    return WorkerSettings.of(WorkerOptions.read(conf))


def test_defaults_are_storms() -> None:
    found = settings({})
    assert (found.bind_host, found.beat_secs, found.report_secs) == ("127.0.0.1", 1, 3)
    assert (found.refresh_secs, found.stop_secs) == (10, 2.5)
    assert (
        WorkerSettings.backlog_bytes_max(TopologyOptions(topology_worker_buffer_bytes=65536))
        == 524288
    )


@pytest.mark.parametrize(
    ("conf", "expected"),
    [
        ({}, 1_048_576),
        ({"storm.messaging.curve": False}, 1_048_576),
        ({"storm.messaging.curve": True}, 0),
        ({"storm.messaging.ring.bytes": 0}, 0),
        ({"storm.messaging.ring.bytes": 1}, 524_288),
        ({"storm.messaging.ring.bytes": 67_108_864}, 67_108_864),
    ],
)
def test_rings_are_used_unless_encryption_was_asked_for(
    conf: dict[str, Any], expected: int
) -> None:
    assert WorkerSettings.ring_bytes(TopologyOptions.read(conf)) == expected


@pytest.mark.parametrize(("ms", "expected"), [(None, 0.0), (10, 0.01), (0.5, 0.0005)])
def test_workers_poll_busily_only_if_asked_to(ms: float | None, expected: float) -> None:
    conf = {} if ms is None else {"topology.worker.busy.poll.ms": ms}
    assert WorkerSettings.busy_poll_secs(TopologyOptions.read(conf)) == expected


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.5", "node-1"])
def test_other_listeners_than_loopback_need_the_insecure_switch(host: str) -> None:
    with pytest.raises(ConfigError, match=r"storm\.security\.insecure"):
        settings({"storm.bind.host": host})
    conf = {"storm.bind.host": host, "storm.security.insecure": True}
    assert settings(conf).bind_host == host
    secured = WorkerSettings.of(WorkerOptions.read({"storm.bind.host": host}), secured=True)
    assert secured.bind_host == host


@pytest.mark.parametrize("host", ["127.0.0.1", "127.0.0.2", "::1", "localhost"])
def test_loopback_needs_none(host: str) -> None:
    assert settings({"storm.bind.host": host}).bind_host == host


def test_a_stop_ends_before_the_supervisor_kills() -> None:
    assert settings({"supervisor.worker.shutdown.sleep.secs": 10}).stop_secs == 9.5
    assert settings({"supervisor.worker.shutdown.sleep.secs": 0}).stop_secs == 0.5
