"""`storm local --workers`: runs topologies in worker processes on this machine, without a cluster.

Each is a `python -m squall_worker.local`, the worker of a cluster with its cluster state in memory.
This module does what Nimbus and a supervisor do: it deals the executors to the workers, writes the
files that a worker starts from, and starts a worker again that ended. Tuples between workers are
encoded and travel over TCP, so errors appear that a single process cannot show.
"""

from __future__ import annotations

import contextlib
import json
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from squall_common.cluster.values import Assignment, StormBase, TopologyStatus
from squall_common.component.checkpoints import Place, all_refusals, class_refusals
from squall_common.component.refusals import refuse
from squall_common.config.for_workers import worker_conf
from squall_common.config.load import default_conf, normalize_topology_conf
from squall_common.config.options.typed import TopologyOptions, WorkerOptions
from squall_common.daemon.ports import LOOPBACK, free_ports
from squall_common.errors import SquallError
from squall_common.names import make_topology_id
from squall_common.security.credentials import TopologyCredentials, check_credentials
from squall_common.security.curve import CurveKey
from squall_common.topology.encryption import has_key
from squall_common.topology.error_text import headline
from squall_common.topology.model import Executor, Topology, WorkerSlot
from squall_common.topology.prepared import prepare
from squall_common.topology.system import validate_topology
from squall_common.topology.thrift import to_thrift
from squall_common.worker_files.last_known import LastKnown
from squall_common.worker_files.launch_spec import Incarnation, LaunchSpec
from squall_thrift.codec import to_bytes

_NODE = "local"
_START_SECS = 60.0
_ANSWER_SECS = 10.0  # for the last counts: a worker may be in a call
_LOOK_SECS = 0.5  # whether topologies have finished
# A worker that ends so soon so often in a row will not get far.
_SHORT_LIFE_SECS = 10.0
_SHORT_LIVES_MAX = 3
_STOP_MORE_SECS = 2.0  # beyond the worker's own limit, which it keeps itself
_ERRORS_KEPT = 1_000


@dataclass(frozen=True, slots=True)
class ReportedError:
    """An error of a component, as text: what it was given, and the traceback."""

    component: str
    text: str
    count: int  # errors that it stands for

    @property
    def headline(self) -> str:
        """The line that names the error."""
        return headline(self.text)


def deal(executors: Sequence[Executor], slots: Sequence[WorkerSlot]) -> dict[Executor, WorkerSlot]:
    """Deal executors to slots by turns. Slots beyond the executors get none."""
    return {executor: slots[i % len(slots)] for i, executor in enumerate(sorted(executors))}


def rest_of(
    answers: Sequence[Mapping[str, Any] | None], launches: Sequence[int]
) -> list[tuple[int, int]] | None:
    """For each worker its launch and the work that it has done so far, if all sources of all
    workers have ended and nothing is in flight in them; None otherwise. Two equal results, of which
    the second was asked for after the first had come, have nothing in between
    (`squall_engine.observe.drained`)."""
    found = []
    for answer, launch in zip(answers, launches, strict=True):
        if answer is None or not answer.get("ended") or answer.get("work") is None:
            return None
        found.append((launch, answer["work"]))
    return found


