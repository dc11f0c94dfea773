"""Apache Storm from its published Java artifacts: a real cluster of JVMs on this machine, in the
build folder. Resolved by Maven, never part of the repository.

    with StormCluster.start(folder) as cluster:
        cluster.submit_words("one", lines_file, results, workers=1, pending=2_000, tuned=True)
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import yaml

from bench.peers.tools import UnavailableError, run_tool

VERSION = "2.8.3"  # 2.8.4 and later lack artifacts that this needs
HERE = Path(__file__).resolve().parent / "storm"
_MAIN = "squall.bench.WordCount"
_CONSTANT = "squall.bench.Constant"
_START_SECS = 90.0
_DEPENDENCY_PLUGIN = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy-dependencies"


def install(home: Path) -> None:
    """The jars, our topology among them, into `home`. Raises UnavailableError."""
    missing = [tool for tool in ("mvn", "java", "javac", "jar") if shutil.which(tool) is None]
    if missing:
        raise UnavailableError(f"not found: {', '.join(missing)}")
    for artifact, name in (("storm-server", "lib"), ("storm-client", "lib-worker")):
        target = home / name
        if target.exists():
            continue
        target.parent.mkdir(parents=True, exist_ok=True)
        fresh = home / f".{name}"
        shutil.rmtree(fresh, ignore_errors=True)
        pom = home / f"{artifact}.xml"
        pom.write_text(_POM.format(artifact=artifact, version=VERSION))
        command = ["mvn", "-q", "-B", "-f", str(pom), _DEPENDENCY_PLUGIN]
        command += ["-DincludeScope=runtime", f"-DoutputDirectory={fresh}"]
        run_tool(command, f"Maven, {artifact} {VERSION}", 600)
        fresh.rename(target)
    classes = home / "classes"
    shutil.rmtree(classes, ignore_errors=True)
    classes.mkdir()
    sources = sorted(map(str, HERE.glob("*.java")))
    run_tool(["javac", "-cp", f"{home}/lib-worker/*", "-d", str(classes), *sources], "javac", 120)
    run_tool(["jar", "cf", str(home / "topology.jar"), "-C", str(classes), "."], "jar", 60)
    (home / "log4j2").mkdir(exist_ok=True)
    for name in ("cluster.xml", "worker.xml"):
        (home / "log4j2" / name).write_text(_LOG4J2)


def free_ports(count: int) -> list[int]:
    sockets = [socket.socket() for _ in range(count)]
    try:
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]
    finally:
        for one in sockets:
            one.close()


class StormCluster:
    """ZooKeeper, Nimbus and a supervisor with two slots."""

    def __init__(self, home: Path, folder: Path) -> None:
        self.home = home
        self.folder = folder
        self._children: list[subprocess.Popen[bytes]] = []
        self._ports = free_ports(5)

    @classmethod
    @contextlib.contextmanager
    def start(cls, home: Path, folder: Path) -> Iterator[StormCluster]:
        """`home` is where `install` put it; everything that this run writes is in `folder`. Raises
        UnavailableError when it does not come up."""
        cluster = cls(home, folder)
        try:
            cluster._start()
            yield cluster
        finally:
            cluster.stop()

    def _start(self) -> None:
        zookeeper, nimbus = self._ports[:2]
        (self.folder / "zookeeper").mkdir(parents=True)
        (self.folder / "zoo.cfg").write_text(
            f"dataDir={self.folder}/zookeeper\nclientPort={zookeeper}\n"
            "clientPortAddress=127.0.0.1\nadmin.enableServer=false\ntickTime=2000\n"
        )
        shaded = "org.apache.storm.shade.org.apache.zookeeper.server.ZooKeeperServerMain"
        self._java("zookeeper", shaded, str(self.folder / "zoo.cfg"), heap="128m")
        self._wait_for_port(zookeeper, "ZooKeeper")
        self._java("nimbus", "org.apache.storm.daemon.nimbus.Nimbus", heap="512m")
        self._wait_for_port(nimbus, "Nimbus")
        self._java("supervisor", "org.apache.storm.daemon.supervisor.Supervisor", heap="256m")

    def _conf_dir(self, daemon: str) -> Path:
        zookeeper, nimbus, supervisor, *slots = self._ports
        conf = {
            "storm.zookeeper.servers": ["127.0.0.1"],
            "storm.zookeeper.port": zookeeper,
            "nimbus.seeds": ["127.0.0.1"],
            "nimbus.thrift.port": nimbus,
            "nimbus.monitor.freq.secs": 2,
            "storm.local.hostname": "127.0.0.1",
            "storm.local.dir": str(self.folder / daemon),
            "supervisor.thrift.port": supervisor,
            "supervisor.slots.ports": slots,
            "supervisor.memory.capacity.mb": 8192.0,
            "supervisor.cpu.capacity": 800.0,
            "storm.log4j2.conf.dir": str(self.home / "log4j2"),
            "worker.childopts": "-Xmx1024m",
        }
        folder = self.folder / f"conf-{daemon}"
        folder.mkdir(exist_ok=True)
        (folder / "storm.yaml").write_text(yaml.safe_dump(conf))
        return folder

    def _command(self, daemon: str, heap: str, *extra: str) -> list[str]:
        conf = self._conf_dir(daemon)
        logs = self.folder / "logs"
        logs.mkdir(exist_ok=True)
        return [
            "java", f"-Xmx{heap}", f"-Dstorm.home={self.home}", f"-Dstorm.log.dir={logs}",
            f"-Dlogfile.name={daemon}.log", f"-Dstorm.conf.file={conf}/storm.yaml",
            f"-Dlog4j2.configurationFile={self.home}/log4j2/cluster.xml", *extra,
            "-cp", f"{conf}:{self.home}/lib/*:{self.home}/topology.jar",
        ]  # fmt: skip

    def _environment(self, daemon: str) -> dict[str, str]:
        return {**os.environ, "STORM_CONF_DIR": str(self._conf_dir(daemon))}

    def _java(self, daemon: str, main: str, *arguments: str, heap: str) -> None:
        command = [*self._command(daemon, heap), main, *arguments]
        with (self.folder / f"{daemon}.out").open("wb") as output:
            self._children.append(
                subprocess.Popen(
                    command,
                    env=self._environment(daemon),
                    cwd=self.folder,
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                )
            )

    def _wait_for_port(self, port: int, what: str) -> None:
        deadline = time.monotonic() + _START_SECS
        while time.monotonic() < deadline:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
                return
            if (status := self._children[-1].poll()) is not None:
                raise UnavailableError(f"{what} ended with status {status}; see {self.folder}")
            time.sleep(0.2)
        raise UnavailableError(f"{what} does not answer after {_START_SECS:.0f} s")

    def submit_words(
        self, name: str, lines: Path, results: Path, *, workers: int, pending: int, tuned: bool
    ) -> None:
        self._submit(_MAIN, name, str(lines), str(results), str(workers), str(pending), str(tuned))

    def submit_constant(self, name: str, results: Path) -> None:
        self._submit(_CONSTANT, name, str(results))

    def _submit(self, main: str, *arguments: str) -> None:
        jar = self.home / "topology.jar"
        command = self._command("client", "256m", f"-Dstorm.jar={jar}")
        result = subprocess.run(
            [*command, main, *arguments],
            env=self._environment("client"),
            cwd=self.folder,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        if result.returncode != 0:
            tail = (result.stdout + result.stderr).strip().splitlines()[-3:]
            raise UnavailableError(f"submitting failed: {' '.join(tail)}")

    def kill(self, name: str) -> None:
        """End a topology, and wait until its workers are gone."""
        command = self._command("client", "256m")
        with contextlib.suppress(subprocess.TimeoutExpired):
            subprocess.run(
                [*command, _MAIN, name],
                env=self._environment("client"),
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=60,
                check=False,
            )
        deadline = time.monotonic() + 60
        while self.workers() and time.monotonic() < deadline:
            time.sleep(0.5)

    def workers(self) -> list[psutil.Process]:
        """The worker JVMs, without their log writers, which carry the same command line."""
        found = []
        for process in self._processes():
            with contextlib.suppress(psutil.Error):
                command = process.cmdline()
                if "org.apache.storm.daemon.worker.Worker" in command and (
                    "org.apache.storm.LogWriter" not in command
                ):
                    found.append(process)
        return found

    def _processes(self) -> list[psutil.Process]:
        """All that names the folder of this run."""
        found = []
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                if process.pid != os.getpid() and any(
                    str(self.folder) in word for word in process.cmdline()
                ):
                    found.append(process)
        return found

    def stop(self) -> None:
        """End everything, by process id."""
        for child in reversed(self._children):
            child.terminate()
        for child in self._children:
            try:
                child.wait(10)
            except subprocess.TimeoutExpired:
                child.kill()
                child.wait()
        # Workers outlive their supervisor.
        for process in self._processes():
            if "java" in Path(process.name()).name:
                with contextlib.suppress(psutil.Error):
                    process.send_signal(signal.SIGKILL)


_POM = """\
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>squall.bench</groupId>
  <artifactId>peer</artifactId>
  <version>1</version>
  <packaging>pom</packaging>
  <dependencies>
    <dependency>
      <groupId>org.apache.storm</groupId>
      <artifactId>{artifact}</artifactId>
      <version>{version}</version>
    </dependency>
  </dependencies>
</project>
"""

_LOG4J2 = """\
<Configuration status="warn">
  <Appenders>
    <File name="file" fileName="${sys:storm.log.dir}/${sys:logfile.name:-worker.log}">
      <PatternLayout pattern="%d %c{1.} [%p] %m%n"/>
    </File>
  </Appenders>
  <Loggers>
    <Root level="warn"><AppenderRef ref="file"/></Root>
  </Loggers>
</Configuration>
"""
