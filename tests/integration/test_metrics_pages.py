"""The pages that Prometheus reads, of a real cluster: valid, true, and unharmed by a worker that
writes nonsense."""

from __future__ import annotations

import json
import os
import signal
import urllib.error
import urllib.request
from pathlib import Path

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families
from tests.support.devcluster import DevCluster, wait_for
from tests.support.live_files import found

from squall_common.daemon.ports import free_ports

pytestmark = pytest.mark.integration

TOPOLOGY = """
import time

from squall import Bolt, Spout, TopologyBuilder, submit_topology


class Numbers(Spout):
    outputs = ["n"]

    def open(self, conf, context):
        self.next = 0
        self.acks = context.counter("acks")

    def next_tuple(self):
        if self.next < 3_000:
            self.next += 1
            self.emit([self.next], message_id=self.next)

    def ack(self, message_id):
        self.acks.inc()


class Slow(Bolt):
    outputs = []

    def prepare(self, conf, context):
        self.sizes = context.histogram('sizes "of\\n all"')
        self.last = context.gauge("last")

    def execute(self, tup):
        time.sleep(0.002)
        self.sizes.update(tup["n"])
        self.last.set(tup["n"])


def main():
    builder = TopologyBuilder()
    builder.spout("numbers", Numbers())
    builder.bolt("slow", Slow()).shuffle("numbers")
    conf = {"topology.workers": 2, "topology.stats.sample.rate": 0.01}  # which has no effect
    submit_topology("metered", conf, builder.build())


if __name__ == "__main__":
    main()
""".replace('sizes "of\\n all"', 'sizes \\"of all\\"')

Values = dict[tuple[str, tuple[tuple[str, str], ...]], float]