class LocalWorkers:
    """Topologies in `workers` processes each. Methods that take a topology's `name` raise KeyError
    if it was not submitted here; `shutdown` ends everything."""

    def __init__(
        self,
        workers: int,
        conf: Mapping[str, Any] | None = None,
        *,
        code_dir: Path,
        environment: Path | None = None,
    ) -> None:
        """`conf` overrides the defaults; `code_dir` is the unpacked package and `environment` has
        its dependencies installed."""
        self._workers = workers
        self._conf = {**default_conf(), **(conf or {})}
        self._code_dir = code_dir
        self._environment = environment
        self._running: dict[str, _Running] = {}
        self._submitted = 0

    def submit_topology(
        self,
        name: str,
        conf: Mapping[str, Any],
        topology: Topology,
        *,
        initial_status: str = "ACTIVE",
        credentials: Mapping[str, str] | None = None,
    ) -> str:
        """Check and start a topology; returns its id once the tasks of every worker run. Raises
        SquallError if the name is in use, the topology or conf is invalid, or a worker does not
        start."""
        if name in self._running:
            raise SquallError(f"topology {name!r} is already running", hint="kill it first")
        stored = normalize_topology_conf(
            {**conf, "topology.workers": self._workers},
            self._conf,
            name=name,
            components=topology.component_confs,
        )
        options = TopologyOptions.read(stored)
        check_credentials(credentials or {})
        validate_topology(topology, options)
        refuse(all_refusals(topology, options, Place.WORKERS))
        refuse(
            class_refusals(topology, has_checkpoints=False, backend=options.topology_state_backend)
        )
        self._submitted += 1
        running = _Running(
            make_topology_id(name, self._submitted, int(time.time())),
            StormBase(name, TopologyStatus[initial_status], self._workers),
            daemon_conf={
                **worker_conf(self._conf),
                "storm.bind.host": LOOPBACK,
                "storm.local.hostname": LOOPBACK,
            },
        )
        self._running[name] = running
        try:
            running.start(
                topology,
                stored,
                self._workers,
                self._code_dir,
                self._environment,
                credentials or {},
            )
        except BaseException:
            self._running.pop(name).stop()
            raise
        return running.topology_id

    def names(self) -> list[str]:
        """The names of the running topologies, sorted."""
        return sorted(self._running)

    def counts(self, name: str) -> tuple[dict[str, dict[str, int]], int]:
        """All-time counts by component, as `LocalTopologies.totals` has them, and how many messages
        of spouts failed for good. A worker that was started again counts from its start; one that
        does not answer within 10 s, because a call holds it, is left out, with a warning."""
        return self._running[name].counts()

    def errors(self, name: str) -> list[ReportedError]:
        """The errors that its components reported, oldest first (the last 1,000)."""
        return list(self._running[name].errors)

    def wait(self, secs: float | None = None, *, until_finished: bool = False) -> bool:
        """Wait for `secs` (None: until interrupted); with `until_finished`, no longer than until
        all topologies have finished. Returns whether they have. Starts workers again that end;
        raises SquallError for one that ends again and again."""
        deadline = None if secs is None else time.monotonic() + secs
        look_at = 0.0
        while self._running and (deadline is None or time.monotonic() < deadline):
            for running in self._running.values():
                running.start_ended_again()
            if until_finished and time.monotonic() >= look_at:
                if all(running.has_finished() for running in self._running.values()):
                    return True
                look_at = time.monotonic() + _LOOK_SECS
            time.sleep(0.05)
        return False

    def shutdown(self) -> None:
        """Stop every topology: workers get their usual time to finish. Idempotent."""
        while self._running:
            self._running.popitem()[1].stop()


