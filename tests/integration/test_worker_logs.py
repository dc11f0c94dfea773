"""What components print and log, in the log of their worker; levels that change while they run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.support.devcluster import DevCluster, wait_for
from tests.support.live_files import found

from squall_thrift import storm
from squall_thrift.protocol.messages import ThriftApplicationError

pytestmark = pytest.mark.integration

TOPOLOGY = """
import logging

from squall import Bolt, Spout, TopologyBuilder, submit_topology

log = logging.getLogger("mine")


class Beats(Spout):
    outputs = ["n"]
    n = 0

    def open(self, conf, context):
        print("opened with password=hunter2")

    def next_tuple(self):
        self.n += 1
        self.emit([self.n])


class Loud(Bolt):
    outputs = []

    def execute(self, tup):
        if tup["n"] % 50 == 0:
            print("got", tup["n"])
            log.debug("at length\\x1b[2J %s", tup["n"])


if __name__ == "__main__":
    builder = TopologyBuilder()
    builder.spout("beats", Beats()).conf({"topology.sleep.spout.wait.strategy.time.ms": 1})
    builder.bolt("loud", Loud()).shuffle("beats")
    submit_topology("logged", {}, builder.build())
"""


def level(target: str, secs: int) -> storm.LogLevel:
    return storm.LogLevel(
        action=storm.LogLevelAction.UPDATE,
        target_log_level=target,
        reset_log_level_timeout_secs=secs,
    )


def test_prints_and_levels_of_a_topology_that_runs(tmp_path: Path) -> None:
    package = tmp_path / "package"
    package.mkdir()
    (package / "flow.py").write_text(TOPOLOGY)
    overrides = ["storm.log.format=json", "task.refresh.poll.secs=1"]
    with DevCluster.start(tmp_path / "cluster", overrides=overrides) as cluster:
        cluster.storm("jar", package, "flow")

        def lines(logger: str) -> list[dict[str, Any]]:
            (file,) = found(tmp_path / "cluster", "worker.log")
            whole = file.read_text().rpartition("\n")[0].splitlines()
            return [one for one in map(json.loads, whole) if one["logger"] == logger]

        def printed() -> dict[str, dict[str, Any]] | None:
            if not found(tmp_path / "cluster", "worker.log"):
                return None
            by_text = {one["message"]: one for one in lines("stdout")}
            return by_text if "got 50" in by_text else None

        by_text = wait_for("what the bolt prints", printed)
        assert (by_text["got 50"]["component"], by_text["got 50"]["level"]) == ("loud", "INFO")
        assert by_text["opened with password=*****"]["component"] == "beats"

        assert not lines("mine")
        with pytest.raises(ThriftApplicationError, match="'LOUD' is not a log level"):
            cluster.call("setLogConfig", "logged", _config(mine=level("LOUD", 5)))
        cluster.call("setLogConfig", "logged", _config(mine=level("DEBUG", 4)))
        (first, *_) = wait_for("lines below INFO", lambda: lines("mine"))
        assert (first["component"], first["level"]) == ("loud", "DEBUG")
        assert first["message"].startswith("at length\x1b[2J ")
        (file,) = found(tmp_path / "cluster", "worker.log")
        assert "\x1b" not in file.read_text()

        own = "squall_worker.report.log_levels"
        wait_for(
            "the level of before",
            lambda: [one for one in lines(own) if one["message"] == "log_level_reset"],
        )
        before = lines("mine")[-1]["message"]
        later = len(lines("stdout"))
        wait_for("more prints", lambda: len(lines("stdout")) > later + 5)
        assert lines("mine")[-1]["message"] == before
        cluster.kill("logged")
        cluster.wait_gone("logged")


def _config(**levels: storm.LogLevel) -> storm.LogConfig:
    return storm.LogConfig(named_logger_level=levels)
