"""A real ZooKeeper server for development and tests, as one child process on loopback.

The server comes from installed jars: those that PySpark ships, else Debian's package.
Its data survives a restart on the same folder and port, sessions included.
"""

from __future__ import annotations

import asyncio
import importlib.util
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

from squall_common.daemon.files import write_atomic
from squall_common.daemon.logs import get_logger
from squall_common.daemon.ports import free_ports
from squall_common.errors import SquallError

log = get_logger(__name__)

# snappy is not optional: without it the server stays up, answers `ruok`, and never serves.
_JARS = ("zookeeper-jute", "zookeeper", "slf4j-api", "metrics-core", "snappy-java")

_DEBIAN_JAR = Path("/usr/share/java/zookeeper.jar")

# Without these three it logs nothing.
_LOG_JARS = ("log4j-api", "log4j-core", "log4j-slf4j2-impl")

_LOG_CONFIG = """\
status = error
appender.out.type = Console
appender.out.name = out
appender.out.layout.type = PatternLayout
appender.out.layout.pattern = %d{yyyy-MM-dd HH:mm:ss.SSS} %-5p %c{1} %m%n
rootLogger.level = warn
rootLogger.appenderRef.out.ref = out
"""

# A small, quick server: up in 0.2 s with 52 MB.
_JAVA_FLAGS = (
    "-Xms16m",
    "-Xmx64m",
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-Xshare:auto",
    "-XX:-UsePerfData",
    "-Xss256k",
    "-XX:ReservedCodeCacheSize=16m",
    "-XX:MaxMetaspaceSize=64m",
)

_MAIN = "org.apache.zookeeper.server.ZooKeeperServerMain"

# How often a stopping server is checked.
_STOP_LOOK_SECS = 0.001

_FOUR_LETTER_WORDS = "srvr,mntr,envi,ruok,cons,conf"


def find_java() -> str:
    """The `java` to run: from JAVA_HOME, else from PATH. Raises SquallError if there is none."""
    home = os.environ.get("JAVA_HOME")
    if home and (Path(home) / "bin" / "java").is_file():
        return str(Path(home) / "bin" / "java")
    found = shutil.which("java")
    if found is None:
        raise SquallError(
            "ZooKeeper needs Java, but `java` was not found on this machine",
            hint="Install it: sudo apt-get install openjdk-17-jre-headless",
        )
    return found


def find_classpath() -> str:
    """The class path of a ZooKeeper server. Raises SquallError that names the command to install
    one."""
    # find_spec does not import PySpark, which would take a second.
    spec = importlib.util.find_spec("pyspark")
    for place in spec.submodule_search_locations or () if spec else ():
        jars = [_newest(Path(place) / "jars", name) for name in _JARS]
        if all(jars):
            jars += [_newest(Path(place) / "jars", name) for name in _LOG_JARS]
            return os.pathsep.join(str(jar) for jar in jars if jar is not None)
    if _DEBIAN_JAR.is_file():
        return os.pathsep.join(["/etc/zookeeper/conf_example", str(_DEBIAN_JAR)])
    raise SquallError(
        "no ZooKeeper server was found on this machine",
        hint=f"Install one: {sys.executable} -m pip install pyspark\n"
        "or: sudo apt-get install zookeeper",
    )


def _newest(folder: Path, name: str) -> Path | None:
    """`NAME-VERSION.jar`; the digit keeps zookeeper apart from zookeeper-jute."""
    return max(folder.glob(f"{name}-[0-9]*.jar"), default=None)