class _Running:
    """One topology: its folder and its workers."""

    def __init__(self, topology_id: str, base: StormBase, *, daemon_conf: dict[str, Any]) -> None:
        self.topology_id = topology_id
        self.errors: list[ReportedError] = []
        self._base = base
        self._daemon_conf = daemon_conf
        self._stop_secs = WorkerOptions.read(daemon_conf).supervisor_worker_shutdown_sleep_secs
        self._folder = tempfile.TemporaryDirectory(prefix="squall-local-")
        self._workers: list[_Worker] = []
        self._asked = 0  # how often for counts: an answer has the number of its question
        self._rest: list[tuple[int, int]] | None = None  # see `rest_of`

    def start(
        self,
        topology: Topology,
        conf: Mapping[str, Any],
        workers: int,
        code_dir: Path,
        environment: Path | None,
        credentials: Mapping[str, str],
    ) -> None:
        executors = prepare(topology, conf).executors
        if len(executors) < workers:
            workers = len(executors)
            _say(f"{self._base.name} has {workers} executors, so it gets {workers} workers")
        slots = [WorkerSlot(_NODE, port) for port in free_ports(workers)]
        assignment = Assignment("", {_NODE: LOOPBACK}, deal(executors, slots))
        known = LastKnown(assignment, self._base).serialize()
        root = Path(self._folder.name)
        stormdist = root / "stormdist"
        stormdist.mkdir()
        (stormdist / "stormcode.ser").write_bytes(to_bytes(to_thrift(topology)))
        (stormdist / "stormconf.ser").write_text(json.dumps(dict(conf)))
        (stormdist / "code").symlink_to(code_dir)
        if environment is not None:
            (stormdist / "environment").symlink_to(environment)
        key = CurveKey.make(self.topology_id).to_bytes() if has_key(conf) else None
        for number, slot in enumerate(slots, 1):
            spec = LaunchSpec(
                topology_id=self.topology_id,
                supervisor_id=_NODE,
                hostname=LOOPBACK,
                port=slot.port,
                worker_id=f"worker {number}",
                incarnation=Incarnation(1, 1),
                stormdist=stormdist,
                worker_dir=root / f"worker-{number}",
                artifacts_dir=root / f"logs-{number}",
                daemon_conf=self._daemon_conf,
            )
            for folder in (spec.worker_dir, spec.pid_dir, spec.artifacts_dir):
                folder.mkdir()
            spec.last_known_file.write_bytes(known)
            if key is not None:
                spec.key_file.touch(mode=0o600)
                spec.key_file.write_bytes(key)
            if credentials:
                spec.credentials_file.touch(mode=0o600)
                given = TopologyCredentials(self.topology_id, 1, credentials)
                spec.credentials_file.write_bytes(given.to_bytes())
            self._workers.append(_Worker(spec, self.errors))
        self._wait_running()

    def _wait_running(self) -> None:
        deadline = time.monotonic() + _START_SECS
        for worker in self._workers:
            if worker.running.wait(max(0.0, deadline - time.monotonic())):
                continue
            worker.stop(0)
            raise SquallError(
                f"{worker.name} did not start within {_START_SECS:.0f} s", hint="see its log above"
            )
        for worker in self._workers:
            if worker.has_ended:
                raise self._failure(f"{worker.name} {worker.how_it_ended} before its tasks ran")

    def _failure(self, message: str) -> SquallError:
        """With the last error that components reported."""
        if self.errors:
            message += f": {self.errors[-1].component}: {self.errors[-1].headline}"
        return SquallError(message, hint="see its log above")

    def start_ended_again(self) -> None:
        for worker in self._workers:
            if not worker.has_ended:
                continue
            if worker.short_lives >= _SHORT_LIVES_MAX:
                raise self._failure(f"{worker.name} ended {worker.short_lives} times in a row")
            _say(f"{worker.name} {worker.how_it_ended}; starting it again")
            worker.start()

    def counts(self) -> tuple[dict[str, dict[str, int]], int]:
        totals: dict[str, dict[str, int]] = {}
        failed = 0
        for worker, answer in zip(self._workers, self._ask(_ANSWER_SECS), strict=True):
            if answer is None:
                _say(
                    f"{worker.name} has been in one call for {_ANSWER_SECS:g} s: its counts are "
                    "left out"
                )
                continue
            failed += answer["failed"]
            for component, counts in answer["totals"].items():
                mine = totals.setdefault(component, {})
                for what, count in counts.items():
                    mine[what] = mine.get(what, 0) + count
        return totals, failed

    def _ask(self, secs: float) -> list[dict[str, Any] | None]:
        """What each worker answers within `secs`; None: it does not."""
        self._asked += 1
        for worker in self._workers:
            worker.ask(self._asked)
        deadline = time.monotonic() + secs
        return [worker.answer(self._asked, deadline) for worker in self._workers]

    def has_finished(self) -> bool:
        """Whether all sources have ended, and nothing is in flight. To be asked again and again: it
        was so at some moment if two answers of every worker have nothing in between."""
        before = self._rest
        self._rest = rest_of(self._ask(_LOOK_SECS), [worker.launches for worker in self._workers])
        return self._rest is not None and self._rest == before

    def stop(self) -> None:
        for worker in self._workers:
            worker.signal(signal.SIGTERM)
        deadline = time.monotonic() + self._stop_secs + _STOP_MORE_SECS
        for worker in self._workers:
            worker.stop(max(0.0, deadline - time.monotonic()))
        self._folder.cleanup()


