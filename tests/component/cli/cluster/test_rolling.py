"""`storm rolling-restart` against a Nimbus that keeps the lives of workers."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from tests.support.fake_nimbus import FakeNimbus, fake_nimbus

from squall_cli.cluster import rolling
from squall_cli.cluster.rolling import Life
from squall_cli.main import run
from squall_thrift import storm

EPOCH = 1_700_000_000


class Workers:
    """Two topologies' workers behind a fake Nimbus. A worker that is asked to restart is gone for
    three looks, and comes back with an age of zero."""

    def __init__(self, nimbus: FakeNimbus) -> None:
        self.now = EPOCH
        self.began: dict[tuple[str, str, int], int | None] = {
            ("count", "node-1", 6700): EPOCH - 100,
            ("count", "node-2", 6700): EPOCH - 90,
            ("alarms", "node-1", 6701): EPOCH - 80,
        }
        self.restarted: list[tuple[str, int]] = []
        self.stuck: set[tuple[str, int]] = set()
        self.pending: list[storm.ProfileRequest] = []
        self.errors: list[str] = []
        self.supervisors = ["node-1", "node-2"]
        self._looks = 0
        self._coming: tuple[str, str, int] | None = None
        nimbus.answers |= {
            "getClusterInfo": self.cluster,
            "getTopologySummaries": lambda: [self.summary(n) for n in ("count", "alarms")],
            "getTopologySummaryByName": self.summary,
            "getTopologyPageInfo": self.page,
            "setWorkerProfiler": self.ask,
            "getComponentPendingProfileActions": lambda *_: self.pending,
            "getTopologyInfoByNameWithOpts": lambda *_: storm.TopologyInfo(
                id="x", name="x", uptime_secs=1, executors=[], status="ACTIVE",
                errors={"__system": [storm.ErrorInfo(error=e, error_time_secs=1)
                                     for e in self.errors]},
            ),
        }  # fmt: skip

    def cluster(self) -> storm.ClusterSummary:
        supervisors = [
            storm.SupervisorSummary(
                host=f"host-{node}", uptime_secs=1, num_workers=2, num_used_workers=1,
                supervisor_id=node,
            )
            for node in self.supervisors
        ]  # fmt: skip
        return storm.ClusterSummary(supervisors=supervisors, topologies=[], nimbuses=[])

    def summary(self, name: str) -> storm.TopologySummary:
        return storm.TopologySummary(
            id=f"{name}-1-17", name=name, num_tasks=1, num_executors=1, num_workers=1,
            uptime_secs=1, status="ACTIVE",
        )  # fmt: skip

    def page(self, topology_id: str, *_: object) -> storm.TopologyPageInfo:
        self.now += 1
        if self._coming is not None and (self._coming[1], self._coming[2]) not in self.stuck:
            self._looks += 1
            if self._looks == 3:
                self.began[self._coming] = self.now
                self._coming = None
        workers = []
        for (name, node, port), began in self.began.items():
            if topology_id != f"{name}-1-17":
                continue
            workers.append(
                storm.WorkerSummary(
                    supervisor_id=node, host=f"host-{node}", port=port, topology_id=topology_id,
                    topology_name=name, num_executors=1, component_to_num_tasks={"words": 1},
                    time_secs=0 if began is None else self.now,
                    uptime_secs=0 if began is None else self.now - began,
                )
            )  # fmt: skip
        return storm.TopologyPageInfo(id=topology_id, workers=workers)

    def ask(self, topology_id: str, request: storm.ProfileRequest) -> None:
        assert self._coming is None, "one at a time"
        assert request.action is storm.ProfileAction.JVM_RESTART
        (port,) = request.nodeInfo.port or ()
        node = request.nodeInfo.node or ""
        self.restarted.append((node, port))
        if ("refuses", port) in self.stuck:
            self.errors.append(
                f"restart-{request.time_stamp} of worker host-{node}:{port}: no disk"
            )
            return
        self._looks = 0
        self._coming = (topology_id.partition("-")[0], node, port)


@pytest.fixture
def nimbus() -> Iterator[FakeNimbus]:
    with fake_nimbus() as nimbus:
        yield nimbus


@pytest.fixture
def workers(nimbus: FakeNimbus, monkeypatch: pytest.MonkeyPatch) -> Workers:
    monkeypatch.setattr(rolling, "_POLL_SECS", 0.001)
    return Workers(nimbus)


@pytest.fixture
def command(nimbus: FakeNimbus, capsys: pytest.CaptureFixture[str]) -> Callable[..., Any]:
    """Run the command against the fake: (status, stdout, stderr)."""

    def call(*arguments: str) -> tuple[int, str, str]:
        options = (f"{key}={json.dumps(value)}" for key, value in nimbus.conf.items())
        words = [word for option in options for word in ("-c", option)]
        status = run([*words, "rolling-restart", *arguments])
        captured = capsys.readouterr()
        return status, captured.out, captured.err

    return call


def test_each_worker_runs_again_before_the_next_is_restarted(
    workers: Workers, command: Any
) -> None:
    status, out, err = command("count")
    assert (status, out) == (0, "")
    assert workers.restarted == [("node-1", 6700), ("node-2", 6700)]
    first, second = err.splitlines()
    assert first.startswith("[1/2] host-node-1:6700 of count runs again after ")
    assert second.startswith("[2/2] host-node-2:6700 of count runs again after ")


def test_all_topologies_on_one_host(workers: Workers, command: Any) -> None:
    status, out, _ = command("--all", "--host", "host-node-1", "--json")
    assert status == 0
    assert workers.restarted == [("node-1", 6701), ("node-1", 6700)]
    assert [(one["topology"], one["worker"], one["result"]) for one in json.loads(out)] == [
        ("alarms", "host-node-1:6701", "restarted"),
        ("count", "host-node-1:6700", "restarted"),
    ]


def test_a_worker_that_does_not_come_back_stops_the_restart_of_others(
    workers: Workers, command: Any
) -> None:
    workers.stuck = {("node-1", 6700)}
    status, _, err = command("count", "--timeout", "1")
    assert status == 1
    assert "host-node-1:6700 of count: after 1 s it was not running again" in err
    assert "'storm get-errors count'" in err
    assert workers.restarted == [("node-1", 6700)]


def test_programs_learn_what_was_not_touched(workers: Workers, command: Any) -> None:
    workers.stuck = {("node-1", 6700)}
    status, out, _ = command("count", "--timeout", "1", "--json")
    assert status == 1
    first, second = json.loads(out)
    assert (first["result"], second["result"]) == ("failed", "waiting")
    assert "was not running again" in first["error"]


def test_a_failed_request_is_reported_with_its_reason(workers: Workers, command: Any) -> None:
    workers.stuck = {("refuses", 6700)}
    status, _, err = command("count")
    assert status == 1
    assert "host-node-1:6700 of count was not restarted: no disk" in err
    assert len(workers.restarted) == 1


def test_a_supervisor_that_does_nothing_is_named(workers: Workers, command: Any) -> None:
    node = storm.NodeInfo(node="node-1", port={6700})
    action = storm.ProfileAction.JVM_RESTART
    workers.pending = [storm.ProfileRequest(nodeInfo=node, action=action)]
    status, _, err = command("count", "--timeout", "1")
    assert status == 1
    assert "after 1 s its supervisor has not carried out the restart yet, but still may" in err


def test_nothing_is_restarted_while_a_supervisor_is_away(workers: Workers, command: Any) -> None:
    workers.supervisors = ["node-1"]
    status, _, err = command("count")
    assert status == 1
    assert "host-node-2:6700 could not be started again: no supervisor is known there" in err
    assert workers.restarted == []


def test_a_worker_that_moved_or_was_started_anew_needs_no_restart(
    workers: Workers, nimbus: FakeNimbus, command: Any
) -> None:
    workers.began["count", "node-3", 6701] = EPOCH - 10
    workers.supervisors.append("node-3")

    def ask_and_disturb(topology_id: str, request: storm.ProfileRequest) -> None:
        workers.ask(topology_id, request)
        workers.began["count", "node-3", 6700] = workers.began.pop(("count", "node-2", 6700))
        workers.began["count", "node-3", 6701] = workers.now

    nimbus.answers["setWorkerProfiler"] = ask_and_disturb
    status, _, err = command("count")
    assert status == 0
    assert workers.restarted == [("node-1", 6700)]
    assert "host-node-2:6700 of count was moved meanwhile" in err
    assert "host-node-3:6701 of count was already restarted meanwhile" in err


def test_a_missing_topology_is_reported(workers: Workers, nimbus: Any, command: Any) -> None:
    nimbus.answers["getTopologySummaryByName"] = storm.NotAliveException(msg="nope is not alive")
    status, _, err = command("nope")
    assert status == 1
    assert "nope is not alive" in err


@pytest.mark.parametrize("wholly", [False, True])
def test_a_topology_that_is_killed_meanwhile_does_not_end_the_restart_of_others(
    workers: Workers, nimbus: FakeNimbus, command: Any, wholly: bool
) -> None:
    killed: set[str] = set()

    def summary(name: str) -> storm.TopologySummary:
        if name in killed and wholly:
            raise storm.NotAliveException(msg=f"{name} is not alive")
        found = workers.summary(name)
        found.status = "KILLED" if name in killed else "ACTIVE"
        return found

    def ask(topology_id: str, request: storm.ProfileRequest) -> None:
        workers.ask(topology_id, request)
        killed.add("between")

    workers.began["between", "node-1", 6702] = EPOCH - 70
    nimbus.answers["getTopologySummaries"] = lambda: [
        workers.summary(name) for name in ("alarms", "between", "count")
    ]
    nimbus.answers |= {"getTopologySummaryByName": summary, "setWorkerProfiler": ask}
    status, out, err = command("--all")
    assert (status, out) == (0, "")
    assert workers.restarted == [("node-1", 6701), ("node-1", 6700), ("node-2", 6700)]
    assert "host-node-1:6702 of between needs no restart: the topology was killed" in err
    # Killed before it was looked at: not there for --all, an error when it is named.
    assert command("--all")[0] == 0
    status, _, err = command("between")
    assert status == 1
    assert ("not alive" if wholly else "being killed") in err


def test_the_topologies_have_to_be_named(workers: Workers, command: Any) -> None:
    for words in ((), ("count", "--all")):
        status, _, err = command(*words)
        assert status == 2
        assert "name the topologies, or use --all" in err


def test_a_host_without_workers_is_reported(workers: Workers, command: Any) -> None:
    status, _, err = command("count", "--host", "elsewhere")
    assert status == 1
    assert "count: no worker runs on elsewhere" in err
    assert command("--all", "--host", "elsewhere") == (0, "", "No worker runs on elsewhere.\n")


def life(time_secs: int, uptime_secs: int) -> Life | None:
    return Life.of(SimpleNamespace(time_secs=time_secs, uptime_secs=uptime_secs))


def test_a_life_is_distinguished_from_the_one_before() -> None:
    before = life(1000, 10)
    assert not life(1003, 13).follows(before)
    assert not life(1003, 14).follows(before)  # truncated to seconds
    assert life(1005, 0).follows(before)
    assert life(1005, 3).follows(before)
    assert not life(4605, 15).follows(before), "its clock was set"
    assert life(0, 0) is None, "nothing was reported yet"
