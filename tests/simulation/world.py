"""A cluster: machines with the real daemons on them, kept alive as systemd would, and a client."""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import random
import signal
import zipfile
from collections.abc import Callable, Coroutine
from functools import partial
from pathlib import Path
from typing import Any

from tests.simulation.disk import Disk
from tests.simulation.ledger import LEDGERS, Ledger, build
from tests.simulation.loop import Process, SimLoop, current_process
from tests.simulation.machine import EPOCH_SECS, SimHeartbeats, SimHost, SimMachine
from tests.simulation.network import (
    Address,
    Network,
    NimbusConnection,
    SimAlone,
    SimPeers,
    SimSockets,
    SimThriftServer,
)
from tests.simulation.store import ZOOKEEPER, SimEnsemble, SimStore

from squall_common.authentication.files import Own, Trusted
from squall_common.cluster import codec
from squall_common.cluster.access.configured import daemon_access
from squall_common.cluster.access.digests import StoreAccess
from squall_common.cluster.state import ClusterState
from squall_common.cluster.store import StoreError
from squall_common.config.load import default_conf
from squall_common.config.options.typed import NimbusOptions
from squall_common.errors import NimbusError, SquallError
from squall_common.security.access import OpenAccess
from squall_common.security.certificates import (
    Authorities,
    Authority,
    Holder,
    read_certificate,
    read_key,
)
from squall_common.security.identity import Role
from squall_common.topology.thrift import to_thrift
from squall_common.worker_files.launch_spec import LaunchSpec
from squall_common.worker_files.zookeeper_file import read_zookeeper_file
from squall_nimbus.composition import build_nimbus
from squall_nimbus.service import NimbusService
from squall_supervisor.blobs.nimbus import NimbusBlobs
from squall_supervisor.composition import build_supervisor
from squall_thrift import storm
from squall_thrift.protocol.messages import ThriftApplicationError
from squall_worker.process import EXIT_NOT_OURS, Worker

NIMBUS_PORT = 6627
SUPERVISOR_PORT = 6628
CLIENT = "10.0.0.100"

# Of the daemons of a secured world, for ZooKeeper.
DIGEST = "squall:" + 32 * "5"


