"""`storm local --workers`: topologies in real worker processes, without a cluster."""

import importlib
import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest
from click.testing import CliRunner

from squall import TopologyBuilder
from squall._workers import LocalWorkers
from squall_cli.main import storm
from squall_common.config.load import default_conf
from squall_common.errors import SquallError

CODE = """
    import os
    from squall import Bolt, Spout

    class Numbers(Spout):
        outputs = ["n"]

        def __init__(self, count, folder):
            self.count, self.folder = count, folder

        def open(self, conf, context):
            if self.count < 0:
                raise OSError("no such source")
            self.n = 0
            note(self.folder, f"{os.getpid()} numbers")

        def next_tuple(self):
            if self.n < self.count:
                self.n += 1
                self.emit([self.n], message_id=self.n)

    class Sink(Bolt):
        def __init__(self, folder):
            self.folder = folder

        def prepare(self, conf, context):
            note(self.folder, f"{os.getpid()} sink")

        def execute(self, tup):
            if tup["n"] == 7:
                raise ValueError("seven")

    def note(folder, line):
        with open(os.path.join(folder, "pids"), "a") as file:
            file.write(line + "\\n")
"""


class Program:
    """A package with spouts and bolts that note the process in which they run."""

    def __init__(self, code: Path, folder: Path) -> None:
        self.code = code
        self.folder = folder
        self.module = importlib.import_module("local_numbers")

    def topology(self, count: int) -> Any:
        builder = TopologyBuilder()
        builder.spout("numbers", self.module.Numbers(count, str(self.folder)))
        builder.bolt("sink", self.module.Sink(str(self.folder)), parallelism=3).fields(
            "numbers", "n"
        )
        return builder.build()

    def pids(self, component: str) -> list[int]:
        lines = (self.folder / "pids").read_text().splitlines()
        return [int(line.split()[0]) for line in lines if line.endswith(component)]


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Program]:
    code, folder = tmp_path / "code", tmp_path / "notes"
    code.mkdir()
    folder.mkdir()
    (code / "local_numbers.py").write_text(dedent(CODE))
    monkeypatch.syspath_prepend(str(code))
    yield Program(code, folder)
    sys.modules.pop("local_numbers", None)


@pytest.fixture
def cluster(program: Program) -> Iterator[LocalWorkers]:
    cluster = LocalWorkers(2, code_dir=program.code)
    yield cluster
    cluster.shutdown()


def wait_until(cluster: LocalWorkers, condition: Any) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline, "the condition stayed false"
        cluster.wait(0.1)


def test_a_topology_runs_in_as_many_processes_and_its_counts_are_exact(
    program: Program, cluster: LocalWorkers, capfd: pytest.CaptureFixture[str]
) -> None:
    cluster.submit_topology("numbers", {}, program.topology(200))

    def finished() -> bool:
        totals, failed = cluster.counts("numbers")
        return totals["numbers"]["acked"] == 199 and failed == 1

    wait_until(cluster, finished)
    pids = {*program.pids("numbers"), *program.pids("sink")}
    assert len(pids) == 2
    assert os.getpid() not in pids
    totals, _ = cluster.counts("numbers")
    assert totals["numbers"] == {"emitted": 200, "transferred": 200, "acked": 199, "failed": 1}
    assert totals["sink"]["executed"] == 200
    assert [(e.component, e.headline) for e in cluster.errors("numbers")] == [
        ("sink", "ValueError: seven")
    ]
    cluster.shutdown()
    for pid in pids:
        assert not os.path.exists(f"/proc/{pid}")
    assert "[worker 2] " in capfd.readouterr().err


def test_a_worker_that_was_killed_is_started_again(
    program: Program, cluster: LocalWorkers, capfd: pytest.CaptureFixture[str]
) -> None:
    cluster.submit_topology("numbers", {}, program.topology(0))
    (before,) = program.pids("numbers")
    os.kill(before, signal.SIGKILL)
    wait_until(cluster, lambda: len(program.pids("numbers")) == 2)
    assert program.pids("numbers")[1] != before
    assert "was ended by SIGKILL; starting it again" in capfd.readouterr().err


def test_a_component_that_cannot_start_is_the_reason_given(
    program: Program, cluster: LocalWorkers
) -> None:
    with pytest.raises(SquallError, match=r"before its tasks ran: numbers: .*no such source"):
        cluster.submit_topology("numbers", {}, program.topology(-1))
    assert cluster.names() == []


