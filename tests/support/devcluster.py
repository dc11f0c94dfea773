"""Real clusters for tests: `storm dev` as a user runs it, and commands against it.

    with DevCluster.start(tmp_path, supervisors=2) as cluster:
        cluster.storm("list")

Leaving the block ends the cluster with SIGTERM and requires that it ended well and left no process.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from tests.leftovers import left_behind, processes_of
from tests.support.held_loops import held_loops_in
from tests.support.live_files import found

ROOT = Path(__file__).resolve().parent.parent.parent
STORM = [sys.executable, "-P", "-m", "squall_cli.main"]
EXAMPLES = ROOT / "examples"

_T = TypeVar("_T")
_POLL_SECS = 0.05
_tries = itertools.count(1)


def wait_for(
    what: str,
    probe: Callable[[], _T | None],
    timeout_secs: float = 60.0,
    poll_secs: float = _POLL_SECS,
) -> _T:
    """The first result of `probe` that is true, so neither empty nor zero; AssertionError after
    the timeout, with the last one. `wait_empty` waits for the opposite."""
    deadline = time.monotonic() + timeout_secs
    while True:
        if result := probe():
            return result
        if time.monotonic() >= deadline:
            raise AssertionError(f"waited {timeout_secs:.0f} s for {what}; last: {result!r}")
        time.sleep(poll_secs)


def wait_empty(
    what: str, probe: Callable[[], Collection[object]], timeout_secs: float = 60.0
) -> None:
    """Until `probe` gives nothing; AssertionError that lists what is there after the timeout."""
    deadline = time.monotonic() + timeout_secs
    while left := probe():
        if time.monotonic() >= deadline:
            shown = "\n  ".join(map(str, left))
            raise AssertionError(f"{what}: left after {timeout_secs:.0f} s:\n  {shown}")
        time.sleep(0.2)


@contextlib.contextmanager
def stopped(pid: int) -> Iterator[None]:
    """The process stands still meanwhile."""
    os.kill(pid, signal.SIGSTOP)
    try:
        stat = Path(f"/proc/{pid}/stat")
        wait_for("it to stand still", lambda: stat.read_text().rpartition(") ")[2][0] == "T")
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


def wait_dead(*pids: int, timeout_secs: float = 60.0) -> None:
    """Until none of these processes runs."""
    wait_empty("processes", lambda: [pid for pid in pids if is_alive(pid)], timeout_secs)


def environment() -> dict[str, str]:
    """The environment of commands: that of the tests, with the source tree's packages first, so
    that the tests run installed and not."""
    folders = (
        "api",
        "common",
        "engine",
        "thrift",
        "nimbus",
        "supervisor",
        "worker",
        "drpc",
        "connectors",
        "ui",
        "pipeline",
        "cli",
    )
    path = os.pathsep.join(str(ROOT / folder) for folder in folders)
    return {
        **{k: v for k, v in os.environ.items() if not k.startswith(("STORM_", "SQUALL_"))},
        "PYTHONPATH": path,
        "COLUMNS": "200",
    }


def storm(
    *arguments: str | Path,
    timeout_secs: float = 110.0,
    check: bool = False,
    cwd: Path | None = None,
) -> subprocess.CompletedProcess[str]:
    """Run one `storm` command line to its end."""
    result = subprocess.run(
        [*STORM, *map(str, arguments)],
        env=environment(),
        cwd=cwd or ROOT,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=timeout_secs,
        check=False,
    )
    if check:
        assert result.returncode == 0, f"storm {arguments}: {result.stdout}\n{result.stderr}"
    return result


def fresh_name(kind: str) -> str:
    """A name that no other try of a test has used: what a failed one left is in nobody's way."""
    return f"{kind}-{next(_tries)}"


