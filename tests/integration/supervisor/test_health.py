"""Health checks of a node on a real cluster."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.support.devcluster import DevCluster, wait_for
from tests.support.ledger import Ledger, text
from tests.support.live_files import found
from tests.support.submit import submit_ledger

pytestmark = pytest.mark.integration


def test_an_unhealthy_node_is_named_and_drained_and_gets_work_again_when_it_is_well(
    tmp_path: Path,
) -> None:
    with (
        Ledger(text(200_000)) as ledger,
        DevCluster.start(
            tmp_path,
            supervisors=2,
            slots=2,
            overrides=["supervisor.health.check.interval.secs=0.5"],
        ) as cluster,
    ):
        ledger.pace(200)
        submit_ledger(cluster, ledger, workers=2)
        ledger.wait_done(50, timeout_secs=90)

        def nodes() -> dict[str, int]:
            found = cluster.call("getClusterInfo").supervisors
            return {one.supervisor_id: one.num_used_workers for one in found}

        def summary(node: str):  # type: ignore[no-untyped-def]
            found = cluster.call("getClusterInfo").supervisors
            return next(one for one in found if one.supervisor_id == node)

        wait_for("a worker on each node", lambda: sorted(nodes().values()) == [1, 1])
        sick, well = sorted(nodes())
        checks = local_dir(cluster, sick) / "healthchecks"
        checks.mkdir()
        script = checks / "disk.sh"
        script.write_text("#!/bin/sh\necho 'ERROR sda is read-only'\n")
        script.chmod(0o755)
        wait_for("the node to be named", lambda: summary(sick).unhealthy)
        assert summary(sick).unhealthy == "disk.sh: ERROR sda is read-only"
        assert "is unhealthy and gets no work: disk.sh" in cluster.storm("list").stderr
        wait_for(
            "all workers on the healthy node",
            lambda: nodes() == {sick: 0, well: 2},
            timeout_secs=60,
        )
        wait_for("no slot of the other", lambda: summary(sick).num_workers == 0)
        done = ledger.handed_out()
        ledger.wait_done(done, timeout_secs=90)

        script.write_text("#!/bin/sh\necho well\n")
        wait_for("it to be healthy", lambda: not summary(sick).unhealthy)
        wait_for("its slots", lambda: summary(sick).num_workers == 2)
        ledger.pace(None)
        ledger.serve_up_to(ledger.handed_out())
        ledger.wait_done(ledger.handed_out(), timeout_secs=90)
        ledger.check()


def local_dir(cluster: DevCluster, node: str) -> Path:
    """The storm.local.dir of a supervisor."""
    for state in found(cluster.data_dir, "supervisor/localstate"):
        if node in state.read_text(errors="replace"):
            return state.parents[1]
    raise AssertionError(f"no supervisor {node} in {cluster.data_dir}")
