"""Which executors are dead: decided from what Nimbus saw, on its own clock.

A heartbeat comes over Thrift (`heard`) or is found in ZooKeeper (`observe`). It carries a time of
the worker's own clock, of which only matters whether it has changed: one in ZooKeeper is new if the
transaction that wrote it is new, one over Thrift if its time is another, and its age is the time
since Nimbus *saw the change*, on Nimbus' monotonic clock. So a clock that is skewed or jumps does
not move executors. They are moved for three reasons only:

(a) the ephemeral node of their supervisor is gone, and their worker's heartbeat has not changed for
    the ZooKeeper session timeout (if only the supervisor is away, its workers are left alone);
(b) their heartbeat has not changed for `task_timeout_secs`; or, when none was seen yet since they
    were put on their slot, for `launch_secs`;
(c) their supervisor is there but no longer offers their port (it was started with other
    `supervisor.slots.ports`): nothing will ever run there again.

Time in which Nimbus could not see heartbeats does not count: there is no verdict while it is not
connected, and after a reconnection, the gain of leadership, or a stop of its own process all
executors first get one full timeout.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Set
from dataclasses import dataclass

from squall_common.cluster.values import WorkerHeartbeat
from squall_common.topology.model import Executor, WorkerSlot

# How often to call `Monitor.awake`.
AWAKE_SECS = 1.0

# The last heartbeat of each worker, and the transaction that wrote it.
Beats = Mapping[WorkerSlot, tuple[WorkerHeartbeat, int]]


@dataclass(slots=True)
class _Watched:
    """One executor on its slot."""

    slot: WorkerSlot
    since: float  # when Nimbus put or found it there
    # The last heartbeat seen in the cluster state, and the last received over Thrift.
    zxid: int | None = None
    reported_secs: int | None = None
    changed_at: float | None = None  # when either last changed; None: never since it was put there


class Monitor:
    """Ages of heartbeats. `now` is monotonic seconds, and never goes back between calls."""

    def __init__(
        self, *, task_timeout_secs: float, launch_secs: float, session_timeout_secs: float
    ) -> None:
        self.task_timeout_secs = task_timeout_secs
        self.launch_secs = launch_secs
        self.session_timeout_secs = session_timeout_secs
        self._watched: dict[str, dict[Executor, _Watched]] = {}
        self._granted_at: float | None = None  # None while there can be no verdict
        self._awake_at: float | None = None  # when this process was last seen to run

    def resume(self, now: float) -> None:
        """Restart all timeouts: leadership was gained, or the connection came back."""
        self._granted_at = now

    def awake(self, loop_secs: float, now: float) -> bool:
        """Record that this process runs, at `loop_secs` by the clock of its loop. Called every
        second and before each verdict: if it was stopped for longer than changes no verdict (a
        third of a timeout), all timeouts restart, and True is returned."""
        before, self._awake_at = self._awake_at, loop_secs
        secs_max = min(self.task_timeout_secs, self.session_timeout_secs) / 3
        if before is None or loop_secs - before < max(secs_max, 1.5 * AWAKE_SECS):
            return False
        if self._granted_at is not None:
            self._granted_at = now
        return True

    def pause(self) -> None:
        """Give no verdicts until `resume`: the connection is lost, or another Nimbus leads."""
        self._granted_at = None

    def observe(
        self,
        topology_id: str,
        placement: Mapping[Executor, WorkerSlot],
        beats: Beats,
        now: float,
        launched: Set[WorkerSlot] = frozenset(),
    ) -> None:
        """Take in a topology's assignment and its heartbeats from the cluster state. `launched`:
        the slots whose workers reported to the leader before this one."""
        known = self._watched.setdefault(topology_id, {})
        for executor in known.keys() - placement.keys():
            del known[executor]
        for executor, slot in placement.items():
            beat, zxid = beats.get(slot, (None, None))
            if beat is None or executor not in beat.executor_stats:
                zxid = None  # its worker does not run it
            watched = known.get(executor)
            if watched is None or watched.slot != slot:
                # Found there: an existing heartbeat shows that it has been launched.
                starts = zxid is None and slot not in launched
                known[executor] = _Watched(slot, now, zxid=zxid, changed_at=None if starts else now)
            elif zxid is not None and zxid != watched.zxid:
                watched.zxid, watched.changed_at = zxid, now

    def put(
        self,
        topology_id: str,
        placement: Mapping[Executor, WorkerSlot],
        moved: Set[Executor],
        beats: Beats,
        now: float,
    ) -> None:
        """Record that Nimbus just put `moved` on the slots of `placement`: they get the launch
        timeout. A heartbeat that already exists there is from an earlier worker."""
        known = self._watched.setdefault(topology_id, {})
        for executor in moved:
            slot = placement[executor]
            _, stale = beats.get(slot, (None, None))
            known[executor] = _Watched(slot, now, zxid=stale)

    def heard(
        self,
        topology_id: str,
        node: str | None,
        executors: Collection[Executor],
        time_secs: int,
        now: float,
        port: int | None = None,
    ) -> bool:
        """Record that executors are alive, as a supervisor or a worker reports over Thrift
        (`time_secs` is by its clock); `node` and `port` are those of the worker, if known. Returns
        whether any of the executors is there."""
        known = self._watched.get(topology_id, {})
        found = False
        for executor in executors:
            watched = known.get(executor)
            if watched is None or (node is not None and watched.slot.node != node):
                continue
            if port is not None and watched.slot.port != port:
                continue
            found = True
            if time_secs != watched.reported_secs:
                watched.reported_secs, watched.changed_at = time_secs, now
        return found

    def executors(self, topology_id: str) -> int:
        """Return how many executors of a topology are watched: those that have a slot."""
        return len(self._watched.get(topology_id, ()))

    def slots(self, topology_id: str) -> frozenset[WorkerSlot]:
        """Return the slots on which a topology's executors are."""
        return frozenset(one.slot for one in self._watched.get(topology_id, {}).values())

    def is_on(self, topology_id: str, slot: WorkerSlot) -> bool:
        """Return whether executors of a topology are on a slot."""
        return any(one.slot == slot for one in self._watched.get(topology_id, {}).values())

    def forget(self, topology_id: str) -> None:
        """Stop watching a topology, which is gone."""
        self._watched.pop(topology_id, None)

    def topologies(self) -> Set[str]:
        """Return the ids of the topologies that are watched."""
        return self._watched.keys()

    def dead(
        self, topology_id: str, supervisors: Mapping[str, Set[int]], now: float
    ) -> frozenset[Executor]:
        """Return the executors to be moved. `supervisors`: by id, the ports of each supervisor
        whose ephemeral node exists."""
        if self._granted_at is None:
            return frozenset()
        return frozenset(
            executor
            for executor, watched in self._watched.get(topology_id, {}).items()
            if self._is_dead(watched, supervisors.get(watched.slot.node), self._granted_at, now)
        )

    def _is_dead(
        self, watched: _Watched, ports: Set[int] | None, granted_at: float, now: float
    ) -> bool:
        if ports is not None and watched.slot.port not in ports:
            return True
        last = watched.since if watched.changed_at is None else watched.changed_at
        age = now - max(last, granted_at)
        if ports is None and age >= self.session_timeout_secs:
            return True
        return age >= (self.launch_secs if watched.changed_at is None else self.task_timeout_secs)
