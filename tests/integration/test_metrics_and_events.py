"""Metrics consumers and the event log on a real cluster, through the files that they write."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.support.devcluster import DevCluster, wait_for
from tests.support.ledger import Ledger, text
from tests.support.live_files import texts
from tests.support.submit import submit_ledger

pytestmark = pytest.mark.integration


def lines_of(cluster: DevCluster, name: str) -> list[str]:
    """All lines of the workers' files of this name."""
    # Whole lines: the last one may be half written.
    written = (text.rpartition("\n")[0] for text in texts(cluster.data_dir / "logs", name))
    return [line for text in written for line in text.splitlines()]


def test_metrics_and_sampled_tuples_are_written_beside_the_workers_logs(tmp_path: Path) -> None:
    conf = {
        "topology.metrics.consumer.register": [
            {"class": "org.apache.storm.metric.LoggingMetricsConsumer", "expandMapType": True}
        ],
        "topology.builtin.metrics.bucket.size.secs": 1,
    }
    with (
        Ledger(text(200_000)) as ledger,
        DevCluster.start(tmp_path, slots=2, overrides=["task.refresh.poll.secs=1"]) as cluster,
    ):
        ledger.pace(200)
        submit_ledger(cluster, ledger, workers=2, conf=conf)
        ledger.wait_done(50, timeout_secs=60)
        wait_for(
            "the metrics of spout and bolts",
            lambda: all(
                any(f":{component} {name} " in line for line in lines_of(cluster, _METRICS))
                for component, name in (
                    ("lines", "__ack-count.default"),
                    ("split", "__execute-count.lines:default"),
                    ("record", "__execute-latency.split:default"),
                )
            ),
        )
        assert not lines_of(cluster, "events.log")
        cluster.call("debug", "ledger", "split", True, 100.0)
        wait_for(
            "tuples of split",
            lambda: any(" split " in line for line in lines_of(cluster, "events.log")),
        )
        assert not [line for line in lines_of(cluster, "events.log") if " lines " in line]
        lines = lines_of(cluster, "events.log")
        assert all(" [tree " in line or " [message id " in line for line in lines)
        cluster.call("debug", "ledger", "", True, 50.0)
        wait_for(
            "tuples of all components",
            lambda: any(" lines " in line for line in lines_of(cluster, "events.log")),
        )
        cluster.call("debug", "ledger", "", False, 0.0)
        cluster.call("debug", "ledger", "split", False, 0.0)
        ledger.serve_up_to(ledger.handed_out())
        ledger.pace(None)
        ledger.wait_done(ledger.handed_out(), timeout_secs=60)
        ledger.check()
        cluster.storm("kill", "ledger", "-w", "0")
        cluster.wait_gone("ledger")


_METRICS = "worker.log.metrics"