def is_alive(pid: int) -> bool:
    """Whether a process runs (one that waits for its parent to notice its end does not)."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return stat.rpartition(")")[2].split()[0] not in ("Z", "X")


class DevCluster:
    """A running `storm dev`."""

    def __init__(
        self, process: subprocess.Popen[str], data_dir: Path, state: dict[str, Any]
    ) -> None:
        self.process = process
        self.data_dir = data_dir
        self.conf_file = Path(state["conf_file"])
        self.first_state = state

    @classmethod
    @contextlib.contextmanager
    def start(
        cls,
        data_dir: Path,
        *,
        supervisors: int = 1,
        slots: int = 2,
        overrides: Sequence[str] = (),
        python: str = sys.executable,
        env: Mapping[str, str] | None = None,
        secure: bool = False,
    ) -> Iterator[DevCluster]:
        """Start a cluster on free ports, and end it with the block. Fails when it leaves a
        process, or ends with another status than 0."""
        cluster = cls.launch(
            data_dir,
            supervisors=supervisors,
            slots=slots,
            overrides=overrides,
            python=python,
            env=env,
            secure=secure,
        )
        try:
            yield cluster
            status = cluster.stop()
            left = left_behind(data_dir)
            assert status == 0, cluster.messages()
            held = held_loops_in(data_dir / "logs")
            assert not held, "a daemon's loop was held:\n" + "\n".join(held)
            assert not left, f"processes left behind: {left}"
        except BaseException:
            sys.stderr.write(cluster.logs())
            raise
        finally:
            cluster.destroy()

    @classmethod
    def launch(
        cls,
        data_dir: Path,
        *,
        supervisors: int,
        slots: int,
        overrides: Sequence[str] = (),
        python: str = sys.executable,
        env: Mapping[str, str] | None = None,
        secure: bool = False,
    ) -> DevCluster:
        data_dir.mkdir(parents=True, exist_ok=True)
        options = [word for override in overrides for word in ("-c", override)]
        options += ["--secure"] if secure else []
        with (data_dir / "storm-dev.err").open("ab") as messages:
            process = subprocess.Popen(
                [
                    python,
                    *STORM[1:],
                    "dev",
                    "--json",
                    "--free-ports",
                    "--data-dir",
                    str(data_dir),
                    "--supervisors",
                    str(supervisors),
                    "--slots",
                    str(slots),
                    *options,
                ],
                env=environment() if env is None else env,
                cwd=ROOT,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=messages,
                text=True,
                start_new_session=True,
            )
        assert process.stdout is not None
        line = process.stdout.readline()  # ends, too, when the command does
        if not line:
            process.stdout.close()
            status = process.wait()
            text = (data_dir / "storm-dev.err").read_text()
            raise AssertionError(f"storm dev ended with status {status}:\n{text}")
        return cls(process, data_dir, json.loads(line))

    def stop(self, signal_number: int = signal.SIGTERM) -> int:
        """End it as a user does; return its status."""
        if self.process.poll() is None:
            self.process.send_signal(signal_number)
        assert self.process.stdout is not None
        self.process.stdout.close()
        return self.process.wait(timeout=60)

    def destroy(self) -> None:
        """End whatever is left, without asking."""
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        if self.process.stdout is not None:
            self.process.stdout.close()
        for pid in processes_of(self.data_dir):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    # What it is ---------------------------------------------------------------------------------

    def state(self) -> dict[str, Any]:
        """Ports and process ids as they are now."""
        value: dict[str, Any] = json.loads((self.data_dir / "cluster.json").read_bytes())
        return value

    def messages(self) -> str:
        return (self.data_dir / "storm-dev.err").read_text()

    def logs(self, lines: int = 40) -> str:
        """The ends of all logs, for the report of a failed test."""
        parts = [f"--- storm dev\n{self.messages()}"]
        for path in found(self.data_dir / "logs"):
            if path.is_file() and path.stat().st_size:
                tail = path.read_text(errors="replace").splitlines()[-lines:]
                parts.append(f"--- {path.relative_to(self.data_dir)}\n" + "\n".join(tail))
        return "\n".join(parts) + "\n"

    def worker_processes(self) -> dict[int, list[str]]:
        """Command lines of this cluster's workers by process id. They are told by the launch
        file, which lies in the data folder: `python -m squall_worker TOPOLOGY SUPERVISOR PORT ...`.
        """
        workers = {}
        for pid, _ in processes_of(self.data_dir).items():
            try:
                words = Path(f"/proc/{pid}/cmdline").read_bytes().decode().split("\0")[:-1]
            except (FileNotFoundError, ProcessLookupError):
                continue
            if "squall_worker" in words and is_alive(pid):
                workers[pid] = words[words.index("squall_worker") + 1 :]
        return workers

    def worker_pids(self, count: int | None = None, timeout_secs: float = 60.0) -> set[int]:
        """Process ids of the workers; with `count`, wait until there are so many."""
        if count is None:
            return set(self.worker_processes())
        return wait_for(
            f"{count} workers",
            lambda: pids if len(pids := set(self.worker_processes())) == count else None,
            timeout_secs,
        )

    # What one does with it ------------------------------------------------------------------------

    def storm(
        self, *arguments: str | Path, check: bool = True, timeout_secs: float = 110.0
    ) -> subprocess.CompletedProcess[str]:
        """Run a `storm` command against this cluster: `storm("list", "--json")`."""
        return storm("--config", self.conf_file, *arguments, check=check, timeout_secs=timeout_secs)

    def topologies(self) -> dict[str, dict[str, Any]]:
        """What `storm list` shows, by name."""
        listed = json.loads(self.storm("list", "--json").stdout)
        return {topology["name"]: topology for topology in listed}

    def call(self, method: str, *arguments: Any) -> Any:
        """One Thrift call to Nimbus (Any: the result is a Thrift struct)."""
        from squall_thrift import storm as thrift
        from squall_thrift.client import ThriftClient

        nimbus = self.state()["nimbus"]

        async def ask() -> Any:
            async with ThriftClient(
                thrift.Nimbus, nimbus["host"], nimbus["port"], timeout_secs=30.0
            ) as client:
                return await client.call(method, *arguments)

        return asyncio.run(ask())

    def names(self) -> set[str]:
        """Of the topologies that there are: as Nimbus says, without a command in between (but in a
        secured cluster, where a command has what proves who asks)."""
        if (self.data_dir / "security").exists():
            return set(self.topologies())
        return {topology.name for topology in self.call("getTopologySummaries")}

    def kill_all(self, prefix: str = "") -> None:
        """Kill all topologies (those whose name begins so), and wait until they are gone."""
        names = sorted(name for name in self.names() if name.startswith(prefix))
        for name in names:
            self.kill(name)
        for name in names:
            self.wait_gone(name)

    def kill(self, name: str) -> None:
        """As `storm kill NAME -w 0`, without the command; nothing when it is killed already."""
        from squall_thrift import storm as thrift

        with contextlib.suppress(thrift.NotAliveException):
            self.call("killTopologyWithOpts", name, thrift.KillOptions(wait_secs=0))

    def wait_gone(self, name: str, timeout_secs: float = 60.0) -> None:
        """Until Nimbus knows no topology of this name."""
        from squall_thrift.client import ThriftTransportError

        def gone() -> bool:
            try:
                return name not in self.names()
            except ThriftTransportError:  # it is being started again
                return False

        wait_for(f"{name} to be gone", gone, timeout_secs, 0.1)

    def zookeeper(self, root: str = "", payload: str | None = None) -> Any:
        """A started kazoo client. It shows `payload` ("": nothing), by default the daemons' digest
        if this cluster has one."""
        from kazoo.client import KazooClient

        if payload is None:
            digest = self.data_dir / "security" / "zookeeper.digest"
            payload = digest.read_text().split()[0] if digest.exists() else ""
        place = self.state()["zookeeper"]
        client = KazooClient(
            f"{place['host']}:{place['port']}{root}",
            auth_data={("digest", payload)} if payload else set(),
        )
        client.start(timeout=30)
        return client

    def znodes(self) -> set[str]:
        """Every path in ZooKeeper below the cluster's root."""
        from kazoo.exceptions import NoNodeError

        client = self.zookeeper()
        there: set[str] = set()

        def walk(path: str) -> None:
            with contextlib.suppress(NoNodeError):  # it went meanwhile
                for child in client.get_children(path):
                    below = f"{path.rstrip('/')}/{child}"
                    there.add(below)
                    walk(below)

        try:
            walk("/storm")
        finally:
            client.stop()
            client.close()
        return there

    def files(self) -> set[str]:
        """Every file of the daemons, logs aside, relative to the data folder."""
        logs = self.data_dir / "logs"
        return {
            str(path.relative_to(self.data_dir))
            for path in found(self.data_dir)
            if logs not in path.parents and path != logs
        }
