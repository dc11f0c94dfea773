"""Components in JavaScript: unmodified node-storm (npm), and the ways of Storm's own library."""

from __future__ import annotations

import pytest
from tests.support.shells import running
from tests.support.thirdparty import command, node_storm_path

from squall import ShellBolt, ShellSpout

pytestmark = pytest.mark.integration


@pytest.mark.parametrize("kind", ["basic", "careful", "later"])
def test_bolts_of_node_storm(kind: str) -> None:
    environment = {"NODE_PATH": node_storm_path(), "BOLT": kind}
    bolt = ShellBolt(command("node"), "node_storm.js", outputs=["n"], environment=environment)
    with running(bolt) as run:
        run.wait_all_acked()
        assert run.account.seen == dict.fromkeys(range(200), 1)
        assert not run.account.failed
        assert not run.errors()


def test_a_spout_of_node_storm_that_knows_no_activation() -> None:
    """It never answers `activate`, which is younger than it is."""
    environment = {"NODE_PATH": node_storm_path(), "BOLT": "basic"}
    spout = ShellSpout(command("node"), "node_storm.js", outputs=["n"], environment=environment)
    with running(None, spout=spout) as run:
        run.wait(lambda: len(run.account.seen) == 200)
        run.cluster.deactivate("shells")
        run.cluster.activate("shells")
        run.cluster.wait_drained("shells")
        assert run.account.seen == {f"number {n}": 1 for n in range(200)}
        assert not run.errors()


def test_a_bolt_that_takes_its_input_in_pieces_and_its_task_ids_by_callbacks() -> None:
    with running(ShellBolt(command("node"), "chunks.js", outputs=["n", "i"]), count=500) as run:
        run.wait_all_acked()
        assert run.account.seen == {(n, i): 1 for n in range(500) for i in range(3)}
        assert not run.errors()