def test_there_are_no_more_workers_than_executors(
    program: Program, capfd: pytest.CaptureFixture[str]
) -> None:
    cluster = LocalWorkers(9, code_dir=program.code)
    try:
        conf = {"topology.acker.executors": 0}
        cluster.submit_topology("numbers", conf, program.topology(0))
        assert len({*program.pids("numbers"), *program.pids("sink")}) == 4
    finally:
        cluster.shutdown()
    assert "numbers has 4 executors, so it gets 4 workers" in capfd.readouterr().err


def test_a_worker_reports_to_no_supervisor_and_misses_none(
    program: Program, capfd: pytest.CaptureFixture[str]
) -> None:
    conf = {**default_conf(), "task.heartbeat.frequency.secs": 1}
    cluster = LocalWorkers(2, conf, code_dir=program.code)
    try:
        cluster.submit_topology("numbers", {}, program.topology(0))
        cluster.wait(5)  # a worker of a cluster has asked Nimbus by then
    finally:
        cluster.shutdown()
    shown = capfd.readouterr().err
    assert "worker_running" in shown
    assert "_no_reports" not in shown


def test_a_worker_ends_with_the_program_that_started_it(
    program: Program, cluster: LocalWorkers
) -> None:
    cluster.submit_topology("numbers", {}, program.topology(0))
    (running,) = cluster._running.values()
    worker = running._workers[0]
    worker._ours.shutdown(2)  # as the kernel does when the program is killed
    assert worker._process.wait(30) == 0


def test_storm_local_with_workers_runs_them_and_reports_what_failed(
    program: Program, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (program.code / "main.py").write_text(
        dedent(
            f"""
            from local_numbers import Numbers, Sink
            from squall import TopologyBuilder, submit_topology

            if __name__ == "__main__":
                builder = TopologyBuilder()
                builder.spout("numbers", Numbers(50, {str(program.folder)!r}))
                builder.bolt("sink", Sink({str(program.folder)!r}), parallelism=2).shuffle(
                    "numbers")
                submit_topology("numbers", {{}}, builder.build())
            """
        )
    )
    arguments = ["local", "--workers", "2", "--local-ttl", "3", str(program.code), "main"]
    result = CliRunner().invoke(storm, arguments, standalone_mode=False)
    shown = capfd.readouterr().err
    assert result.return_value == 1, (result, shown)
    assert "numbers: numbers: emitted 50, transferred 50, acked 49, failed 1" in shown
    assert "sink: last errors: ValueError: seven" in shown
    assert "error: 1 message failed, and no replay succeeded" in shown
    pids = {*program.pids("numbers"), *program.pids("sink")}
    assert len(pids) == 2


ENDS = """
    from squall import Bolt, ReplayingSpout, TopologyBuilder, submit_topology

    class Orders(ReplayingSpout):
        outputs = ["n"]

        def open(self, conf, context):
            self.left = 30

        def next_message(self):
            if not self.left:
                return None
            self.left -= 1
            return [self.left]

        def exhausted(self):
            return not self.left

    class Pass(Bolt):
        outputs = ["n"]

        def prepare(self, conf, context):
            self.failed = set()

        def execute(self, tup):
            if tup["n"] not in self.failed:
                self.failed.add(tup["n"])
                raise ValueError("not yet")
            self.emit([tup["n"]])

    class Sink(Bolt):
        def execute(self, tup):
            pass

    if __name__ == "__main__":
        builder = TopologyBuilder()
        builder.spout("orders", Orders())
        builder.bolt("pass", Pass(), parallelism=2).fields("orders", "n")
        builder.bolt("sink", Sink(), parallelism=2).shuffle("pass")
        submit_topology("orders", {}, builder.build())
"""


@pytest.mark.parametrize("options", [[], ["--workers", "3"]], ids=["one process", "workers"])
def test_storm_local_ends_when_all_is_read_and_processed(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], options: list[str]
) -> None:
    (tmp_path / "job.py").write_text(dedent(ENDS))
    began = time.monotonic()
    arguments = ["local", "--local-ttl", "600", *options, str(tmp_path), "job"]
    result = CliRunner().invoke(storm, arguments, standalone_mode=False)
    shown = capfd.readouterr().err
    assert result.return_value == 0, (result, shown)
    assert time.monotonic() - began < 120
    assert "orders has finished: all input is read, and nothing is in flight" in shown
    assert "orders: sink: emitted 0, transferred 0, acked 30, failed 0, executed 30" in shown