class _Worker:
    """One worker process; a thread reads what it says."""

    def __init__(self, spec: LaunchSpec, errors: list[ReportedError]) -> None:
        self.name = spec.worker_id
        self.running = threading.Event()  # its tasks run, or it has ended
        self.short_lives = 0  # in a row
        self._spec = spec
        self.launches = 0
        self._errors = errors
        self.start()

    def start(self) -> None:
        """Start it; again once it has ended."""
        self.launches += 1
        spec = replace(self._spec, incarnation=Incarnation(1, self.launches))
        launch_file = spec.worker_dir / "launch.json"
        spec.write(launch_file)
        self._began = time.monotonic()
        self._answered = threading.Condition()
        self._answer: dict[str, Any] | None = None
        self._gone = False
        self._ours, its = socket.socketpair()
        with its:
            self._process = subprocess.Popen(
                [
                    sys.executable,
                    "-P",
                    "-m",
                    "squall_worker.local",
                    str(launch_file),
                    str(its.fileno()),
                ],
                pass_fds=[its.fileno()],
                stdin=subprocess.DEVNULL,
            )
        self._listener = threading.Thread(target=self._listen, args=(self._ours,), daemon=True)
        self._listener.start()

    @property
    def has_ended(self) -> bool:
        if self._process.poll() is None:
            return False
        if self._began:  # noticed for the first time
            short = time.monotonic() - self._began < _SHORT_LIFE_SECS
            self.short_lives = self.short_lives + 1 if short else 0
            self._began = 0.0
        return True

    @property
    def how_it_ended(self) -> str:
        status = self._process.returncode
        if status is not None and status < 0:
            return f"was ended by {signal.Signals(-status).name}"
        return f"exited with status {status}"

    def _listen(self, control: socket.socket) -> None:
        for message in _messages(control):
            if "error" in message:
                self._errors.append(
                    ReportedError(message["component"], message["error"], message["count"])
                )
                del self._errors[:-_ERRORS_KEPT]
            elif "totals" in message:
                with self._answered:
                    self._answer = message
                    self._answered.notify_all()
            else:
                self.running.set()
        self._process.wait()
        control.close()
        self.running.set()
        with self._answered:
            self._gone = True
            self._answered.notify_all()

    def ask(self, number: int) -> None:
        """Ask for its counts."""
        with contextlib.suppress(OSError):
            self._ours.sendall(b"%d\n" % number)

    def answer(self, number: int, deadline: float) -> dict[str, Any] | None:
        """Its counts as of question `number`, or None if it does not answer before `deadline`
        (monotonic)."""

        def has_come() -> bool:
            return self._answer is not None and self._answer["question"] == number

        with self._answered:
            self._answered.wait_for(
                lambda: has_come() or self._gone, max(0.0, deadline - time.monotonic())
            )
            return self._answer if has_come() else None

    def signal(self, number: int) -> None:
        with contextlib.suppress(ProcessLookupError):
            self._process.send_signal(number)

    def stop(self, secs: float) -> None:
        """Wait at most `secs` for its end, then kill it."""
        try:
            self._process.wait(secs)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._listener.join()


def _messages(control: socket.socket) -> Iterator[dict[str, Any]]:
    """Lines of JSON until the other end closes."""
    with contextlib.suppress(OSError, ValueError), control.makefile("rb") as lines:
        for line in lines:
            yield json.loads(line)


def _say(text: str) -> None:
    print(f"local: {text}", file=sys.stderr, flush=True)
