"""What must be true at every moment, and at the end.

- One acting leader an epoch: only the one that won last writes assignments and topologies.
- State can be read: in ZooKeeper always, on disks whatever a crash left.
- One owner a task: processes of nodes that are not cut off, after the time that finding out takes;
  nodes that the isolation rule concerns stop theirs.
- Nothing acked that was not processed: see `ledger`.
- When the faults have ended: everything that was accepted runs, and every message is acked; what
  was killed is gone.
"""

from __future__ import annotations

import asyncio
from typing import Any

from tests.simulation.loop import Process
from tests.simulation.store import ZOOKEEPER, SimStore
from tests.simulation.world import World

from squall_common.cluster import codec, paths
from squall_common.cluster.store import Create, Delete, Op, Set, StoreError
from squall_supervisor.records.state_file import LocalStateError, LocalStateFile
from squall_supervisor.slots.table import State

_LOOK_SECS = 1.0
# A worker whose slot is another's: reads it again (10 s), waits (10 s), drains (3 s); its session
# and its supervisor may have to come back first.
_TWO_OWNERS_SECS = 60.0
# The worker timeout and 5 s, and the time to end: SIGTERM, 3 s, SIGKILL.
_ISOLATED_SECS = 30.0 + 5.0 + 4.0


class Watcher:
    """Looks at a world for as long as it exists."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.winner: SimStore | None = None
        self._shared_since: dict[tuple[str, int], float] = {}
        self._isolated_since: dict[str, tuple[object, float]] = {}
        world.ensemble.applied.append(self._applied)

    # Writes.

    def _applied(self, client: SimStore, ops: list[Op]) -> None:
        for op in ops:
            path = getattr(op, "path", "")
            if isinstance(op, Set) and path == paths.LEADER_EPOCH:
                if self.winner is not None and self.winner.process.alive:
                    self.world.sometime("leadership passed while the old leader lives")
                self.winner = client
                self.world.note(f"{client.process} leads")
            if not isinstance(op, Set | Create | Delete):
                continue
            if path.startswith(("/assignments/", "/storms/")):
                if client is not self.winner:
                    self.world.violated(
                        f"{client.process} wrote {path}, but {self.winner and self.winner.process} "
                        "had won the leadership since"
                    )
                if not isinstance(op, Delete):
                    self._decodes(path, op.value)
            if isinstance(op, Set | Create) and path.startswith("/assignments/"):
                self.world.note(f"assignment of {path.rpartition('/')[2]} changed")

    def _decodes(self, path: str, value: bytes) -> None:
        decode: Any = (
            codec.decode_assignment if path.startswith("/assignments/") else codec.decode_storm_base
        )
        try:
            decode(path, value)
        except StoreError as error:
            self.world.violated(f"{path} cannot be read: {error}")

    # Looks.

    async def run(self) -> None:
        while True:
            await asyncio.sleep(_LOOK_SECS)
            self._look_for_two_owners()
            self._look_at_isolated_nodes()

    def _workers(self) -> list[Process]:
        """Those whose tasks run."""
        return [
            process
            for process in self.world.processes("worker")
            if not process.stopped and getattr(getattr(process, "worker", None), "_report", None)
        ]

    def _look_for_two_owners(self) -> None:
        world = self.world
        now = world.loop.time()
        owners: dict[tuple[str, int], list[Process]] = {}
        slots: dict[tuple[str, int], list[Process]] = {}
        for process in self._workers():
            worker = process.worker  # type: ignore[attr-defined]
            for executor in worker._report._executors:
                for task in executor.tasks:
                    owners.setdefault((worker.spec.topology_id, task), []).append(process)
            slots.setdefault((process.host, worker.spec.port), []).append(process)
        for slot, processes in slots.items():
            if len(processes) > 1:
                world.violated(f"two workers run on {slot}: {processes}")
        shared = {}
        for task, processes in owners.items():
            if len(processes) < 2:
                continue
            world.sometime("two owners for a while")
            connected = [one for one in processes if world.network.both(one.host, ZOOKEEPER)]
            if len(connected) < 2 or not world.ensemble.running:
                continue
            shared[task] = self._shared_since.get(task, now)
            if now - shared[task] > _TWO_OWNERS_SECS:
                world.violated(f"task {task} has had two owners for long: {processes}")
        self._shared_since = shared

    def _look_at_isolated_nodes(self) -> None:
        world = self.world
        now = world.loop.time()
        isolated: dict[str, tuple[object, float]] = {}
        everybody = [
            *((host, 6627) for host in world.nimbus_hosts),
            *((host, 6628) for host in world.supervisor_hosts),
        ]
        for address in world.supervisor_hosts:
            supervisor = world.daemons.get(f"supervisor@{address}")
            if supervisor is None or not supervisor.alive or supervisor.stopped:
                continue
            others = [host for host, port in everybody if (host, port) != (address, 6628)]
            reached = sum(
                world.network.both(address, host) and host not in world.network.dark
                for host in others
            )
            known = getattr(getattr(supervisor, "supervisor", None), "_neighbourhood", None)
            if (
                world.network.both(address, ZOOKEEPER)
                or 2 * (reached + 1) >= len(others) + 1
                or known is None
                or len(known._decision.neighbours.daemons) < len(others)
            ):
                continue
            # A supervisor that starts counts from when it begins to look: late, on a slow machine.
            looking, since = self._isolated_since.get(address, (None, now))
            if looking is not known:
                since = now
            isolated[address] = (known, since)
            if now - since > _ISOLATED_SECS:
                world.sometime("isolated node")
                for process in self._workers():
                    if process.host == address:
                        world.violated(f"{process} runs on the isolated {address}")
        self._isolated_since = isolated


def check_disk(world: World, address: str) -> None:
    """After a crash: what the next supervisor will load."""
    local = world.disk.folder(address) / "local"
    try:
        LocalStateFile(local / "supervisor" / "localstate").load()
    except LocalStateError as error:
        world.violated(f"the local state of {address} cannot be read: {error}")


def check_end(world: World, alive: dict[str, int], gone: set[str]) -> list[str]:
    """What is still wrong: topologies by name and number of workers that must run, names that must
    be gone."""
    wrong = []
    tree = world.ensemble.tree
    running: dict[str, set[tuple[str, int]]] = {}
    for process in world.processes("worker"):
        spec = process.spec  # type: ignore[attr-defined]
        running.setdefault(spec.topology_id, set()).add((process.host, spec.port))
    ids = {topology_id.rsplit("-", 2)[0]: topology_id for topology_id in tree.children("/storms")}
    if len(world.leaders()) != 1:
        wrong.append(f"{len(world.leaders())} leaders")
    for name in alive:
        topology_id = ids.get(name)
        if topology_id is None:
            wrong.append(f"{name} is not there")
            continue
        if tree.stat_of(f"/assignments/{topology_id}") is None:
            wrong.append(f"{name} has no assignment")
            continue
        assignment = codec.decode_assignment("", tree.get(f"/assignments/{topology_id}")[0])
        hosts = {slot: assignment.node_host[slot.node] for slot in assignment.slots()}
        wanted = {(hosts[slot], slot.port) for slot in assignment.slots()}
        if wanted != running.get(topology_id, set()):
            wrong.append(f"{name} is to run on {sorted(wanted)}: {running.get(topology_id)}")
        for process in world.processes("supervisor"):
            supervisor = getattr(process, "supervisor", None)
            for port, runner in supervisor.slots.runners.items() if supervisor else ():
                if (process.host, port) in wanted and runner.slot.state is not State.RUNNING:
                    wrong.append(f"{process}:{port} is {runner.slot.state.name}")
    for name in gone:
        if name in ids:
            wrong.append(f"{name} is still there")
    for topology_id, where in running.items():
        if topology_id not in ids.values():
            wrong.append(f"workers of {topology_id}, which is gone: {sorted(where)}")
    return wrong
