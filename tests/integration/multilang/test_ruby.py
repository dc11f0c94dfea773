"""Components in Ruby, in the ways of Storm's own library."""

from __future__ import annotations

import pytest
from tests.support.shells import running
from tests.support.thirdparty import command

from squall import ShellBolt, ShellSpout

pytestmark = pytest.mark.integration


def test_a_bolt_that_waits_for_its_task_ids() -> None:
    with running(ShellBolt(command("ruby"), "ways.rb", outputs=["n", "i"]), count=300) as run:
        run.wait_all_acked()
        assert run.account.seen == {(n, i): 1 for n in range(300) for i in range(3)}
        assert not run.errors()


def test_a_spout() -> None:
    spout = ShellSpout(command("ruby"), "ways.rb", outputs=["n"], environment={"KIND": "spout"})
    with running(None, spout=spout) as run:
        run.wait(lambda: len(run.account.seen) == 200)
        run.cluster.wait_drained("shells")
        assert run.account.seen == dict.fromkeys(range(200), 1)
        assert not run.errors()