class Identities:
    """The CA of a secured world, and the certificates of its daemons, which are named as their
    machines."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir()
        self._authority = Authority.create("sim", EPOCH_SECS, days=3650)
        (folder / "ca.pem").write_bytes(self._authority.to_pem()[0])
        self._made: dict[tuple[Role, str], Trusted] = {}

    def trusted(self, role: Role, name: str) -> Trusted:
        """The root of trust as this daemon has it."""
        found = self._made.get((role, name))
        if found is None:
            issued = self._authority.issue(role, name, [name], EPOCH_SECS, days=3000)
            stem = self._folder / f"{role.value}-{name}"
            for suffix, data in (("pem", issued.certificate), ("key", issued.key)):
                stem.with_name(f"{stem.name}.{suffix}").write_bytes(data)
            own = Own(
                f"{stem}.pem",
                f"{stem}.key",
                read_certificate(issued.certificate),
                Holder(role, name, issued.serial),
                read_key(issued.key),
            )
            ca_file = str(self._folder / "ca.pem")
            found = Trusted("sim", ca_file, Authorities(self._authority.certificate), own)
            self._made[role, name] = found
        return found


class World:
    """`nimbuses` and `supervisors` are numbers of machines: "10.0.0.1" has a Nimbus and, when
    there are two, so has "10.0.0.2", which is a supervisor's machine too. In a `secured` one
    Nimbus signs and supervisors and workers verify; connections prove nothing."""

    def __init__(
        self,
        seed: int,
        folder: Path,
        *,
        nimbuses: int = 2,
        supervisors: int = 3,
        secured: bool = False,
        **conf: Any,
    ) -> None:
        self.identities = Identities(folder / "identities") if secured else None
        principal = "alice" if secured else None
        self.seed = seed
        self.rng = random.Random(f"world {seed}")
        self.loop = SimLoop(seed)
        self.network = Network(self.loop, seed)
        self.network.principal = principal
        self.ensemble = SimEnsemble()
        self.disk = Disk(folder, seed)
        self.violations: list[str] = []
        self.sometimes: dict[str, int] = {}
        self.write_line: Callable[[str], None] = lambda text: None
        self.conf = conf
        count = max(nimbuses, supervisors + (nimbuses > 0))
        self.hosts: dict[str, SimHost] = {}
        for number in range(1, count + 1):
            address = f"10.0.0.{number}"
            host = SimHost(self.loop, f"m{number}", address, seed)
            host.run_worker = partial(self._worker, host)
            self.hosts[address] = host
        addresses = list(self.hosts)
        self.nimbus_hosts = addresses[:nimbuses]
        self.supervisor_hosts = addresses[-supervisors:]
        self.daemons: dict[str, Process] = {}  # "nimbus@10.0.0.1" ...
        self.client = Process(self.loop, "client", CLIENT)
        self.keep_alive = True
        self.moved: set[Process] = set()  # workers that were stopped while their work was moved

    # What happened.

    def note(self, text: str) -> None:
        """An event of the run."""
        line = f"{self.loop.time():10.3f} {text}"
        self.loop.note(line)
        self.write_line(line)

    def violated(self, what: str) -> None:
        """Something that must never be."""
        self.note(f"VIOLATED {what}")
        if what not in self.violations:
            self.violations.append(what)

    def sometime(self, what: str) -> None:
        """A rare state was reached."""
        self.sometimes[what] = self.sometimes.get(what, 0) + 1

    # Daemons.

    @property
    def seeds(self) -> list[Address]:
        return [(host, NIMBUS_PORT) for host in self.nimbus_hosts]

    def conf_of(self, host: SimHost) -> dict[str, Any]:
        folder = self.disk.folder(host.address)
        return {
            **default_conf(),
            "storm.local.dir": str(folder / "local"),
            "storm.log.dir": str(folder / "logs"),
            "storm.local.hostname": host.address,
            "nimbus.seeds": self.nimbus_hosts,
            "nimbus.thrift.port": NIMBUS_PORT,
            "supervisor.thrift.port": SUPERVISOR_PORT,
            "supervisor.slots.ports": [6700, 6701, 6702],
            # Half as often as by default: ten minutes are to take a second.
            "worker.heartbeat.frequency.secs": 2,
            "task.heartbeat.frequency.secs": 6,
            "supervisor.heartbeat.frequency.secs": 10,
            "supervisor.health.check.interval.secs": 0,  # they are programs of the real machine
            **(
                {}
                if self.identities is None
                else {"storm.id": host.address, "storm.zookeeper.auth.payload": DIGEST}
            ),
            **self.conf,
        }

    def _trusted(self, role: Role, host: SimHost) -> Trusted | None:
        return None if self.identities is None else self.identities.trusted(role, host.address)

    def store(self, host: SimHost, access: StoreAccess | None = None) -> ClusterState:
        """A client of ZooKeeper in the current process; by default a daemon."""
        conf = self.conf_of(host)
        access = access or daemon_access(NimbusOptions.read(conf))
        return ClusterState(
            SimStore(
                self.network,
                self.ensemble,
                session_timeout_secs=conf["storm.zookeeper.session.timeout"] / 1000,
                operation_timeout_secs=conf["storm.zookeeper.operation.timeout.ms"] / 1000,
                clock=host.clock,
                access=access,
            )
        )

    def start_all(self) -> None:
        """Every machine's daemons."""
        for host in self.hosts.values():
            self.boot(host)

    def boot(self, host: SimHost) -> None:
        """Start what belongs to a machine."""
        if host.address in self.nimbus_hosts:
            self._start(host, "nimbus", self._nimbus)
        if host.address in self.supervisor_hosts:
            self._start(host, "supervisor", self._supervisor)

    def _start(
        self,
        host: SimHost,
        kind: str,
        program: Callable[[SimHost, Process], Coroutine[Any, Any, None]],
    ) -> None:
        process = host.spawn(f"{host.name}.{kind}")
        name = f"{kind}@{host.address}"
        self.daemons[name] = process
        boot = host.boot

        async def run() -> None:
            status = 1
            try:
                await program(host, process)
                status = 0
            except (SquallError, OSError) as error:  # the daemon says so, and ends
                self.note(f"{process} ends: {error}")
            except Exception as error:
                self.violated(f"{kind} crashed: {type(error).__name__}: {error}")
            finally:
                if process.alive:
                    process.end(status)

        def restart() -> None:
            if host.powered and host.boot == boot and self.daemons[name] is process:
                self._start(host, kind, program)

        def ended() -> None:
            if self.keep_alive:
                self.loop.world_later(self.rng.uniform(1, 5), restart)

        process.on_exit.append(ended)
        process.tasks.add(process.start(run()))

    async def _nimbus(self, host: SimHost, process: Process) -> None:
        stop = _on_sigterm()
        state = self.store(host)
        starting = asyncio.create_task(state.start())
        await asyncio.wait({starting, stop}, return_when=asyncio.FIRST_COMPLETED)
        if stop.done():
            return
        starting.result()
        conf = self.conf_of(host)
        nimbus = build_nimbus(
            NimbusOptions.read(conf),
            conf,
            state,
            address=(host.address, NIMBUS_PORT),
            clock=host.clock,
            peers=SimPeers(self.network),
            trusted=self._trusted(Role.NIMBUS, host),
            access=state.store._access,  # type: ignore[attr-defined]
        )
        nimbus.access = OpenAccess()
        process.nimbus = nimbus  # type: ignore[attr-defined]
        try:
            await nimbus.start()
        except StoreError as error:  # as the daemon
            raise SquallError(f"lost ZooKeeper during startup: {error}") from error
        self.network.serve((host.address, NIMBUS_PORT), NimbusService(nimbus))
        await asyncio.wait({stop, nimbus.crashed}, return_when=asyncio.FIRST_COMPLETED)
        if nimbus.crashed.done():
            raise AssertionError(f"a task of Nimbus: {nimbus.crashed.result()!r}")
        self.network.unserve((host.address, NIMBUS_PORT), process)
        await nimbus.close()
        await state.close()

    async def _supervisor(self, host: SimHost, process: Process) -> None:
        stop = _on_sigterm()
        supervisor = await build_supervisor(
            self.conf_of(host),
            cluster=self.store(host),
            blobs=NimbusBlobs(
                lambda: NimbusConnection.connect(self.network, self.seeds), retries_max=3
            ),
            clock=host.clock,
            environ={},
            probe=self.network.probe,
            machine=SimMachine(host),
            server=partial(SimThriftServer, self.network),
            connect_nimbus=self.nimbus,
            trusted=self._trusted(Role.SUPERVISOR, host),
        )
        process.supervisor = supervisor  # type: ignore[attr-defined]
        await supervisor.start()
        if supervisor.slots.used_ports:
            self.sometime("worker adopted")
        crash = await supervisor.wait_crashed(stop)
        if crash is not None:
            raise AssertionError(f"a task of the supervisor: {crash!r}")
        await supervisor.close()

    async def _worker(self, host: SimHost, spec: LaunchSpec) -> int:
        process = current_process()
        process.resumed.append(lambda: self._woke(process))
        worker = Worker(
            spec,
            state=self.store(host, read_zookeeper_file(spec.zookeeper_file, spec.topology_id)),
            clock=host.clock,
            heartbeats=SimHeartbeats,  # type: ignore[arg-type]
            rings=False,
            sockets=lambda: SimSockets(self.network),  # type: ignore[arg-type,return-value]
            refuses=self.network.refuses,
            connect_nimbus=self.nimbus,
            alone=SimAlone,
        )
        process.worker = worker  # type: ignore[attr-defined]
        status = await worker.run()
        if status == EXIT_NOT_OURS:
            self.sometime("a worker stopped itself")
        return status

    # Who is there.

    def processes(self, kind: str) -> list[Process]:
        """Living processes: "nimbus", "supervisor", "worker"."""
        if kind != "worker":
            return [
                process
                for name, process in self.daemons.items()
                if name.startswith(kind) and process.alive
            ]
        return [
            process
            for host in self.hosts.values()
            for _, process in sorted(host.processes.items())
            if hasattr(process, "spec")
        ]

    def leaders(self) -> list[Process]:
        """Nimbus processes that may act."""
        return [
            process
            for process in self.processes("nimbus")
            if hasattr(process, "nimbus") and process.nimbus.leader_elector.leading
        ]

    # Machines and ways.

    def power_off(self, host: SimHost) -> None:
        """All processes end at once, and what the disk had not written is gone."""
        host.powered = False
        host.boot += 1
        self.network.dark.add(host.address)
        for process in list(host.processes.values()):
            process.end(-9)
        self.disk.lose_power(host.address)

    def power_on(self, host: SimHost) -> None:
        if not host.powered:
            host.powered = True
            self.network.dark.discard(host.address)
            self.boot(host)

    def cut(self, pairs: set[tuple[str, str]]) -> None:
        """Cut these ways, which are one-way."""
        self.network.cut |= pairs
        self.network.reset_cut()
        for client in list(self.ensemble.clients):
            if not client.reachable:
                client.went_quiet()

    def heal(self, pairs: set[tuple[str, str]]) -> None:
        """Open them again."""
        self.network.cut -= pairs
        for client in list(self.ensemble.clients):
            if client.reachable:
                client.came_back()

    def isolate(self, address: str) -> set[tuple[str, str]]:
        """The ways of a machine to everybody else."""
        others = {*self.hosts, ZOOKEEPER, CLIENT} - {address}
        return {(address, other) for other in others} | {(other, address) for other in others}

    def heal_all(self) -> None:
        """No more faults."""
        self.heal(set(self.network.cut))
        self.network.slow.clear()
        self.loop.slow_disks.clear()
        self.network.mangling = 0.0
        self.disk.full.clear()
        if not self.ensemble.running:
            self.ensemble.restart()
        for host in self.hosts.values():
            self.power_on(host)
            for process in list(host.processes.values()):
                process.resume()

    # A user.

    def ledger(self, name: str, every_secs: float) -> Ledger:
        """A source and a sink for a topology."""
        ledger = LEDGERS[name] = Ledger(name, every_secs, self.violated)
        ledger.may_act = lambda process: process not in self.moved or self.is_owner(process)
        return ledger

    def is_owner(self, process: Process) -> bool:
        """Whether a worker's executors are its own, as ZooKeeper has it."""
        worker = process.worker  # type: ignore[attr-defined]
        topology_id, tree = worker.spec.topology_id, self.ensemble.tree
        path = f"/assignments/{topology_id}"
        if tree.stat_of(path) is None:
            return False
        assignment = codec.decode_assignment(path, tree.get(path)[0])
        report = worker._report
        return report is None or (
            tuple(assignment.slots().get(worker.slot, ())) == tuple(report._executors)
        )

    def _woke(self, process: Process) -> None:
        """A worker goes on; was its work moved while it was stopped?"""
        stopped_secs = self.loop.time() - process.stopped_at
        conf = self.conf_of(self.hosts[process.host])
        if (
            stopped_secs >= conf["storm.zookeeper.session.timeout"] / 1000
            and hasattr(process, "worker")
            and not self.is_owner(process)
        ):
            self.moved.add(process)
            self.sometime("a worker woke up after its work was moved")

    async def nimbus(self) -> NimbusConnection:
        return await NimbusConnection.connect(self.network, self.seeds)

    async def submit(self, name: str, *, workers: int, spouts: int = 1, bolts: int = 2) -> str:
        """Submit a ledger's topology: "ok", "refused" or "unknown"."""
        try:
            nimbus = await self.nimbus()
            handle = await nimbus.call("beginFileUpload")
            await nimbus.call("uploadChunk", handle, _package())
            await nimbus.call("finishFileUpload", handle)
        except (NimbusError, ThriftApplicationError):
            return "refused"
        topology = to_thrift(build(name, spouts=spouts, bolts=bolts))
        conf = json.dumps({"topology.workers": workers})
        try:
            await nimbus.call(
                "submitTopologyWithOpts", name, handle, conf, topology, None, secs=60.0
            )
        except storm.AlreadyAliveException:
            return "ok"
        except (NimbusError, ThriftApplicationError, storm.InvalidTopologyException):
            return "unknown"
        return "ok"

    async def ask(self, method: str, *args: Any) -> str:
        """Another call of a user: "ok" or what went wrong."""
        try:
            nimbus = await self.nimbus()
            await nimbus.call(method, *args, secs=30.0)
        except storm.NotAliveException:
            return "not alive"
        except (NimbusError, ThriftApplicationError) as error:
            return f"{type(error).__name__}: {error}"
        return "ok"


def _on_sigterm() -> asyncio.Future[None]:
    loop = asyncio.get_running_loop()
    stop: asyncio.Future[None] = loop.create_future()

    def asked() -> None:
        with contextlib.suppress(asyncio.InvalidStateError):
            stop.set_result(None)

    loop.add_signal_handler(signal.SIGTERM, asked)
    return stop


def _package() -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr(zipfile.ZipInfo("app.py"), "x = 1\n")
    return buffer.getvalue()
