"""A real master and two real workers of Spark's, from the pip package: tasks run in processes that
are neither the driver nor its children, and get the package from Spark."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet as pq
import pyspark
import pytest
from tests.support.wheels import make_wheel

SPARK_CLASS = Path(pyspark.__file__).parent / "bin" / "spark-class"


def wait_in_log(log: Path, pattern: str, process: subprocess.Popen[bytes]) -> str:
    """The first group of a line that the process has logged."""
    deadline = time.monotonic() + 300
    while time.monotonic() < deadline:
        found = re.search(pattern, log.read_text())
        if found is not None:
            return found[1]
        assert process.poll() is None, log.read_text()
        time.sleep(0.1)
    raise AssertionError(f"{pattern} has not come:\n{log.read_text()}")


@pytest.fixture
def master(tmp_path: Path) -> Iterator[str]:
    """The URL of a master with two workers of one core, on loopback."""
    env = {
        **os.environ,
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_DAEMON_MEMORY": "256m",
        "SPARK_NO_DAEMONIZE": "1",
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_WORKER_DIR": str(tmp_path / "work"),
    }
    started: list[subprocess.Popen[bytes]] = []

    def start(
        name: str, *arguments: str, log: str | None = None
    ) -> tuple[Path, subprocess.Popen[bytes]]:
        log_file = tmp_path / f"{log or name}.log"
        command = [str(SPARK_CLASS), f"org.apache.spark.deploy.{name}", *arguments]
        with log_file.open("wb") as out:
            process = subprocess.Popen(
                command, env=env, stdout=out, stderr=out, cwd=tmp_path, start_new_session=True
            )
        started.append(process)
        return log_file, process

    try:
        ports = ("--host", "127.0.0.1", "--port", "0", "--webui-port", "0")
        log, process = start("master.Master", *ports)
        url = wait_in_log(log, r"Starting Spark master at (spark://\S+)", process)
        bound = re.search(r"'sparkMaster' on port (\d+)", log.read_text())
        if bound is not None:
            url = f"spark://127.0.0.1:{bound[1]}"
        worker = ("worker.Worker", *ports, "--cores", "1", "--memory", "512m", url)
        for log, process in [start(*worker, log=f"worker-{number}") for number in range(2)]:
            wait_in_log(log, r"(Successfully registered)", process)
        yield url
    finally:
        for process in reversed(started):
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGTERM)
        for process in started:
            try:
                process.wait(timeout=20)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()


FAULTS = """
import os, signal, sys, time
from pathlib import Path
import splitting
from squall import Bolt, Spout, TopologyBuilder, submit_topology

class Lines(Spout):
    outputs = ["text"]
    def next_tuple(self):
        pass

class Split(Bolt):
    outputs = ["word"]
    def execute(self, tup):
        for word in splitting.split(tup["text"]):
            self.emit([word])

class Count(Bolt):
    outputs = ["word", "count"]

    def __init__(self, folder):
        self.folder = folder

    def prepare(self, conf, context):
        self.counts, self.task = {}, context.this_task_index

    def first_time(self, what):
        try:
            Path(self.folder, what).touch(exist_ok=False)
        except FileExistsError:
            return False
        return True

    def execute(self, tup):
        if self.task == 0 and self.first_time("killed"):
            daemon = int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[1])
            executor = int(Path(f"/proc/{daemon}/stat").read_text().rpartition(")")[2].split()[1])
            os.kill(executor, signal.SIGKILL)
            time.sleep(60)
        if self.task == 3 and self.first_time("slow"):
            time.sleep(40)  # a second attempt needs a free slot on another host; else this ends
        self.counts[tup["word"]] = self.counts.get(tup["word"], 0) + 1

    def flush(self):
        for pair in self.counts.items():
            self.emit(list(pair))

if __name__ == "__main__":
    builder = TopologyBuilder()
    builder.spout("lines", Lines())
    builder.bolt("split", Split(), parallelism=2).shuffle("lines")
    builder.bolt("count", Count(sys.argv[1]), parallelism=6).fields("split", "word")
    submit_topology("faults", {}, builder.build())
"""


# What Spark's scheduler says when it gives a job up.
GIVEN_UP = "indeterminate output was failed and retried|to ensure data correctness"


@pytest.mark.timeout(900)
def test_a_lost_executor_and_a_slow_task_change_no_result(master: str, tmp_path: Path) -> None:
    """One task kills its executor; another is slow, so that Spark runs it a second time meanwhile
    if a slot is free. The job gives the right result, or Spark itself gives it up, it has written
    nothing, and the same command gives the result once the faults are over. The executors get the
    package and the wheels of its dependencies from Spark."""
    words = [f"w{n % 40}" for n in range(400)]
    (tmp_path / "in.txt").write_text("".join(f"{w} x\n" for w in words))
    for name in ("package", "marks"):
        (tmp_path / name).mkdir()
    (tmp_path / "package" / "faults.py").write_text(FAULTS)
    files = {"splitting.py": "def split(text):\n    return text.split()\n"}
    make_wheel(tmp_path / "wheels", "splitting", files=files)
    conf = {
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.memory": "512m",
        "spark.executor.memory": "512m",
        "spark.speculation": "true",
        "spark.speculation.interval": "100ms",
        "spark.speculation.quantile": "0.5",
        "spark.speculation.minTaskRuntime": "1s",
        "spark.task.reaper.enabled": "true",
        "spark.task.reaper.killTimeout": "5s",
    }

    def run() -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [
                *(sys.executable, "-m", "squall_cli.main", "spark", "run", "--master", master),
                *(part for pair in conf.items() for part in ("--spark-conf", "=".join(pair))),
                *("--input", "lines=in.txt", "--output", "count=out", "--wheels", "wheels"),
                *("package", "faults", str(tmp_path / "marks")),
            ],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=400,
        )

    done, log = run(), tmp_path / "spark.log"
    if done.returncode != 0:
        # Spark gives a job up when the input of a finished task is lost and may differ when it is
        # made again.
        said = [line for line in log.read_text().splitlines() if not line.startswith("\tat ")]
        assert re.search(GIVEN_UP, "\n".join(said)), "\n".join([done.stderr, *said])
        assert not (tmp_path / "out").exists()
        done = run()
    assert done.returncode == 0, done.stderr + (log.read_text()[-3000:] if log.exists() else "")
    assert {mark.name for mark in (tmp_path / "marks").iterdir()} == {"killed", "slow"}
    rows = Counter({r["word"]: r["count"] for r in pq.read_table(tmp_path / "out").to_pylist()})
    assert rows == Counter([*words, *["x"] * len(words)])
    assert list((tmp_path / "work").glob("app-*/*/squall-*/code/faults.py"))
    assert list((tmp_path / "work").glob("app-*/*/squall-wheels-*/environment/site/splitting.py"))
    # Tasks that ran twice are counted once.
    assert "wrote 41 tuples of 'count'" in done.stderr
    assert "count: took 800 tuples, emitted 41" in done.stderr