def page(port: int) -> Values:
    """The samples of a page, by name and labels. The official parser refuses a page that is not
    OpenMetrics."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=30) as answer:
        assert answer.headers["Content-Type"].startswith("application/openmetrics-text")
        text = answer.read().decode()
    found: Values = {}
    for family in text_string_to_metric_families(text):  # type: ignore[no-untyped-call]
        for sample in family.samples:
            key = (sample.name, tuple(sorted(sample.labels.items())))
            assert key not in found, f"twice: {key}"
            found[key] = sample.value
    return found


def total(values: Values, metric: str, /, **labels: str) -> float:
    """The sum of the samples of this name that have these labels."""
    return sum(
        value
        for (found, of), value in values.items()
        if found == metric and labels.items() <= dict(of).items()
    )


COUNTS = {"Thrift": (3_000, 3_000), "REST": (3_000, 3_000)}


def counts(cluster: DevCluster) -> dict[str, tuple[int, int]]:
    """Messages that the spout has acked, and tuples that the bolt has executed."""
    (topology,) = cluster.call("getTopologySummaries")
    found = cluster.call("getTopologyPageInfo", topology.id, ":all-time", False)
    bolt = found.id_to_bolt_agg_stats["slow"].specific_stats.bolt
    ui = cluster.state()["ui"]
    url = f"http://{ui['host']}:{ui['port']}/api/v1/topology/{topology.id}?window=:all-time"
    with urllib.request.urlopen(url, timeout=30) as answer:
        page = json.load(answer)
    return {
        "Thrift": (found.id_to_spout_agg_stats["numbers"].common_stats.acked, bolt.executed),
        "REST": (page["spouts"][0]["acked"], page["bolts"][0]["executed"]),
    }


def test_the_pages_of_a_cluster_are_valid_and_true(tmp_path: Path) -> None:
    package = tmp_path / "package"
    package.mkdir()
    (package / "flow.py").write_text(TOPOLOGY)
    nimbus, supervisor = free_ports(2)
    overrides = [f"nimbus.metrics.port={nimbus}", f"supervisor.metrics.port={supervisor}"]
    with DevCluster.start(tmp_path / "cluster", slots=2, overrides=overrides) as cluster:
        cluster.storm("jar", package, "flow")

        def done() -> Values | None:
            """The page once both workers have written what they counted, each in its time."""
            values = page(supervisor)
            acks = total(values, "squall_user_counter", name="acks")
            executed = total(values, "squall_executed_tuples_total", component="slow")
            return values if acks == executed == 3_000 else None

        values = wait_for("3,000 messages on the page", done, timeout_secs=90)
        assert total(values, "squall_acked_tuples_total", component="numbers") == 3_000
        wait_for("the same counts elsewhere", lambda: counts(cluster) == COUNTS)
        of_slow = {"topology": "metered", "component": "slow"}
        assert total(values, "squall_executed_tuples_total", **of_slow) == 3_000
        assert total(values, "squall_execute_seconds_count", **of_slow) == 3_000
        assert total(values, "squall_execute_seconds_sum", **of_slow) >= 6
        assert total(values, "squall_execute_seconds_bucket", le="0.001", **of_slow) < 300
        assert total(values, "squall_user_histogram_count", name='sizes "of all"') == 3_000
        assert total(values, "squall_user_histogram_sum", name='sizes "of all"') == 4_501_500
        assert total(values, "squall_user_gauge", name="last") == 3_000
        assert total(values, "squall_worker_samples_ok", topology="metered") == 2
        assert total(values, "squall_slots", state="running") == 2
        assert total(values, "squall_worker_memory_bytes") > 10e6
        assert total(values, "process_cpu_seconds_total") > 0
        assert total(values, "squall_zookeeper_request_seconds_count") > 0

        values = page(nimbus)
        assert total(values, "squall_nimbus_leader") == 1
        assert total(values, "squall_topologies", status="active") == 1
        assert total(values, "squall_cluster_slots", state="used") == 2
        assert total(values, "squall_topology_placed_executors", topology="metered") == 4
        assert total(values, "squall_topology_health", topology="metered", health="ok") == 1
        calls = {"method": "submitTopologyWithOpts", "status": "ok"}
        assert total(values, "squall_thrift_requests_total", **calls) == 1
        assert total(values, "squall_scheduling_seconds_count") > 0
        assert total(values, "squall_blob_bytes") > 0

        values = page(cluster.state()["drpc"]["http_port"])
        assert total(values, "squall_drpc_requests_under_way") == 0

        # A page elsewhere may not ask, and a name that is made to point here is not ours.
        for headers in ({"Origin": "http://evil.example"}, {"Host": "evil.example"}):
            request = urllib.request.Request(f"http://127.0.0.1:{nimbus}/metrics", headers=headers)
            with pytest.raises(urllib.error.HTTPError, match=r"403|421"):
                urllib.request.urlopen(request, timeout=30)

        victim, _ = sorted(cluster.worker_pids(2))
        os.kill(victim, signal.SIGKILL)
        wait_for(
            "the exit on the page, and both workers' samples",
            lambda: (
                total(shown := page(supervisor), "squall_worker_exits_total") == 1
                and total(shown, "squall_worker_samples_ok") == 2
            ),
            timeout_secs=60,
        )
        workers = cluster.worker_pids(2)
        for pid in workers:
            os.kill(pid, signal.SIGSTOP)
        files = found(tmp_path / "cluster", "metrics.json")
        for nonsense in (b"\xff", b"[" * 100_000, b"{}", None):
            for file in files:
                file.unlink()
                if nonsense is None:
                    os.mkfifo(file)
                else:
                    file.write_bytes(nonsense)
            values = wait_for(
                "a page without the workers",
                lambda: (
                    shown
                    if total(shown := page(supervisor), "squall_worker_samples_ok") == 0
                    else None
                ),
                poll_secs=0.2,
            )
            assert total(values, "squall_slots") == 2
            assert total(values, "squall_emitted_tuples_total") == 0
        for pid in workers:
            os.kill(pid, signal.SIGCONT)
        cluster.kill("metered")
        cluster.wait_gone("metered")