class DevZooKeeper:
    """One server, which may be started again after it was stopped or killed.

    `port` 0 chooses a free one, and keeps it over restarts. `tick_ms` is ZooKeeper's tick: session
    timeouts are between 2 and 20 ticks. `data_dir` also holds the log, `zookeeper.log`.
    """

    def __init__(
        self, data_dir: Path, *, port: int = 0, host: str = "127.0.0.1", tick_ms: int = 2000
    ) -> None:
        self.data_dir = data_dir
        self.host = host
        self.port = port
        self.tick_ms = tick_ms
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str:
        """`host:port`, for clients."""
        return f"{self.host}:{self.port}"

    @property
    def pid(self) -> int | None:
        """None when the server does not run."""
        process = self._process
        return process.pid if process is not None and process.poll() is None else None

    @property
    def log_file(self) -> Path:
        return self.data_dir / "zookeeper.log"

    def prepare(self) -> list[str]:
        """Write the server's configuration and return its command line, for a caller that starts
        and watches the process itself. Raises SquallError as `start` does, but for the last."""
        java, classpath = find_java(), find_classpath()
        self.data_dir.mkdir(parents=True, exist_ok=True)
        self.port = _check_port(self.host, self.port)
        config = self.data_dir / "zoo.cfg"
        write_atomic(config, self._config().encode())
        log_config = self.data_dir / "log4j2.properties"
        write_atomic(log_config, _LOG_CONFIG.encode())
        return [
            java,
            *_JAVA_FLAGS,
            f"-Dlog4j2.configurationFile={log_config}",
            "-cp",
            classpath,
            _MAIN,
            str(config),
        ]

    async def start(self, timeout_secs: float = 30.0) -> None:
        """Start the server and wait until it serves.

        Raises SquallError when it cannot: no Java, no jars, the port in use, or no answer in time.
        """
        if self.pid is not None:
            return
        self._process = self._launch(self.prepare())
        try:
            await self._wait_serving(timeout_secs)
        except BaseException:
            self.kill()
            raise
        log.info("zookeeper_started", address=self.address, pid=self.pid, data_dir=self.data_dir)

    async def stop(self, timeout_secs: float = 10.0) -> None:
        """Stop the server with SIGTERM, then with SIGKILL. Does nothing if it does not run."""
        process = self._process
        if process is None:
            return
        if process.poll() is None:
            process.send_signal(signal.SIGCONT)  # a paused server could not exit
            process.terminate()
            try:
                await asyncio.to_thread(process.wait, timeout_secs)
            except subprocess.TimeoutExpired:
                log.warning("zookeeper_killed", pid=process.pid)
        self.kill()

    def kill(self) -> None:
        """Send SIGKILL and wait for the exit."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def send_signal(self, number: int) -> None:
        """For tests: SIGSTOP and SIGCONT. Raises ProcessLookupError when it does not run. After
        SIGSTOP this waits until it has stopped: on a busy machine a thread may go on answering for
        a while."""
        if self.pid is None:
            raise ProcessLookupError("the ZooKeeper server does not run")
        os.kill(self.pid, number)
        while number == signal.SIGSTOP and not _stopped(self.pid):
            time.sleep(_STOP_LOOK_SECS)

    async def ask(self, word: str, timeout_secs: float = 1.0) -> str:
        """The answer to a four-letter word. Raises OSError (TimeoutError among them) when there is
        none: a server that is starting may take the connection and never answer on it."""
        async with asyncio.timeout(timeout_secs):
            reader, writer = await asyncio.open_connection(self.host, self.port)
            try:
                writer.write(word.encode())
                return (await reader.read()).decode(errors="replace")
            finally:
                writer.transport.abort()

    def _config(self) -> str:
        # Rather few snapshots: a development server writes little. autopurge keeps three of them.
        return (
            f"tickTime={self.tick_ms}\n"
            f"dataDir={self.data_dir}\n"
            f"clientPort={self.port}\n"
            f"clientPortAddress={self.host}\n"
            "maxClientCnxns=0\n"
            "admin.enableServer=false\n"
            f"4lw.commands.whitelist={_FOUR_LETTER_WORDS}\n"
            "autopurge.snapRetainCount=3\n"
            "autopurge.purgeInterval=1\n"
        )

    def _launch(self, argv: list[str]) -> subprocess.Popen[bytes]:
        with self.log_file.open("ab") as output:
            return subprocess.Popen(
                argv,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                cwd=self.data_dir,
                start_new_session=True,  # Ctrl-C is for us; we stop it in our own order
            )

    async def _wait_serving(self, timeout_secs: float) -> None:
        assert self._process is not None
        try:
            async with asyncio.timeout(timeout_secs):
                while not await self._serving():
                    if self._process.poll() is not None:
                        raise SquallError(
                            f"ZooKeeper exited at once with status {self._process.returncode}",
                            hint=f"{self._last_words()}See {self.log_file}",
                        )
                    await asyncio.sleep(0.02)
        except TimeoutError:
            raise SquallError(
                f"ZooKeeper on {self.address} did not serve within {timeout_secs} s",
                hint=f"{self._last_words()}See {self.log_file}",
            ) from None

    async def _serving(self) -> bool:
        """Whether it serves: only then it has a `Mode:`; `ruok` proves nothing."""
        try:
            return "Mode:" in await self.ask("srvr")
        except OSError:
            return False

    def _last_words(self) -> str:
        try:
            lines = self.log_file.read_text(errors="replace").splitlines()[-5:]
        except OSError:
            return ""
        return "".join(f"  {line}\n" for line in lines)


def _stopped(pid: int) -> bool:
    """Whether no thread of a process runs on."""
    for stat in Path(f"/proc/{pid}/task").glob("*/stat"):
        try:
            state = stat.read_text().rpartition(") ")[2][0]
        except OSError:
            continue  # the thread has ended
        if state not in "TtZX":
            return False
    return True


def _check_port(host: str, port: int) -> int:
    """The port, or a free one for 0, which no outgoing connection takes while the server is down.
    Raises SquallError when it is in use."""
    if not port:
        (port,) = free_ports(1)
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            raise SquallError(
                f"ZooKeeper cannot listen on {host}:{port}: {error.strerror}",
                hint="Stop the program that uses the port, or choose another port.",
            ) from error
    return port
