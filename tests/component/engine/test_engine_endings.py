"""A worker ends while a child of a shell component holds tuples."""

import sys
import time

import pytest
from tests.support import engine_components as c
from tests.support.engine_cluster import EngineCluster

from squall import ShellBolt, TopologyBuilder


@pytest.fixture(autouse=True)
def _fresh_log():
    c.LOG.clear()


def two_workers(bolt, acker, conf=None, settings=None):
    builder = TopologyBuilder()
    builder.spout("numbers", c.Numbers(5))
    builder.bolt("end", bolt).shuffle("numbers")
    place = {"numbers": 0, "end": 1, "__acker": acker}
    return EngineCluster(
        builder.build(),
        2,
        {"topology.acker.executors": 1, **(conf or {})},
        place=lambda executor, component: place[component],
        settings=settings,
    )


def stop(cluster, worker):
    cluster.run(cluster.engines[worker].stop(0.1))
    cluster.run_for(0.1)  # much less than the message timeout


def until(cluster, condition):
    """Threads and children live in real time."""
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline
        cluster.run_for(0.001)
        time.sleep(0.001)


# While a thread is waited for the virtual time flies.
NO_TIMEOUTS = {"topology.message.timeout.secs": 10_000_000}


HOLDING_CHILD = """
import json, os, sys
sys.stdin.readline()
print(json.dumps({"pid": os.getpid()}), "end", sep="\\n", flush=True)
for line in sys.stdin:
    pass
"""


def test_what_a_child_process_holds_fails_when_the_worker_ends(tmp_path):
    (tmp_path / "resources").mkdir()
    (tmp_path / "resources" / "hold.py").write_text(HOLDING_CHILD)
    bolt = ShellBolt(sys.executable, "hold.py")
    with two_workers(bolt, 0, NO_TIMEOUTS, {"code_dir": tmp_path}) as cluster:
        (task,) = [o.task for o in cluster.engines[1].built if o.task.component == "end"]
        until(cluster, lambda: len(task._given) == 5)
        stop(cluster, 1)
        assert sorted(c.LOG["failed"]) == [0, 1, 2, 3, 4]
