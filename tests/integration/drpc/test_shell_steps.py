"""Shell bolts as steps of a linear DRPC topology, in local mode with real children."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from tests.support.shells import PACKAGE

from squall import Bolt, LocalCluster, ShellBolt
from squall_drpc import BatchBolt, LinearDRPCTopologyBuilder, LocalDRPC

pytestmark = pytest.mark.integration


@pytest.fixture(autouse=True)
def _as_in_a_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    api = Path(__file__).resolve().parents[3] / "api"
    path = os.pathsep.join(filter(None, [str(api), os.environ.get("PYTHONPATH")]))
    monkeypatch.setenv("PYTHONPATH", path)
    monkeypatch.setenv("PYTHONUNBUFFERED", "1")


class Lines(Bolt):
    outputs = ["id", "line"]

    def execute(self, tup: Any) -> None:
        for line in tup[1].split("|"):
            self.emit([tup[0], line])


class Join(BatchBolt):
    outputs = ["id", "words"]

    def prepare(self, conf: Mapping[str, Any], context: Any) -> None:
        self.words: list[str] = []

    def execute(self, tup: Any) -> None:
        self.words.append(tup[1])

    def finish_batch(self) -> None:
        self.emit([self.request_id, " ".join(sorted(self.words))])


def split() -> ShellBolt:
    return ShellBolt(sys.executable, "drpc_split.py", outputs=["id", "word"])


@pytest.mark.parametrize("place", ["first", "middle", "only"])
def test_a_shell_bolt_is_a_step(place: str) -> None:
    """The steps after it begin to finish a request when the child has acked all of it."""
    builder = LinearDRPCTopologyBuilder("words")
    if place == "middle":
        builder.add_bolt(Lines())
        builder.add_bolt(split(), 2).shuffle()
    else:
        builder.add_bolt(split(), 2)
    if place != "only":
        builder.add_bolt(Join()).fields("id")
    with LocalDRPC() as drpc, LocalCluster(code_dir=str(PACKAGE)) as cluster:
        conf = {"topology.message.timeout.secs": 600}
        cluster.submit_topology("words", conf, builder.create_local_topology(drpc))
        if place == "only":
            assert drpc.submit("words", "one").result(60) == "ONE"
        else:
            asked = [drpc.submit("words", f"a{n} b|c{n}") for n in range(20)]
            expected = [f"A{n} B C{n}" if place == "middle" else f"A{n} B|C{n}" for n in range(20)]
            assert [one.result(60) for one in asked] == expected
        for text in ("bad", "die"):
            failing = drpc.submit("words", text)
            assert "the topology failed the request" in str(
                failing.exception(60)
            )  # not at the message timeout
        engine = cluster._topologies._running["words"].engine
        users = [one.task.user for one in engine.built]
        steps = [user.wrapper for user in users if hasattr(user, "wrapper")]
        assert len(steps) == 2
        assert [len(step.coordination) for step in steps] == [0, 0], "nothing is left open"
        cluster.kill_topology("words", 0)
