"""Waiting for a topology to run, with a Nimbus behind a socket."""

from __future__ import annotations

import pytest
from tests.support.fake_nimbus import fake_nimbus

from squall_common.client.waiting import NotRunningError, wait_running
from squall_common.config.options.typed import ClientOptions
from squall_thrift import storm


def summary(health: str) -> storm.TopologySummary:
    return storm.TopologySummary(
        id="words-1-17", name="words", num_tasks=1, num_executors=1, num_workers=1, uptime_secs=1,
        status="ACTIVE", health=health,
    )  # fmt: skip


def test_the_newest_error_is_in_the_message() -> None:
    def error(text: str, at: int) -> storm.ErrorInfo:
        return storm.ErrorInfo(error=text, error_time_secs=at, host="node1", port=6700)

    words = iter(["starting", "crash loop"])
    info = storm.TopologyInfo(
        id="words-1-17", name="words", uptime_secs=1, executors=[], status="ACTIVE",
        errors={
            "split": [
                error("Traceback (most recent call last):\n  ...\nValueError: no database\n", 20)
            ],
            "count": [error("old", 10)],
        },
    )  # fmt: skip
    with fake_nimbus() as nimbus:
        nimbus.answers["getTopologySummaryByName"] = lambda name: summary(next(words))
        nimbus.answers["getTopologyInfoByNameWithOpts"] = info
        with pytest.raises(NotRunningError) as caught:
            wait_running(ClientOptions.read(nimbus.conf), ["words"], 30.0)
    assert caught.value.message == (
        "topology 'words' does not run: crash loop\nsplit on node1:6700: ValueError: no database"
    )
    assert "get-errors words" in (caught.value.hint or "")


def test_a_topology_that_is_gone_is_said_to_be() -> None:
    with fake_nimbus() as nimbus:
        nimbus.answers["getTopologySummaryByName"] = storm.NotAliveException(msg="words")
        nimbus.answers["getTopologyInfoByNameWithOpts"] = storm.NotAliveException(msg="words")
        with pytest.raises(NotRunningError, match="'words' no longer exists"):
            wait_running(ClientOptions.read(nimbus.conf), ["words"], 30.0)
